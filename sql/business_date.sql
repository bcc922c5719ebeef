-- The business date is the planner's: zones, offsets, calendars (S3, S4, S5, C06), one run a date or a fire (S6, C38), edits
-- that never fire the past (S14, C26), a run opened by hand is the planner's (S21, C27), plan and backfill (S20).
\set VERBOSITY terse
SET client_min_messages = error;
SET timezone = 'UTC';
SET datestyle = iso;
CREATE FUNCTION at(instant text) RETURNS text LANGUAGE sql AS $$SELECT set_config('job_idem.clock_freeze', instant, false)$$;

-- both changes of the clock: one run a date, at the documented instant, in any time zone of the caller's
SELECT at AS now FROM at('2026-03-07 00:00:00+00');
SELECT job_idem.define_job('ny gap', 'keyed', schedule => '30 2 * * *', timezone => 'America/New_York') \g /dev/null
SELECT job_idem.define_job('ny twice', 'keyed', schedule => '30 1 * * *', timezone => 'America/New_York') \g /dev/null
SELECT job_idem.define_job('howe', 'keyed', schedule => '15 2 * * *', timezone => 'Australia/Lord_Howe') \g /dev/null
SELECT job_idem.define_job('santiago', 'keyed', schedule => '0 0 * * *', timezone => 'America/Santiago') \g /dev/null
SET timezone = 'Asia/Kolkata';
SELECT at AS now FROM at('2026-03-10 12:00:00+00');
CALL job_idem.tick();
SET timezone = 'UTC';
SELECT job, run_key, scheduled_at FROM job_idem.run JOIN job_idem.jobs USING (job_id) WHERE job LIKE 'ny %' ORDER BY job, run_key;
SELECT count(job_idem.pause_job(job)) FROM job_idem.jobs WHERE job LIKE 'ny %' OR job IN ('howe', 'santiago');
SELECT job, business_date, scheduled_at, outcome FROM unnest('{ny gap,ny twice,howe,santiago}'::text[]) AS job,
	unnest('{2026-04-05,2026-09-06,2026-10-04,2026-11-01}'::date[]) AS d, job_idem.plan(job, d - 1, d + 1)
WHERE (job, d) IN (('ny gap', '2026-11-01'), ('ny twice', '2026-11-01'), ('howe', '2026-04-05'), ('howe', '2026-10-04'),
	('santiago', '2026-04-05'), ('santiago', '2026-09-06')) ORDER BY job, scheduled_at;

-- offsets over month and year ends, whatever zone a worker is in
SELECT at AS now FROM at('2026-12-30 12:00:00+00');
SELECT job_idem.define_job('yesterday', 'keyed', schedule => '0 1 * * *', timezone => 'Europe/Berlin', business_date_offset => -1) \g /dev/null
SELECT at AS now FROM at('2027-01-02 12:00:00+00');
CALL job_idem.tick();
SELECT run_key, scheduled_at FROM job_idem.run JOIN job_idem.jobs USING (job_id) WHERE job = 'yesterday' ORDER BY run_key;
SET timezone = 'Pacific/Auckland';
SELECT outcome FROM job_idem.claim_item('yesterday', '2026-12-31', 'a');
SET timezone = 'America/Los_Angeles';
SELECT outcome FROM job_idem.claim_item('yesterday', '2026-12-31', 'a');
SET timezone = 'UTC';
SELECT job_idem.pause_job('yesterday');

