-- stuck: what does not get on by itself, one row each with the statement that helps, and nothing else (R14's last part;
-- the rows of transactions of others are shown in test/t/025_end_holder.pl and 020_frozen_worker.pl).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SET TIME ZONE 'UTC';
SET datestyle = ISO;
SELECT outcome FROM job_idem.define_job('stuck', batch_size => 2, lease => '5 minutes', takeover_delay => '1 minute',
	max_lease => '1 hour');
SELECT outcome FROM job_idem.define_job('stuck keyed', 'keyed', lease => '5 minutes', close_after => '1000 years');
SELECT run_id FROM job_idem.open_run('stuck', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d,e,f}');
-- ids are not the same in every run
CREATE TEMP VIEW stuck AS
SELECT job, run_key, what, since, CASE pid WHEN ARRAY[pg_backend_pid()] THEN 'own' ELSE pid::text END AS pid, detail,
	replace(replace(cure, coalesce(token::text, 'TOKEN'), 'TOKEN'), '(' || run_id || ')', '(RUN)') AS cure, token IS NOT NULL AS claim, item_key
FROM job_idem.stuck WHERE job LIKE 'stuck%' ORDER BY what, job, token;
-- a run that is loaded, that has work, that is worked: not stuck
TABLE stuck;
SELECT job_idem.seal_run(:run_id);
TABLE stuck;
SELECT min(token) AS one FROM job_idem.claim_items('stuck') \gset
SELECT min(token) AS two FROM job_idem.claim_items('stuck') \gset
SELECT token AS key FROM job_idem.claim_item('stuck keyed', '2026-11-30', 'k') \gset
SELECT FROM job_idem.heartbeat(:two, '1 hour');
TABLE stuck;
-- past the deadline, but within takeover_delay; then overdue
SET job_idem.clock_offset = 301;
TABLE stuck;
SET job_idem.clock_offset = 361;
TABLE stuck;
-- held, before the hard deadline and past it
BEGIN;
SELECT job_idem.hold(:one);
TABLE stuck;
SET LOCAL job_idem.clock_offset = 3601;
SELECT * FROM stuck WHERE pid = 'own';
COMMIT;
-- the tally has come past open leases
CALL job_idem.tick();
SELECT folded, behind FROM job_idem.tally WHERE run_id = :run_id;
TABLE stuck;
SET job_idem.clock_offset = 3661;
TABLE stuck;
-- what is cured goes
CALL job_idem.tick();
TABLE stuck;

-- paused
SELECT job_idem.pause_run(:run_id, 'look into it');
TABLE stuck;
SELECT cure AS call FROM job_idem.stuck WHERE what = 'paused' AND job = 'stuck' \gset
:call;

-- a list that cannot be loaded
SELECT outcome FROM job_idem.define_job('stuck''s source', item_source => 'SELECT 1/0 || ''''');
SELECT FROM job_idem.open_run('stuck''s source', '2026-11-30', run_key => 'it''s');
TABLE stuck;
SELECT cure AS call FROM job_idem.stuck WHERE what = 'loading' AND job = 'stuck''s source' \gset
SELECT outcome FROM job_idem.define_job('stuck''s source', item_source => 'SELECT ''x''');
:call \g /dev/null
TABLE stuck;

