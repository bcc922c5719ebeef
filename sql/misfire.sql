-- Every planned date leaves a row, whatever was missed: misfire policies (S7, C05, C34), what is worthless when late (S8),
-- a little late is on time (S10), bounded work after a long outage (S11), the plan needs no state (S12), clocks that jump
-- (S13, C07), pauses (S15, C25).
\set VERBOSITY terse
SET client_min_messages = error;
SET timezone = 'UTC';
SET datestyle = iso;
CREATE FUNCTION at(instant text) RETURNS text LANGUAGE sql AS $$SELECT set_config('job_idem.clock_freeze', instant, false)$$;
CREATE VIEW planned AS
SELECT job, string_agg(run_key || CASE WHEN state IN ('skipped', 'expired') THEN ' ' || state || ': ' || reason ELSE ' run' END, E'\n'
	ORDER BY run_id) AS in_order
FROM job_idem.runs GROUP BY job;

-- five days without a tick, one of them a holiday
SELECT at AS now FROM at('2026-11-01 00:00:00+00');
SELECT outcome FROM job_idem.define_calendar('open', 'MON-SUN') AS outcome;
SELECT job_idem.set_calendar_day('open', '2026-11-04', false);
SELECT job_idem.define_job('five ' || policy, schedule => '0 2 * * *', calendar => 'open', misfire => policy,
	valid_for => CASE policy WHEN 'expire' THEN interval '40 hours' END)
FROM unnest('{catch_up,latest,skip,expire}'::text[]) AS policy \g /dev/null
SELECT at AS now FROM at('2026-11-01 02:00:40+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-06 12:00:00+00');
CALL job_idem.tick();
SELECT * FROM planned WHERE job LIKE 'five %' ORDER BY job;
-- again: nothing more, whatever has become of the hint
CALL job_idem.tick();
CREATE TEMP TABLE before AS SELECT run_id, state FROM job_idem.runs;
UPDATE job_idem.job SET planned_to = NULL;
CALL job_idem.tick();
UPDATE job_idem.job SET planned_to = '2099-01-01';
CALL job_idem.tick();
SELECT count(*) FROM (TABLE before EXCEPT SELECT run_id, state FROM job_idem.runs) x;
SELECT count(*) FROM (SELECT run_id, state FROM job_idem.runs EXCEPT TABLE before) x;
-- a little late is on time, under every policy; past the grace the policy decides
SELECT at AS now FROM at('2026-11-07 02:04:59+00');
CALL job_idem.tick();
SELECT job, state FROM job_idem.runs WHERE run_key = '2026-11-07' AND job LIKE 'five %' ORDER BY job;
SELECT at AS now FROM at('2026-11-08 02:05:01+00');
CALL job_idem.tick();
SELECT job, state, reason FROM job_idem.runs WHERE run_key = '2026-11-08' AND job LIKE 'five %' ORDER BY job;

-- what is worthless when late: an hour late it runs, three hours late it is expired and never claimable
SELECT at AS now FROM at('2026-11-09 00:00:00+00');
SELECT job_idem.define_job('reminder', 'keyed', schedule => '0 8 * * *', misfire => 'expire', valid_for => '2 hours') \g /dev/null
SELECT at AS now FROM at('2026-11-09 09:00:00+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-10 11:00:00+00');
CALL job_idem.tick();
SELECT run_key, state, reason FROM job_idem.runs WHERE job = 'reminder' ORDER BY run_key;
SELECT outcome FROM job_idem.claim_item('reminder', '2026-11-10', 'x');

-- an hour without power: 60 minutes
SELECT at AS now FROM at('2026-11-11 19:59:00+00');
SELECT job_idem.define_job('minute ' || policy, 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => policy,
	catch_up_limit => 25, valid_for => CASE policy WHEN 'expire' THEN interval '20 minutes' END)