-- calendars: Monday 2026-11-02 is a holiday
SELECT at AS now FROM at('2026-10-29 00:00:00+00');
SELECT job_idem.define_calendar('bd bank');
SELECT job_idem.set_calendar_day('bd bank', '2026-11-02', false, 'All Souls');
SELECT job_idem.define_job('closed ' || what, 'keyed', schedule => '0 2 * * *', calendar => 'bd bank', closed_day => what)
FROM unnest('{skip,next,previous}'::text[]) AS what \g /dev/null
SELECT job_idem.define_job('first ' || what, 'keyed', schedule => '0 2 1 * *', calendar => 'bd bank', closed_day => what)
FROM unnest('{next,previous}'::text[]) AS what \g /dev/null
SELECT job_idem.define_job('offset', 'keyed', schedule => '0 2 * * TUE', calendar => 'bd bank', business_date_offset => -1) \g /dev/null
SELECT at AS now FROM at('2026-11-04 12:00:00+00');
CALL job_idem.tick();
SELECT job, run_key, r.state, scheduled_at, r.reason FROM job_idem.run r JOIN job_idem.jobs USING (job_id)
WHERE job LIKE 'closed %' OR job LIKE 'first %' OR job = 'offset' ORDER BY job, run_key;
SELECT count(job_idem.pause_job(job)) FROM job_idem.jobs WHERE calendar = 'bd bank';

-- one run a date: 02:00 ran, edited to 03:00 the date has had its run; one a fire: 24 keys in UTC
SELECT at AS now FROM at('2026-11-16 00:00:00+00');
SELECT job_idem.define_job('date', 'keyed', schedule => '0 2 * * *') \g /dev/null
SELECT job_idem.define_job('fire', 'keyed', schedule => '0 * * * *', timezone => 'Asia/Kolkata', run_per => 'fire') \g /dev/null
SELECT at AS now FROM at('2026-11-16 02:00:01+00');
CALL job_idem.tick();
SELECT job_idem.define_job('date', 'keyed', schedule => '0 3 * * *') \g /dev/null
SELECT at AS now FROM at('2026-11-17 00:00:00+00');
CALL job_idem.tick();
SELECT run_key, state, version FROM job_idem.runs WHERE job = 'date' ORDER BY run_key;
SELECT count(*), min(run_key), max(run_key) FROM job_idem.runs WHERE job = 'fire';
SELECT count(job_idem.pause_job(job)) FROM job_idem.jobs WHERE job IN ('date', 'fire');

-- edits never fire the past; what the old schedule still owed, it still owes
SELECT at AS now FROM at('2026-11-18 00:30:00+00');
SELECT job_idem.define_job('edit', 'keyed', schedule => '0 1 * * *', misfire => 'latest') \g /dev/null
SELECT job_idem.define_job('edit new', 'keyed', schedule => '0 1 1 1 *', misfire => 'latest') \g /dev/null
SELECT at AS now FROM at('2026-11-18 01:00:10+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-18 15:00:00+00');
SELECT job_idem.define_job('edit', 'keyed', schedule => '0 2 * * *', misfire => 'latest') \g /dev/null
SELECT job_idem.define_job('edit new', 'keyed', schedule => '0 1 * * *', misfire => 'latest') \g /dev/null
CALL job_idem.tick();
SELECT job_idem.define_job('edit', 'keyed', schedule => '0 2 * * *', timezone => 'Asia/Tokyo', misfire => 'latest') \g /dev/null
CALL job_idem.tick();
SELECT job_idem.define_job('edit', 'keyed', schedule => '0 23 * * *', misfire => 'latest') \g /dev/null
CALL job_idem.tick();
SELECT job, run_key, state FROM job_idem.runs WHERE job LIKE 'edit%' ORDER BY job, run_key;
SELECT at AS now FROM at('2026-11-18 23:00:10+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-11-19 01:30:00+00');
SELECT job_idem.define_job('edit', 'keyed', schedule => '0 2 * * *', run_per => 'fire', misfire => 'catch_up') \g /dev/null
SELECT at AS now FROM at('2026-11-19 02:30:00+00');
-- no tick since 23:00: the 02:00 of today is owed, by the version that was in force
SELECT job_idem.define_job('edit', 'keyed', schedule => '0 4 * * *', misfire => 'catch_up') \g /dev/null
SELECT at AS now FROM at('2026-11-19 04:30:00+00');
CALL job_idem.tick();
SELECT job, run_key, state, version FROM job_idem.runs WHERE job LIKE 'edit%' ORDER BY job, run_id;
SELECT count(job_idem.pause_job(job)) FROM job_idem.jobs WHERE job LIKE 'edit%';

