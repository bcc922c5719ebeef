-- The retries of a run are bounded as a share of its items: spent, every further failure makes a dead letter, with that
-- reason (R5, K46); replay and resume_run begin anew.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';

-- claims everything that is there and fails all of it, in claims of batch_size with a tick after each
CREATE PROCEDURE fail_all(job_name text) LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	keys text[];
BEGIN
	LOOP
		SELECT max(token), array_agg(item_key) INTO t, keys FROM job_idem.claim_items(job_name);
		EXIT WHEN t IS NULL;
		PERFORM job_idem.mark_failed_many(t, keys, sqlstates => array_fill('40001'::text, ARRAY[cardinality(keys)]));
		COMMIT;
		CALL job_idem.tick();
	END LOOP;
END
$$;
CREATE PROCEDURE fill(job_name text, n integer, key text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	r bigint;
BEGIN
	SELECT run_id INTO r FROM job_idem.open_run(job_name, '2026-11-30', key);
	PERFORM job_idem.add_items(r, ARRAY(SELECT 'k' || i FROM generate_series(1, n) i));
	PERFORM job_idem.seal_run(r);
END
$$;
CREATE TEMP VIEW summary AS
SELECT job, run_key, (SELECT count(*) FROM job_idem.failures f WHERE f.run_id = r.run_id AND retry_at IS NOT NULL) AS retries,
	(SELECT string_agg(n || ' ' || reason, ', ' ORDER BY reason) FROM (SELECT count(*) AS n, reason FROM job_idem.dead_letters d
		WHERE d.run_id = r.run_id AND status = 'open' GROUP BY reason) x) AS dead, state, retries_closed IS NOT NULL AS closed
FROM job_idem.runs r;

-- 1,000 items, all failing: 200 retries, plus what failed between two ticks, which is a claim of 50 here
SELECT outcome FROM job_idem.define_job('budget', batch_size => 50);
CALL fill('budget', 1000);
CALL fail_all('budget');
SELECT * FROM summary WHERE job = 'budget';
-- those that wait come once more, and die
SET job_idem.clock_freeze = '2026-11-30 12:10:00+00';
CALL fail_all('budget');
SELECT * FROM summary WHERE job = 'budget';
SELECT count(*) FROM job_idem.event e JOIN job_idem.jobs j USING (job_id) WHERE verb = 'retries_closed' AND job = 'budget';
SELECT retries_closed FROM job_idem.runs WHERE job = 'budget';

-- an operator who replays gives the run a budget again, and the item its tries
SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE job = 'budget' AND item_key = 'k1';
SELECT state, closed FROM summary WHERE job = 'budget';
CALL fail_all('budget');
SELECT state, attempts FROM job_idem.items WHERE job = 'budget' AND item_key = 'k1';
-- lost claims are no retries that the budget counts
SELECT count(*) FROM job_idem.failures WHERE job = 'budget' AND kind = 'lost';

-- a small run is bounded by the tries of its items alone
SELECT outcome FROM job_idem.define_job('budget small', batch_size => 1, backoff_base => '0');
CALL fill('budget small', 3);
CALL fail_all('budget small');
SELECT * FROM summary WHERE job = 'budget small';
-- none at all, and no limit; zero also without a tick
SELECT outcome FROM job_idem.define_job('budget none', batch_size => 5, backoff_base => '0', retry_budget => 0);
CALL fill('budget none', 5);
SELECT max(token) AS token FROM job_idem.claim_items('budget none') \gset
SELECT state FROM job_idem.mark_failed(:token, 'k1', sqlstate => '40001');
CALL fail_all('budget none');
SELECT * FROM summary WHERE job = 'budget none';
SELECT outcome FROM job_idem.define_job('budget free', batch_size => 50, backoff_base => '0', retry_budget => NULL);
CALL fill('budget free', 100);
CALL fail_all('budget free');
SELECT * FROM summary WHERE job = 'budget free';
-- a keyed run has the items that have come so far
SELECT outcome FROM job_idem.define_job('budget keyed', 'keyed', backoff_base => '0', max_attempts => 100, close_after => '1000 years');
SELECT count(*) FROM generate_series(1, 100) i, job_idem.claim_item('budget keyed', '2026-11-30', 'k' || i) c,
	job_idem.mark_failed(c.token, 'k' || i, sqlstate => CASE WHEN i % 5 = 0 THEN '40001' ELSE '23514' END) f;
CALL job_idem.tick();
SELECT * FROM summary WHERE job = 'budget keyed';

-- counted also where nothing ticks: by an idle claim; under an open lease as well as under closed ones
SELECT outcome FROM job_idem.define_job('budget idle', batch_size => 100, max_attempts => 1000);
CALL fill('budget idle', 100);
SELECT max(token) AS token FROM job_idem.claim_items('budget idle') \gset
SELECT count(*) FROM job_idem.mark_failed_many(:token, ARRAY(SELECT 'k' || i FROM generate_series(1, 20) i),
	sqlstates => array_fill('40001'::text, '{20}'));
SELECT closed FROM summary WHERE job = 'budget idle';
SELECT count(*) FROM job_idem.claim_items('budget idle');
SELECT closed FROM summary WHERE job = 'budget idle';
SELECT state FROM job_idem.mark_failed(:token, 'k21', sqlstate => '40001');
-- a lost claim is not in it: its items come back all the same
SET job_idem.clock_freeze = '2026-11-30 13:00:00+00';
CALL job_idem.tick();
SELECT state, count(*) FROM job_idem.items WHERE job = 'budget idle' GROUP BY state ORDER BY state;
SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job LIKE 'budget%';
DROP PROCEDURE fill, fail_all;