-- one item postponed for ten years, 300 due: those are claimed, and the run shows with the one when nothing else is left
SELECT outcome FROM job_idem.define_job('stuck far', batch_size => 301, backoff_base => '15 minutes');
SELECT run_id AS far FROM job_idem.open_run('stuck far', '2026-11-30') \gset
SELECT job_idem.add_items(:far, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, 301) i));
SELECT job_idem.seal_run(:far);
SELECT min(token) AS token FROM job_idem.claim_items('stuck far') \gset
SELECT job_idem.postpone(:token, 'm1', '10 years') IS NOT NULL AS postponed;
SELECT job_idem.release(:token);
TABLE stuck;
SELECT min(token) AS token, count(*) AS n, bool_or(item_key = 'm1') AS far_off FROM job_idem.claim_items('stuck far') \gset
SELECT :n AS n, :'far_off' AS far_off;
TABLE stuck;
SELECT job_idem.mark_all_done(:token, :n);
TABLE stuck;
-- the same before and after the tally has counted
CALL job_idem.tick();
TABLE stuck;
-- within backoff_max, here two hours, it is no finding
SET job_idem.clock_offset = 311036460;
SELECT what FROM stuck WHERE job = 'stuck far';
SET job_idem.clock_offset = 311036461;
SELECT what FROM stuck WHERE job = 'stuck far';
-- a slice that nobody has claimed yet, also one of a claim that was rolled back: not stuck
SET job_idem.clock_offset = 0;
SELECT outcome FROM job_idem.define_job('stuck gap', batch_size => 1);
SELECT run_id AS gap FROM job_idem.open_run('stuck gap', '2026-11-30') \gset
SELECT job_idem.add_items(:gap, '{a,b,c}');
SELECT job_idem.seal_run(:gap);
SELECT token AS first FROM job_idem.claim_items('stuck gap') \gset
SELECT token AS second FROM job_idem.claim_items('stuck gap') \gset
SELECT FROM job_idem.postpone(:first, 'a', '1 day');
SELECT FROM job_idem.postpone(:second, 'b', '2 days');
SELECT * FROM stuck WHERE job = 'stuck gap';
SELECT token AS third FROM job_idem.claim_items('stuck gap') \gset
SELECT job_idem.mark_done(:third, 'c');
SELECT what, detail, item_key FROM stuck WHERE job = 'stuck gap';
-- within an hour neither
SET job_idem.clock_offset = 82799;
SELECT what FROM stuck WHERE job = 'stuck gap';
SET job_idem.clock_offset = 82800;
SELECT what FROM stuck WHERE job = 'stuck gap';
SET job_idem.clock_offset = 0;
-- a claim that was rolled back left a gap
DELETE FROM job_idem.lease WHERE token = :second;
UPDATE job_idem.item SET state = 'pending', due_at = NULL WHERE run_id = :gap AND item_key = 'b';
SELECT * FROM stuck WHERE job = 'stuck gap';
CALL job_idem.tick();
SELECT behind FROM job_idem.tally WHERE run_id = :gap;
SELECT * FROM stuck WHERE job = 'stuck gap';
SELECT item_key FROM job_idem.claim_items('stuck gap');
SELECT * FROM stuck WHERE job = 'stuck gap';

-- readers see their jobs only
CREATE ROLE regress_stuck;
CREATE ROLE regress_stuck_none;
SELECT job_idem.grant_worker('stuck far', 'regress_stuck');
SELECT job_idem.grant_worker('stuck', 'regress_stuck_none');
SET job_idem.clock_offset = 100000;
SELECT DISTINCT job FROM stuck ORDER BY job;
SET ROLE regress_stuck;
SELECT DISTINCT job FROM job_idem.stuck;
SET ROLE regress_stuck_none;
SELECT job, what, pid FROM job_idem.stuck;
RESET ROLE;
SELECT job_idem.revoke_worker('stuck far', 'regress_stuck'), job_idem.revoke_worker('stuck', 'regress_stuck_none');
DROP ROLE regress_stuck, regress_stuck_none;
SELECT r.job, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'stuck%' ORDER BY 1;

-- a run that has been blocked for an hour, with what it waits for and the cure
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('stuck up');
SELECT outcome FROM job_idem.define_job('stuck down');
SELECT job_idem.add_dependency('stuck down', 'stuck up');
SELECT state FROM job_idem.open_run('stuck down', '2026-11-30');
SET job_idem.clock_freeze = '2026-11-30 12:59:59+00';
SELECT what FROM job_idem.stuck WHERE job = 'stuck down';
SET job_idem.clock_freeze = '2026-11-30 13:00:01+00';
SELECT what, since = job_idem.now() - interval '1 hour 1 second' AS since, detail, cure = format('SELECT job_idem.unblock_run(%s, %L)', run_id,
	'it need not wait') AS cure FROM job_idem.stuck WHERE job = 'stuck down';
SELECT cure AS call FROM job_idem.stuck WHERE job = 'stuck down' \gset
:call \g /dev/null
SELECT what FROM job_idem.stuck WHERE job = 'stuck down';
SELECT state FROM job_idem.runs WHERE job = 'stuck down';
