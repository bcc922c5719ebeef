-- Runs of a job that meet: wait, so that state advances in order and draws level after an outage, and what holds the line up
-- shows (S9, C44); skip, with the reason on record; allow.
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET timezone = 'UTC';
SET datestyle = iso;
CREATE FUNCTION at(instant text) RETURNS text LANGUAGE sql AS $$SELECT set_config('job_idem.clock_freeze', instant, false)$$;
-- run numbers have no place in a test: the date of the run in their stead
CREATE FUNCTION told(reason text) RETURNS text LANGUAGE sql AS $$
	SELECT replace(reason, n, (SELECT 'of ' || run_key FROM job_idem.run WHERE run_id = n::bigint))
	FROM (SELECT (regexp_match(reason, 'run (\d+)'))[1] AS n) x $$;
CREATE VIEW line AS SELECT job, run_key, state, coalesce(told(reason), reason) AS reason FROM job_idem.runs;
CREATE TEMP TABLE mine AS SELECT unnest('{chain,expiring,latest,ahead,skips,side by side}'::text[]) AS job;
CREATE TABLE balance (entry serial, job text, day date, at_once int);
-- does what there is to be done of a job: a worker that takes any run it is given
CREATE FUNCTION work(job text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT * FROM job_idem.claim_items(work.job) LOOP
		INSERT INTO balance (job, day, at_once) SELECT work.job, c.business_date, count(*) FROM job_idem.runs r
			WHERE r.job = work.job AND state IN ('running', 'loading', 'partial');
		PERFORM job_idem.mark_done(c.token, c.item_key);
	END LOOP;
END $$;

-- thirty periods behind: one run after another, in order, until the job has drawn level
SELECT at AS now FROM at('2026-10-01 00:00:00+00');
SELECT outcome FROM job_idem.define_job('chain', schedule => '0 2 * * *', overlap => 'wait', item_source => 'SELECT ''i''::text AS item_key');
SELECT at AS now FROM at('2026-10-30 12:00:00+00');
CALL job_idem.tick();
SELECT state, count(*), min(run_key), max(run_key) FROM line WHERE job = 'chain' GROUP BY state ORDER BY state DESC;
SELECT count(*) AS in_order FROM job_idem.run r JOIN job_idem.run p ON p.run_id = r.waits_for AND p.job_id = r.job_id
	AND p.business_date = r.business_date - 1 JOIN job_idem.jobs j ON j.job_id = r.job_id WHERE j.job = 'chain';
SELECT * FROM line WHERE job = 'chain' AND run_key BETWEEN '2026-10-01' AND '2026-10-03' ORDER BY run_key;
SELECT 'DO $$BEGIN PERFORM work(''chain''); END$$', 'CALL job_idem.tick()' FROM generate_series(1, 12) \gexec
-- another date has come meanwhile, and stands in line
SELECT at AS now FROM at('2026-10-31 12:00:00+00');
SELECT 'DO $$BEGIN PERFORM work(''chain''); END$$', 'CALL job_idem.tick()' FROM generate_series(1, 18) \gexec
SELECT state, count(*), max(run_key) FROM line WHERE job = 'chain' GROUP BY state ORDER BY state;
SELECT work('chain');
CALL job_idem.tick();
SELECT count(*), count(DISTINCT day), bool_and(day = date '2026-09-30' + nth::int) AS in_order, max(at_once) AS at_once FROM
	(SELECT *, row_number() OVER (ORDER BY entry) AS nth FROM balance WHERE job = 'chain') b;
SELECT state, count(*) FROM line WHERE job = 'chain' GROUP BY state;
SELECT run_id, count(*) FROM job_idem.event JOIN job_idem.jobs USING (job_id) WHERE job = 'chain' AND verb = 'release'
GROUP BY run_id HAVING count(*) > 1;
-- level: the next date need not wait
SELECT at AS now FROM at('2026-11-01 02:00:10+00');
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'chain' AND run_key >= '2026-11-01';

-- a partial run holds the next one back, and so does one with an item that is due tomorrow, which shows; a cancelled one
-- does not
SELECT job_idem.mark_failed(token, item_key, transient => false) IS NOT NULL AS failed FROM job_idem.claim_items('chain');
SELECT at AS now FROM at('2026-11-02 02:00:10+00');
CALL job_idem.tick();
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'chain' AND run_key >= '2026-11-01' ORDER BY run_key;
SELECT work('chain');
SELECT job_idem.replay(dead_letter_id, 'account is there now') FROM job_idem.dead_letters WHERE job = 'chain';
SELECT job_idem.postpone(token, item_key, '1 day') IS NOT NULL AS postponed FROM job_idem.claim_items('chain');
CALL job_idem.tick();
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'chain' AND run_key >= '2026-11-01' ORDER BY run_key;
SELECT run_key, what, detail FROM job_idem.stuck WHERE job = 'chain';
SELECT job_idem.cancel_run(run_id, 'not worth a day') FROM job_idem.runs WHERE job = 'chain' AND run_key = '2026-11-01';
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'chain' AND run_key >= '2026-11-01' ORDER BY run_key;
-- and without a tick: an idle claim lets the next one go too
SELECT at AS now FROM at('2026-11-03 02:00:10+00');
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'chain' AND run_key >= '2026-11-02' ORDER BY run_key;
SELECT work('chain');
SELECT count(*) FROM job_idem.claim_items('chain');
SELECT * FROM line WHERE job = 'chain' AND run_key >= '2026-11-02' ORDER BY run_key;
-- an operator may let one go before its turn
SELECT at AS now FROM at('2026-11-04 02:00:10+00');
CALL job_idem.tick();
SELECT job_idem.unblock_run(run_id, 'both at once, for once') FROM job_idem.runs WHERE job = 'chain' AND run_key = '2026-11-04';
SELECT * FROM line WHERE job = 'chain' AND run_key >= '2026-11-03' ORDER BY run_key;
SELECT job_idem.pause_job('chain');

-- what may be too late keeps its order too: the newest does not go first, and one at a time
SELECT at AS now FROM at('2026-10-01 00:00:00+00');
SELECT outcome FROM job_idem.define_job('expiring', 'keyed', schedule => '0 2 * * *', overlap => 'wait', misfire => 'expire', valid_for => '60 hours');
SELECT at AS now FROM at('2026-10-05 02:00:10+00');
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'expiring' ORDER BY run_key;
-- of what only the latest counts, the latest waits
SELECT at AS now FROM at('2026-10-01 00:00:00+00');
SELECT outcome FROM job_idem.define_job('latest', 'keyed', schedule => '0 2 * * *', overlap => 'wait', misfire => 'latest');
SELECT at AS now FROM at('2026-10-01 02:00:10+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-10-04 12:00:00+00');
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'latest' ORDER BY run_key;
-- a run opened by hand ahead of its date: what is planned after it stands in line, one behind the other
SELECT at AS now FROM at('2026-10-01 00:00:00+00');
SELECT outcome FROM job_idem.define_job('ahead', 'keyed', schedule => '0 2 * * *', overlap => 'wait');
SELECT outcome FROM job_idem.open_run('ahead', '2026-10-09');
SELECT at AS now FROM at('2026-10-03 02:00:10+00');
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'ahead' ORDER BY run_key;
-- a backfill stands in line as well, and what is planned after it behind it
SELECT outcome, count(*) FROM job_idem.backfill('ahead', '2026-09-27', '2026-09-29') GROUP BY outcome;
SELECT at AS now FROM at('2026-10-04 02:00:10+00');
CALL job_idem.tick();
SELECT * FROM line WHERE job = 'ahead' ORDER BY run_key;

-- one that is cancelled while it stands in line leaves no gap for those behind it
SELECT count(job_idem.cancel_run(run_id, 'not needed')) FROM job_idem.runs
WHERE job = 'ahead' AND run_key IN ('2026-10-01', '2026-09-27', '2026-09-28');
CALL job_idem.tick();
SELECT count(*) FROM job_idem.claim_items('ahead');
SELECT run_key, state FROM line WHERE job = 'ahead' ORDER BY run_key;
SELECT n_items FROM job_idem.seal_run((SELECT run_id FROM job_idem.runs WHERE job = 'ahead' AND run_key = '2026-10-09'));
CALL job_idem.tick();
CALL job_idem.tick();
SELECT run_key, state FROM line WHERE job = 'ahead' ORDER BY run_key;

-- skip: what comes up during a long run is recorded, with the reason; then the next one runs. A partial run is over here
SELECT at AS now FROM at('2026-10-01 00:00:00+00');
SELECT outcome FROM job_idem.define_job('skips', schedule => '0 * * * *', run_per => 'fire', overlap => 'skip', item_source => 'SELECT ''i''::text AS item_key');
SELECT outcome FROM job_idem.define_job('side by side', 'keyed', schedule => '0 * * * *', run_per => 'fire', overlap => 'allow');
SELECT at AS now FROM at('2026-10-01 01:00:10+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-10-01 02:00:10+00');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-10-01 04:00:10+00');
CALL job_idem.tick();
SELECT job_idem.mark_failed(token, item_key, transient => false) IS NOT NULL AS failed FROM job_idem.claim_items('skips');
CALL job_idem.tick();
SELECT at AS now FROM at('2026-10-01 05:00:10+00');
CALL job_idem.tick();
SELECT * FROM line WHERE job IN ('skips', 'side by side') ORDER BY job, run_key;
SELECT planned.at FROM job_idem.cron_fires('0 * * * *', '2026-10-01 00:00+00', '2026-10-01 05:00:01+00') AS planned (at)
WHERE NOT EXISTS (SELECT FROM job_idem.run r JOIN job_idem.jobs j USING (job_id) WHERE j.job = 'skips' AND scheduled_at = planned.at);
-- a backfill must not lose the dates that it was asked for
SELECT outcome, count(*) FROM job_idem.backfill('skips', '2026-09-30', '2026-09-30') GROUP BY outcome;
SELECT state, count(*), count(DISTINCT reason) AS waits_for FROM line WHERE job = 'skips' AND run_key < '2026-10' GROUP BY state ORDER BY state;
SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job IN (SELECT job FROM mine);
SELECT count(job_idem.pause_job(job, 'the end of this test')) FROM mine;
SELECT count(job_idem.cancel_run(run_id, 'the end of this test', force => true)) > 0 AS cancelled FROM job_idem.runs
WHERE finished_at IS NULL AND job IN (SELECT job FROM mine);
DROP VIEW line;
DROP TABLE balance;
DROP FUNCTION at, told, work;
