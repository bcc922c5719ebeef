-- One job's error stops no other (S22): of 50 jobs one has a broken item_source, one an owner that is gone, one a calendar
-- without an open day and one a schedule broken by hand. The others are planned and loaded in the same tick; the broken ones
-- say why; a source that failed is run again after a back-off, and all go on once they are mended.
\set VERBOSITY terse
SET timezone = 'UTC';
SET datestyle = iso;
SET client_min_messages = error;
CREATE FUNCTION at(instant text) RETURNS text LANGUAGE sql AS $$SELECT set_config('job_idem.clock_freeze', instant, false)$$;
SELECT at AS now FROM at('2026-11-30 00:00:00+00');
CREATE TABLE tick_errors (key text);
INSERT INTO tick_errors VALUES ('a'), ('b');
SELECT outcome FROM job_idem.define_calendar('tick errors', 'MON-SUN') AS outcome;
SELECT job_idem.define_job('errors ' || to_char(i, 'FM00'), schedule => '0 2 * * *', backoff_base => '1 minute',
	calendar => CASE i WHEN 26 THEN 'tick errors' END, closed_day => CASE i WHEN 26 THEN 'next' ELSE 'skip' END,
	item_source => CASE i WHEN 17 THEN 'SELECT (1 / 0)::text FROM public.tick_errors' ELSE 'SELECT key FROM public.tick_errors' END)
FROM generate_series(1, 50) AS i \g /dev/null
-- what no verb allows
SET session_replication_role = replica;
UPDATE job_idem.job SET owner = 4294967294::oid::regrole WHERE name = 'errors 05';
UPDATE job_idem.calendar SET weekly = 0 WHERE name = 'tick errors';
UPDATE job_idem.job_version v SET definition = jsonb_set(definition, '{schedule}', '"61 * * * *"')
FROM job_idem.job j WHERE v.job_id = j.job_id AND j.name = 'errors 33';
RESET session_replication_role;
CREATE TEMP VIEW errors AS
SELECT state, n_items, reason, count(*), CASE WHEN count(*) < 5 THEN string_agg(job, ', ' ORDER BY job) END AS jobs
FROM job_idem.runs WHERE job LIKE 'errors %' GROUP BY state, n_items, reason;

-- the first tick; its warnings, which have numbers in them, are in test/t/044_opened_by_hand.pl
SELECT at AS now FROM at('2026-11-30 02:00:01+00');
CALL job_idem.tick();
SELECT * FROM errors ORDER BY state DESC;
SELECT what, job, detail FROM job_idem.stuck WHERE job LIKE 'errors %' ORDER BY job;
SELECT * FROM job_idem.plan('errors 26', '2026-11-30', '2026-11-30');
SELECT * FROM job_idem.plan('errors 33', '2026-11-30', '2026-11-30');
-- again, before the source is due: nobody is planned twice, and the source is left alone
CALL job_idem.tick();
SELECT load_tries, load_at > job_idem.now() AS later FROM job_idem.run
WHERE job_id = (SELECT job_id FROM job_idem.jobs WHERE job = 'errors 17');
-- due: it is run again and fails again, with a longer delay
SELECT at AS now FROM at('2026-11-30 02:10:01+00');
CREATE TEMP TABLE first_try AS SELECT load_at - timestamptz '2026-11-30 02:00:01+00' AS delay FROM job_idem.run
WHERE job_id = (SELECT job_id FROM job_idem.jobs WHERE job = 'errors 17');
CALL job_idem.tick();
SELECT load_tries, load_at - job_idem.now() > delay / 2 AS later, load_at - job_idem.now() <= interval '4 minutes' AS bounded
FROM job_idem.run, first_try WHERE job_id = (SELECT job_id FROM job_idem.jobs WHERE job = 'errors 17');
SELECT * FROM errors ORDER BY state DESC;

-- mended: the source by its owner, the rest as they were broken
SELECT outcome FROM job_idem.define_job('errors 17', schedule => '0 2 * * *', backoff_base => '1 minute',
	item_source => 'SELECT key FROM public.tick_errors') AS outcome;
UPDATE job_idem.job SET owner = current_user::regrole WHERE name = 'errors 05';
UPDATE job_idem.calendar SET weekly = 127 WHERE name = 'tick errors';
SET session_replication_role = replica;
UPDATE job_idem.job_version v SET definition = jsonb_set(definition, '{schedule}', '"0 2 * * *"')
FROM job_idem.job j WHERE v.job_id = j.job_id AND j.name = 'errors 33';
RESET session_replication_role;
SELECT at AS now FROM at('2026-11-30 02:30:00+00');
CALL job_idem.tick();
SELECT * FROM errors ORDER BY state DESC;
SELECT count(*) FROM job_idem.stuck WHERE job LIKE 'errors %';
SELECT count(*) FROM job_idem.runs r, job_idem.audit(r.run_id) WHERE r.job LIKE 'errors %';

SELECT count(job_idem.cancel_run(run_id, 'the end of this test')) FROM job_idem.runs WHERE job LIKE 'errors %';
CALL job_idem.tick();
SELECT count(job_idem.pause_job(job)) FROM job_idem.jobs WHERE job LIKE 'errors %';
DROP TABLE tick_errors;
DROP FUNCTION at;