-- a run opened by hand is the planner's run, and stops nobody else's; a lawful redo has its own key
SELECT at AS now FROM at('2026-11-20 00:00:00+00');
SELECT job_idem.define_job('hand', 'keyed', schedule => '0 2 * * *') \g /dev/null
SELECT job_idem.define_job('hand other', 'keyed', schedule => '0 2 * * *') \g /dev/null
SELECT outcome FROM job_idem.open_run('hand', '2026-11-20');
SELECT at AS now FROM at('2026-11-20 02:01:00+00');
CALL job_idem.tick();
SELECT outcome FROM job_idem.open_run('hand', '2026-11-20', run_key => '2026-11-20#2', params => '{"why": "redo"}');
SELECT job, run_key, state FROM job_idem.runs WHERE job LIKE 'hand%' ORDER BY job, run_key;
SELECT count(job_idem.pause_job(job)) FROM job_idem.jobs WHERE job LIKE 'hand%';

-- plan and backfill, each date by the definition of its time; what is there stays; a dry run writes nothing and says the same
SELECT at AS now FROM at('2026-12-01 00:00:00+00');
SELECT job_idem.define_job('fill', 'keyed', schedule => '0 2 * * *', misfire => 'skip') \g /dev/null
SELECT at AS now FROM at('2026-12-03 02:00:01+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-12-04 12:00:00+00');
SELECT job_idem.define_job('fill', 'keyed', schedule => '30 5 * * *', misfire => 'skip', calendar => 'bd bank') \g /dev/null
SELECT at AS now FROM at('2026-12-08 12:00:00+00');
CALL job_idem.tick();
SELECT business_date, scheduled_at, outcome, reason FROM job_idem.plan('fill', '2026-11-29', '2026-12-09');
CREATE TEMP TABLE before AS SELECT run_id, state FROM job_idem.runs;
CREATE TEMP TABLE dry AS SELECT * FROM job_idem.backfill('fill', '2026-11-27', '2026-12-09', dry_run => true);
SELECT count(*) FROM (SELECT run_id, state FROM job_idem.runs EXCEPT TABLE before) x;
CREATE TEMP TABLE wet AS SELECT * FROM job_idem.backfill('fill', '2026-11-27', '2026-12-09', newest_first => true, max_parallel => 1);
SELECT business_date, run_key, scheduled_at, outcome, reason, run_id IS NOT NULL AS has_run FROM wet;
CREATE TEMP VIEW said_dry AS SELECT business_date, run_key, scheduled_at, outcome, reason FROM dry;
CREATE TEMP VIEW said_wet AS SELECT business_date, run_key, scheduled_at, outcome, reason FROM wet;
SELECT count(*) FROM ((TABLE said_dry EXCEPT TABLE said_wet) UNION ALL (TABLE said_wet EXCEPT TABLE said_dry)) x;
SELECT run_key, version, state, reason IS NOT NULL AS waits FROM job_idem.runs WHERE job = 'fill' ORDER BY run_id;
SELECT business_date, outcome FROM job_idem.backfill('fill', '2026-12-01', '2026-12-03');
SELECT job_idem.backfill('fill', '2026-12-03', '2026-12-01');
SELECT job_idem.backfill('fill', '2026-12-01', 'infinity');
SELECT job_idem.backfill('fill', '2000-12-01', '2026-12-01');
SELECT job_idem.backfill('fill', '2026-12-01', '2026-12-02', max_parallel => 0);
SELECT job_idem.plan('nobody', '2026-12-01', '2026-12-02');
SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a;
SELECT count(job_idem.pause_job(job)) > 0 AS paused FROM job_idem.jobs WHERE schedule IS NOT NULL AND paused_at IS NULL;
DROP FUNCTION at;
