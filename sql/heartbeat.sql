-- heartbeat: prolongs the lease from now on, revives an overdue one that nobody took, is refused after that (F18),
-- and never reaches past claimed_at + max_lease; lease, takeover_delay and max_lease are three times (F17): overdue
-- within the delay is not taken, at max_lease it is in spite of heartbeats; a lease taken late in a long
-- transaction runs from then; no function takes a deadline from the caller.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome
FROM job_idem.define_job('heartbeat', batch_size => 2, lease => '5 minutes', takeover_delay => '1 minute',
	max_lease => '1 hour');
SELECT run_id FROM job_idem.open_run('heartbeat', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d,e,f,g,h}');
SELECT job_idem.seal_run(:run_id);
CREATE FUNCTION pg_temp.beat(claim bigint, lease interval DEFAULT NULL) RETURNS interval LANGUAGE sql AS $$
	SELECT job_idem.heartbeat(claim, lease) - '2026-11-30 12:00:00+00'
$$;
CREATE FUNCTION pg_temp.tick_at(minutes float8) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('job_idem.clock_offset', (minutes * 60)::text, false)
$$;
CREATE TEMP VIEW leases AS
SELECT l.slice_no, l.outcome, l.deadline - l.claimed_at AS deadline, l.hard_deadline - l.claimed_at AS hard, l.overdue
FROM job_idem.leases l WHERE l.job = 'heartbeat' ORDER BY l.token;

-- the deadline is there from the start; moved to now + lease, not added up; by the caller's lease, shorter or longer
SELECT min(token) AS token FROM job_idem.claim_items('heartbeat', worker => 'same name') \gset
SELECT min(token) AS other FROM job_idem.claim_items('heartbeat', worker => 'same name') \gset
TABLE leases;
SELECT pg_temp.beat(:token), pg_temp.beat(:token);
\o /dev/null
SELECT pg_temp.tick_at(3);
\o
SELECT pg_temp.beat(:token), pg_temp.beat(:token, '10 s'), pg_temp.beat(:token, '20 minutes'), pg_temp.beat(:token);
-- a namesake's heartbeat moves its own deadline only
TABLE leases;
SELECT pg_temp.beat(:token, '0'), 'not reached';
SELECT pg_temp.beat(:token, '-1 s'), 'not reached';
SELECT pg_temp.beat(NULL);
SELECT pg_temp.beat(0);
SELECT pg_temp.beat(:token + 1000);
TABLE leases;

-- overdue within takeover_delay: shown as the holder's, not taken by tick or claims; the heartbeat revives it
\o /dev/null
SELECT job_idem.mark_all_done(:other, 2);
SELECT pg_temp.tick_at(8.99);
\o
CALL job_idem.tick();
SELECT count(*) FROM job_idem.claim_items('heartbeat', run_key => 'none');
SELECT pg_temp.beat(:token);
TABLE leases;
-- past the delay, and nobody has come by: revived still
\o /dev/null
SELECT pg_temp.tick_at(20);
\o
TABLE leases;
SELECT pg_temp.beat(:token);
CALL job_idem.tick();
TABLE leases;
-- past the delay and an expiry pass: JI001 for ever
\o /dev/null
SELECT pg_temp.tick_at(26);
\o
CALL job_idem.tick();
TABLE leases;
SELECT pg_temp.beat(:token);
SELECT outcome FROM job_idem.claim_status(:token);
-- of a completed claim: no error, nothing changed
SELECT pg_temp.beat(:other);
TABLE leases;

-- max_lease: the deadline stops there, whatever is asked; past it the lease is taken in spite of heartbeats
\o /dev/null
SELECT pg_temp.tick_at(100);
\o
SELECT min(token) AS token FROM job_idem.claim_items('heartbeat') \gset
SELECT pg_temp.beat(:token, '2 hours'), pg_temp.beat(:token, '178000000 years');
\o /dev/null
SELECT pg_temp.tick_at(159);
\o
SELECT pg_temp.beat(:token), pg_temp.beat(:token, '1 s');
\o /dev/null
SELECT pg_temp.tick_at(160.5);
\o
SELECT pg_temp.beat(:token), pg_temp.beat(:token, '1 hour');
CALL job_idem.tick();
SELECT outcome FROM job_idem.claim_status(:token);
\o /dev/null
SELECT pg_temp.tick_at(161);
\o
SELECT pg_temp.beat(:token);
CALL job_idem.tick();
SELECT outcome FROM job_idem.claim_status(:token);
SELECT pg_temp.beat(:token);

-- nothing left of an open lease, as two threads may leave it: the heartbeat completes it, quietly
\o /dev/null
SELECT pg_temp.tick_at(1000);
\o
SELECT min(token) AS token FROM job_idem.claim_items('heartbeat') \gset
SELECT string_agg(item_key, ' ') FROM job_idem.items WHERE token = :token;
UPDATE job_idem.item SET state = 'done', done_at = job_idem.now(), due_at = NULL WHERE token = :token;
SELECT outcome, n_done, n_left FROM job_idem.claim_status(:token);
SELECT pg_temp.beat(:token) IS NOT NULL AS quiet;
SELECT outcome, n_done, n_left FROM job_idem.claim_status(:token);

-- the clock is the server's at the call, not the transaction's: a lease taken late in a long transaction runs from
-- then
RESET job_idem.clock_freeze;
RESET job_idem.clock_offset;
BEGIN;
SELECT now() IS NOT NULL AS started;
SET LOCAL job_idem.clock_offset = 7200;
SELECT min(token) AS token, min(deadline) >= now() + interval '2 hours 5 minutes' AS from_then
FROM job_idem.claim_items('heartbeat') \gset
SELECT :'from_then' AS from_then;
SELECT claimed_at >= now() + interval '2 hours' AS claimed_then, deadline - claimed_at AS lease
FROM job_idem.leases WHERE token = :token;
COMMIT;
-- no verb takes an instant from the caller, and only claims and heartbeats take a lease, as a span
SELECT p.proname, a.name, format_type(a.type, NULL)
FROM pg_catalog.pg_proc p,
	LATERAL (SELECT unnest(p.proargnames) AS name, unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) AS type,
		unnest(coalesce(p.proargmodes, array_fill('i'::"char", ARRAY[p.pronargs]))) AS mode) a
WHERE p.pronamespace = 'job_idem'::regnamespace AND p.proname NOT LIKE 'cron\_%' AND a.mode IN ('i', 'b', 'v')
	AND EXISTS (SELECT FROM job_idem.privilege v WHERE v.object ~ ('job_idem\.' || p.proname || '\('))
	AND (a.type IN ('timestamptz'::regtype, 'timestamp'::regtype, 'time'::regtype)
		OR a.name ~ 'lease|deadline' AND a.type = 'interval'::regtype)
ORDER BY 1, 2;
-- a critical job's defaults are the more patient ones
SELECT outcome FROM job_idem.define_job('heartbeat critical', 'keyed', 'critical');
SELECT outcome FROM job_idem.define_job('heartbeat standard', 'keyed');
SELECT tier, lease, takeover_delay, max_lease
FROM job_idem.jobs WHERE job IN ('heartbeat critical', 'heartbeat standard') ORDER BY tier;
-- after a forced cancel: JI004
SELECT job_idem.cancel_run(:run_id, 'x');
SELECT pg_temp.beat(:token) IS NOT NULL AS goes_on;
SELECT job_idem.cancel_run(:run_id, 'x', force => true);
SELECT pg_temp.beat(:token);
SELECT a.* FROM job_idem.audit(:run_id) a;
