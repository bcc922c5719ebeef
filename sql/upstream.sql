-- What a run of a date waits for (S17, S19, C28): order kept, the release in the transaction that finishes the upstream,
-- offsets in days and open days, what each end of an upstream means, and what an operator sees and can do.
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET timezone = 'UTC';
SET datestyle = iso;
\pset null -
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
-- a sealed run of one item, or of none
CREATE FUNCTION pg_temp.run(job text, date date, key text DEFAULT NULL, item text DEFAULT 'i') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	run bigint;
BEGIN
	SELECT run_id INTO run FROM job_idem.open_run(job, date, run_key => key);
	PERFORM job_idem.add_items(run, ARRAY[item]);
	PERFORM job_idem.seal_run(run);
	RETURN run;
END $$;
-- works on the item of a run, and lets a claim that finds nothing end the run
CREATE FUNCTION pg_temp.work(job text, date date, key text DEFAULT NULL, dies boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	i text;
BEGIN
	SELECT token, item_key INTO t, i FROM job_idem.claim_items(job, business_date => date, run_key => key);
	IF dies THEN
		PERFORM job_idem.mark_failed(t, i, transient => false);
	ELSE
		PERFORM job_idem.mark_all_done(t, 1);
	END IF;
	RETURN i;
END $$;
CREATE FUNCTION pg_temp.finish(job text, key text DEFAULT NULL) RETURNS bigint LANGUAGE sql
	AS 'SELECT count(*) FROM job_idem.claim_items($1, run_key => $2)';
CREATE TEMP VIEW down AS SELECT job, run_key, state, reason, (SELECT string_agg(verb, ' ' ORDER BY event_id) FROM job_idem.event e
	WHERE e.run_id = r.run_id) AS events FROM job_idem.runs r WHERE job LIKE 'down%';

SELECT count(job_idem.define_job(job, close_after => '1000 years')) FROM unnest('{up,down,down too}'::text[]) AS job;
SELECT job_idem.add_dependency('down', 'up'), job_idem.add_dependency('down too', 'down');

-- a run is born blocked, by hand or by whom ever, and says why; nothing of it can be loaded or claimed before its time
SELECT outcome, state FROM job_idem.open_run('down too', '2026-11-01');
SELECT outcome, state FROM job_idem.open_run('down', '2026-11-01');
SELECT run_id AS down FROM job_idem.runs WHERE job = 'down' \gset
SELECT * FROM down ORDER BY job;
SELECT job_idem.seal_run(:down);
CALL job_idem.tick();
SELECT pg_temp.finish('down'), pg_temp.finish('down too');
SELECT state FROM job_idem.runs WHERE run_id = :down;
-- the order is kept, however long the upstream takes; the release is in the transaction that finishes it: no tick
SELECT pg_temp.run('up', '2026-11-01') AS up \gset
SELECT * FROM down WHERE job = 'down';
SELECT pg_temp.work('up', '2026-11-01');
SELECT state FROM job_idem.runs WHERE run_id = :up;
BEGIN;
SELECT pg_temp.finish('up');
SELECT * FROM down ORDER BY job;
ROLLBACK;
SELECT * FROM down ORDER BY job;
SELECT pg_temp.finish('up');
SELECT * FROM down ORDER BY job;
SELECT (SELECT xmin FROM job_idem.run WHERE run_id = :up) = (SELECT xmin FROM job_idem.run WHERE run_id = :down) AS one_transaction;
-- and down the line
SELECT n_new FROM job_idem.add_items(:down, '{i}');
SELECT n_items FROM job_idem.seal_run(:down);
SELECT pg_temp.work('down', '2026-11-01');
SELECT pg_temp.finish('down');
SELECT * FROM down ORDER BY job;
-- opened when all is done already: not blocked
SELECT state FROM job_idem.open_run('down', '2026-11-01', run_key => 'again');
SELECT count(job_idem.cancel_run(run_id, 'enough', true)) FROM job_idem.runs WHERE run_key = 'again';

-- several runs of the upstream's date: all of them
SELECT pg_temp.run('up', '2026-11-02'), pg_temp.run('up', '2026-11-02', '2026-11-02#2') \g /dev/null
SELECT state FROM job_idem.open_run('down', '2026-11-02');
SELECT pg_temp.work('up', '2026-11-02', '2026-11-02');
SELECT pg_temp.finish('up', '2026-11-02');
CALL job_idem.tick();
SELECT * FROM down WHERE run_key = '2026-11-02';
SELECT pg_temp.work('up', '2026-11-02', '2026-11-02#2');
SELECT pg_temp.finish('up');
SELECT * FROM down WHERE run_key = '2026-11-02';

-- how an upstream ends: skipped lets go, unless the dependency says block; expired, cancelled, partial and missing do not
CREATE TEMP TABLE dates (ends text, day date);
INSERT INTO dates VALUES ('skipped', '2026-11-03'), ('expired', '2026-11-04'), ('cancelled', '2026-11-05'), ('partial', '2026-11-06'),
	('missing', '2026-11-07'), ('done', '2026-11-08');
SELECT outcome FROM job_idem.define_job('down strict', close_after => '1000 years');
SELECT job_idem.add_dependency('down strict', 'up', on_skipped => 'block');
-- what the planner writes of them; here by hand
INSERT INTO job_idem.run (job_id, run_key, business_date, state, version, batch_size, opened_at, finished_at, reason)
SELECT job_id, day::text, day, ends, 1, 100, job_idem.now(), job_idem.now(), 'as told' FROM job_idem.jobs, dates
WHERE job = 'up' AND ends IN ('skipped', 'expired');
INSERT INTO job_idem.tally (run_id) SELECT run_id FROM job_idem.run WHERE reason = 'as told';
SELECT job, day, state FROM unnest('{down,down strict}'::text[]) AS job, dates, job_idem.open_run(job, day) ORDER BY day, job;
SELECT count(pg_temp.run('up', day)) FROM dates WHERE ends IN ('cancelled', 'partial', 'done');
SELECT count(job_idem.cancel_run(run_id, 'not today')) FROM job_idem.runs JOIN dates ON run_key = day::text AND ends = 'cancelled'
WHERE job = 'up';
SELECT pg_temp.work('up', day, dies => true) FROM dates WHERE ends = 'partial';
SELECT pg_temp.work('up', day) FROM dates WHERE ends = 'done';
CALL job_idem.tick();
CALL job_idem.tick();
SELECT pg_temp.finish('up'), pg_temp.finish('down'), pg_temp.finish('down strict');
SELECT ends, (SELECT u.state FROM job_idem.runs u WHERE u.job = 'up' AND u.run_key = day::text) AS up, d.job, d.state, d.events
FROM dates JOIN down d ON run_key = day::text ORDER BY day, job;
-- one that is born late is told what there is by now
SELECT count(r.run_id) FROM dates, job_idem.open_run('down', day, run_key => 'late ' || ends) r;
SELECT run_key, state, reason FROM down WHERE run_key LIKE 'late %' ORDER BY run_key;
SELECT count(job_idem.cancel_run(run_id, 'enough', true)) FROM job_idem.runs WHERE run_key LIKE 'late %';
-- the last dead letter is discarded: partial becomes done, which lets go, at once
SELECT job_idem.discard(dead_letter_id, 'paid by hand') FROM job_idem.dead_letters WHERE job = 'up';
SELECT ends, d.job, d.state, d.events FROM dates JOIN down d ON run_key = day::text WHERE ends = 'partial' ORDER BY job;
-- the cancelled date is done again under another key: both runs of the date count, and the cancelled one stays
SELECT pg_temp.run('up', '2026-11-05', '2026-11-05#2') \g /dev/null
SELECT pg_temp.work('up', '2026-11-05');
CALL job_idem.tick();
CALL job_idem.tick();
SELECT job, state FROM down WHERE run_key = '2026-11-05' ORDER BY job;
-- an operator decides, once, and it is on record; a second time changes nothing
SELECT run_id AS held FROM job_idem.runs WHERE job = 'down' AND run_key = '2026-11-05' \gset
SELECT job_idem.unblock_run(:held, NULL);
SELECT job_idem.unblock_run(:held, 'paid by hand');
SELECT job_idem.unblock_run(:held, 'paid by hand');
SELECT verb, detail, by = current_user AS by FROM job_idem.event WHERE run_id = :held AND verb NOT IN ('open_run');
SELECT state, reason FROM job_idem.runs WHERE run_id = :held;
CALL job_idem.tick();
SELECT state FROM job_idem.runs WHERE run_id = :held;
SELECT job_idem.unblock_run(:up, 'is done');
SELECT job_idem.unblock_run(0, 'is not there');
-- the missing one comes after all
SELECT pg_temp.run('up', '2026-11-07') \g /dev/null
SELECT pg_temp.work('up', '2026-11-07');
SELECT pg_temp.finish('up');
SELECT job, state FROM down WHERE run_key = '2026-11-07' ORDER BY job;

-- a keyed run waits too: new keys are told to wait, until the upstream is done
SELECT outcome FROM job_idem.define_job('down keyed', 'keyed', close_after => '1000 years');
SELECT job_idem.add_dependency('down keyed', 'up');
SELECT pg_temp.run('up', '2026-11-09') \g /dev/null
SELECT outcome, token FROM job_idem.claim_item('down keyed', '2026-11-09', 'k1');
SELECT * FROM down WHERE job = 'down keyed';
SELECT outcome FROM job_idem.claim_item('down keyed', '2026-11-09', 'k1');
SELECT count(*) FROM job_idem.items WHERE job = 'down keyed';
SELECT pg_temp.work('up', '2026-11-09');
SELECT pg_temp.finish('up');
SELECT outcome, attempt FROM job_idem.claim_item('down keyed', '2026-11-09', 'k1');
SELECT * FROM down WHERE job = 'down keyed';

-- offsets: two days before, by the calendar of days; and two open days before, over a weekend and a holiday
SELECT outcome FROM job_idem.define_calendar('up open') AS outcome;
SELECT job_idem.set_calendar_day('up open', '2026-11-13', false, 'a holiday');
SELECT outcome FROM job_idem.define_job('down days', close_after => '1000 years', calendar => 'up open');
SELECT outcome FROM job_idem.define_job('down open days', close_after => '1000 years', calendar => 'up open');
SELECT outcome FROM job_idem.define_job('down ahead', close_after => '1000 years');
SELECT job_idem.add_dependency('down days', 'up', -2), job_idem.add_dependency('down open days', 'up', -2, offset_unit => 'open_day'),
	job_idem.add_dependency('down ahead', 'up', 1);
-- Tuesday: two days before is Sunday, two open days before is Thursday
SELECT count(r.run_id) FROM unnest('{down days,down open days}'::text[]) AS job, job_idem.open_run(job, '2026-11-17') r;
SELECT outcome FROM job_idem.open_run('down ahead', '2026-11-14');
SELECT job, run_key, state, reason FROM down WHERE job IN ('down days', 'down open days', 'down ahead') ORDER BY job;
SELECT pg_temp.run('up', '2026-11-17') \g /dev/null
SELECT pg_temp.work('up', '2026-11-17');
SELECT pg_temp.finish('up');
SELECT job, state FROM down WHERE job IN ('down days', 'down open days', 'down ahead') ORDER BY job;
SELECT pg_temp.run('up', '2026-11-12') \g /dev/null
SELECT pg_temp.work('up', '2026-11-12');
SELECT pg_temp.finish('up');
SELECT job, state FROM down WHERE job IN ('down days', 'down open days', 'down ahead') ORDER BY job;
SELECT pg_temp.run('up', '2026-11-15') \g /dev/null
SELECT pg_temp.work('up', '2026-11-15');
SELECT pg_temp.finish('up');
SELECT job, state FROM down WHERE job IN ('down days', 'down open days', 'down ahead') ORDER BY job;

-- a job that waits for its own day before: one date after another, whatever the order of opening
SELECT outcome FROM job_idem.define_job('down itself', close_after => '1000 years');
SELECT state FROM job_idem.open_run('down itself', '2026-11-01');
SELECT job_idem.add_dependency('down itself', 'down itself', -1);
SELECT day::date, state FROM generate_series(date '2026-11-03', '2026-11-02', '-1 day') AS day, job_idem.open_run('down itself', day::date);
SELECT s.n_items FROM job_idem.runs r, job_idem.seal_run(r.run_id) s WHERE job = 'down itself' AND run_key = '2026-11-01';
SELECT pg_temp.finish('down itself');
SELECT run_key, state FROM down WHERE job = 'down itself' ORDER BY run_key;

-- planned runs are born blocked too, and so are those of a backfill
SELECT outcome FROM job_idem.define_job('down planned', close_after => '1000 years', schedule => '0 13 * * *');
SELECT job_idem.add_dependency('down planned', 'up');
SET job_idem.clock_freeze = '2026-11-30 13:00:01+00';
CALL job_idem.tick();
SELECT outcome, reason FROM job_idem.backfill('down planned', '2026-11-29', '2026-11-29');
SELECT run_key, state, reason FROM down WHERE job = 'down planned' ORDER BY run_key;
-- the upstream is dropped: what waits for it goes on waiting, and shows for what; its dependency says that it is dropped.
-- Without the dependency the next tick lets it go
SELECT outcome FROM unnest('{gone,down gone}'::text[]) AS job, job_idem.define_job(job, close_after => '1000 years');
SELECT job_idem.add_dependency('down gone', 'gone');
SELECT state FROM job_idem.open_run('down gone', '2026-11-30');
SELECT job_idem.drop_job('gone');
CALL job_idem.tick();
SELECT d.run_key, d.state, reason, upstream_dropped FROM down d JOIN job_idem.dependencies USING (job) WHERE job = 'down gone';
SELECT job_idem.drop_dependency('down gone', 'gone');
CALL job_idem.tick();
SELECT run_key, state, reason, events FROM down WHERE job = 'down gone';
-- a blocked run may be cancelled; it never comes back
SELECT job_idem.cancel_run(run_id, 'not needed') FROM job_idem.runs WHERE job = 'down planned' AND run_key = '2026-11-29';
SELECT pg_temp.run('up', '2026-11-29') \g /dev/null
SELECT pg_temp.work('up', '2026-11-29');
CALL job_idem.tick();
CALL job_idem.tick();
SELECT run_key, state, reason FROM down WHERE job = 'down planned' ORDER BY run_key;
-- in all this nothing was let go twice
SELECT run_id, count(*) FROM job_idem.event JOIN job_idem.jobs j USING (job_id) WHERE verb IN ('release', 'unblock_run') AND j.job LIKE 'down%'
GROUP BY run_id HAVING count(*) > 1;
SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job IN ('up', 'gone') OR r.job LIKE 'down%';
SELECT count(job_idem.pause_job(job)) FROM job_idem.jobs WHERE job = 'down planned';
SELECT count(job_idem.cancel_run(run_id, 'the end of this test', true)) > 0 AS cancelled FROM job_idem.runs WHERE finished_at IS NULL
	AND (job = 'up' OR job LIKE 'down%');