FROM unnest('{catch_up,latest,skip,expire}'::text[]) AS policy \g /dev/null
SELECT at AS now FROM at('2026-11-11 20:00:10+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-11 21:00:10+00');
CREATE TEMP VIEW minutes AS
SELECT job, count(*) AS rows, count(*) FILTER (WHERE state = 'running') AS runs, count(*) FILTER (WHERE state = 'skipped') AS skipped,
	count(*) FILTER (WHERE state = 'expired') AS expired, max(run_key) FILTER (WHERE state = 'running') AS newest_run
FROM job_idem.runs WHERE job LIKE 'minute %' GROUP BY job;
CALL job_idem.tick();
SELECT * FROM minutes ORDER BY job;
CALL job_idem.tick();
CALL job_idem.tick();
SELECT * FROM minutes ORDER BY job;
-- the normal cadence again
SELECT at AS now FROM at('2026-11-11 21:01:05+00');
CALL job_idem.tick();
SELECT * FROM minutes ORDER BY job;
-- each planned minute once, none invented
SELECT job, count(*), count(DISTINCT run_key), min(run_key), max(run_key) FROM job_idem.runs WHERE job LIKE 'minute %' GROUP BY job ORDER BY job;
SELECT count(*) FROM job_idem.cron_fires('* * * * *', '2026-11-11 20:00+00', '2026-11-11 21:01:01+00') f
WHERE NOT EXISTS (SELECT FROM job_idem.runs r WHERE r.job = 'minute latest' AND r.run_key = to_char(f, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));

-- the clock jumps 8 hours ahead for one tick, and is put right: what is planned stays, what is due comes, nothing twice
SELECT at AS now FROM at('2026-11-13 00:00:00+00');
SELECT job_idem.define_job('jump', 'keyed', schedule => '*/10 * * * *', run_per => 'fire', misfire => 'latest') \g /dev/null
SELECT at AS now FROM at('2026-11-13 08:01:00+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-13 00:11:00+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-13 08:11:00+00');
CALL job_idem.tick();
SELECT count(*), count(DISTINCT run_key), count(*) FILTER (WHERE state = 'running') AS runs, max(run_key) FROM job_idem.runs WHERE job = 'jump';

-- paused for 30 minutes: nothing meanwhile; resumed, the policy decides, exactly
SELECT at AS now FROM at('2026-11-14 00:00:30+00');
SELECT job_idem.define_job('pause ' || policy, 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => policy)
FROM unnest('{catch_up,latest,skip}'::text[]) AS policy \g /dev/null
SELECT count(job_idem.pause_job('pause ' || policy)) FROM unnest('{catch_up,latest,skip}'::text[]) AS policy;
SELECT at AS now FROM at('2026-11-14 00:10:30+00');
CALL job_idem.tick();
SELECT count(*) FROM job_idem.runs WHERE job LIKE 'pause %';
SELECT at AS now FROM at('2026-11-14 00:30:30+00');
SELECT count(job_idem.resume_job('pause ' || policy)) FROM unnest('{catch_up,latest,skip}'::text[]) AS policy;
CALL job_idem.tick();
SELECT job, state, count(*), min(run_key), max(run_key) FROM job_idem.runs WHERE job LIKE 'pause %' GROUP BY job, state ORDER BY job, state;

-- a limit of one row: the newest, and one of the late ones beside it, so that these come to an end too
SELECT at AS now FROM at('2026-11-15 00:00:30+00');
SELECT job_idem.define_job('one row', 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => 'latest', catch_up_limit => 1) \g /dev/null
SELECT at AS now FROM at('2026-11-15 00:03:10+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-15 00:04:10+00');
CALL job_idem.tick();
SELECT run_key, state FROM job_idem.runs WHERE job = 'one row' ORDER BY run_key;

SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a;
SELECT count(job_idem.pause_job(job, 'the end of this test')) > 0 AS paused FROM job_idem.jobs WHERE schedule IS NOT NULL;
SELECT count(job_idem.cancel_run(run_id, 'the end of this test', force => true)) > 0 AS cancelled FROM job_idem.runs WHERE finished_at IS NULL;
DROP VIEW planned;
DROP FUNCTION at;
