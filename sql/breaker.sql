-- Too large a share of failures pauses the run until an operator looks (R6); pause_run and resume_run by hand; what is held
-- may be finished.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('breaker', batch_size => 20, failure_threshold => 0.5);
SELECT outcome FROM job_idem.define_job('breaker other', batch_size => 20);
SELECT run_id FROM job_idem.open_run('breaker', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, ARRAY(SELECT 'k' || i FROM generate_series(1, 2000) i));
SELECT job_idem.seal_run(:run_id);
-- claims n items, fails the first `bad` of each claim for good and completes the rest
CREATE FUNCTION pg_temp.work(claims integer, bad integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	keys text[];
	n bigint := 0;
BEGIN
	FOR i IN 1 .. claims LOOP
		SELECT max(token), array_agg(item_key) INTO t, keys FROM job_idem.claim_items('breaker', run_key => '2026-11-30');
		EXIT WHEN t IS NULL;
		PERFORM job_idem.mark_failed_many(t, keys[1:bad], sqlstates => array_fill('23514'::text, ARRAY[bad]));
		PERFORM job_idem.mark_all_done(t, cardinality(keys) - bad, keys[1:bad]);
		n := n + cardinality(keys);
	END LOOP;
	RETURN n;
END
$$;
CREATE TEMP VIEW breaker AS SELECT state, paused_at, paused_reason FROM job_idem.runs WHERE job = 'breaker' AND run_key = '2026-11-30';

-- 80 tries are too few to tell; at 100, 60 of them failed: open
SELECT pg_temp.work(4, 12);
CALL job_idem.tick();
TABLE breaker;
SELECT max(token) AS held FROM job_idem.claim_items('breaker') \gset
SELECT count(*) FROM job_idem.mark_failed_many(:held, '{k81,k82,k83,k84,k85,k86,k87,k88,k89,k90,k91,k92}',
	sqlstates => array_fill('23514'::text, '{12}'));
SELECT job_idem.mark_done_many(:held, '{k93,k94,k95,k96,k97,k98,k99}');
CALL job_idem.tick();
TABLE breaker;
SELECT job_idem.mark_done(:held, 'k100');
CALL job_idem.tick();
TABLE breaker;
SELECT job, verb, detail FROM job_idem.event e JOIN job_idem.jobs j USING (job_id) WHERE verb = 'breaker';

-- nothing of it is claimed; others go on
SELECT pg_temp.work(1, 0);
SELECT run_id AS other FROM job_idem.open_run('breaker other', '2026-11-30') \gset
SELECT job_idem.add_items(:other, '{a}');
SELECT job_idem.seal_run(:other);
SELECT item_key FROM job_idem.claim_items('breaker other');
SELECT job_idem.resume_run(:run_id, 'the bank is back'), job_idem.resume_run(:run_id);
TABLE breaker;
-- the window begins anew: the same share again needs a hundred tries again
SELECT pg_temp.work(4, 12);
CALL job_idem.tick();
TABLE breaker;
SELECT pg_temp.work(1, 0);
CALL job_idem.tick();
TABLE breaker;
-- what is older than the window does not count: 200 good ones first, then 100 bad ones twenty minutes later
SELECT pg_temp.work(10, 0);
CALL job_idem.tick();
SET job_idem.clock_freeze = '2026-11-30 12:20:00+00';
CALL job_idem.tick();
SELECT pg_temp.work(5, 9);
CALL job_idem.tick();
TABLE breaker;
SELECT pg_temp.work(5, 11);
CALL job_idem.tick();
TABLE breaker;
SELECT job_idem.resume_run(:run_id);
-- old samples are not kept
SELECT count(*) <= 2 AS few FROM job_idem.run_sample WHERE run_id = :run_id;

-- by hand, once; a run that has ended is neither
SELECT job_idem.pause_run(:run_id, 'audit'), job_idem.pause_run(:run_id, 'audit again');
TABLE breaker;
SELECT job_idem.pause_run(:run_id, NULL);
SELECT job_idem.pause_run(-1, 'nobody');
SELECT count(*) FROM job_idem.claim_items('breaker');
SELECT job_idem.cancel_run(:run_id, 'enough');
SELECT job_idem.pause_run(:run_id, 'ended');
SELECT job_idem.resume_run(:run_id, 'ended');
SELECT verb, detail FROM job_idem.event WHERE run_id = :run_id AND verb IN ('pause_run', 'resume_run', 'breaker') ORDER BY event_id;
-- off, it never opens
SELECT run_id AS free FROM job_idem.open_run('breaker other', '2026-12-01') \gset
SELECT job_idem.add_items(:free, ARRAY(SELECT 'k' || i FROM generate_series(1, 200) i));
SELECT job_idem.seal_run(:free);
SELECT count(*) FROM generate_series(1, 10), LATERAL (SELECT token, array_agg(item_key) AS k FROM job_idem.claim_items('breaker other') GROUP BY token) c,
	job_idem.mark_failed_many(c.token, c.k) f;
CALL job_idem.tick();
SELECT paused_at, state FROM job_idem.runs WHERE run_id = :free;
-- keyed: a paused run answers that a key waits
SELECT outcome FROM job_idem.define_job('breaker keyed', 'keyed', close_after => '1000 years');
SELECT outcome FROM job_idem.claim_item('breaker keyed', '2026-11-30', 'a');
SELECT job_idem.pause_run(run_id, 'wait') FROM job_idem.runs WHERE job = 'breaker keyed';
SELECT outcome FROM job_idem.claim_item('breaker keyed', '2026-11-30', 'b');
SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job LIKE 'breaker%';
