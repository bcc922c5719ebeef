-- expire_lease: an operator ends a claim before its time, on record; what is unfinished comes back as after an
-- expiry: counted as lost, with back-off, and as a try only if the claim held that one item. Closed claims stay as
-- they are.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('expire_lease', batch_size => 3, backoff_base => '1 minute', max_attempts => 2,
	takeover_delay => '10 minutes');
SELECT run_id FROM job_idem.open_run('expire_lease', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d,e,f}');
SELECT job_idem.seal_run(:run_id);
SELECT min(token) AS token FROM job_idem.claim_items('expire_lease') \gset
SELECT min(token) AS other FROM job_idem.claim_items('expire_lease') \gset
CREATE TEMP VIEW state AS
SELECT item_key, state, attempts, lost, due_at - job_idem.now() BETWEEN '30 s' AND '1 minute' AS backed_off
FROM job_idem.items WHERE job = 'expire_lease' ORDER BY item_no;
SELECT job_idem.mark_done(:token, 'a');
-- no reason, no claim: refused, nothing changed
SELECT job_idem.expire_lease(:token, NULL);
SELECT job_idem.expire_lease(:token, '');
SELECT job_idem.expire_lease(NULL, 'x');
SELECT job_idem.expire_lease(0, 'x');
SELECT outcome, n_left FROM job_idem.claim_status(:token);
-- long before its deadline; its holder is told so
SELECT job_idem.expire_lease(:token, 'worker is gone');
TABLE state;
SELECT outcome, n_done, n_failed FROM job_idem.leases WHERE token = :token;
SELECT job_idem.mark_done(:token, 'b');
SELECT job_idem.mark_done(:token, 'a');
SELECT job_idem.heartbeat(:token);
SELECT job_idem.mark_all_done(:token, 2, '{a}');
SELECT detail - 'token' AS detail, (detail->>'token')::bigint = :token AS own_token, by = current_user AS by_me
FROM job_idem.event WHERE run_id = :run_id AND verb = 'expire_lease';
SELECT item_key, kind, attempt, retry_at IS NOT NULL AS retried
FROM job_idem.failure WHERE run_id = :run_id ORDER BY item_key;
-- closed claims stay as they are, and no event tells otherwise
SELECT job_idem.expire_lease(:token, 'again');
SELECT job_idem.mark_all_done(:other, 3);
SELECT job_idem.expire_lease(:other, 'too late');
SELECT outcome, n_done FROM job_idem.leases WHERE token = :other;
SELECT count(*) FROM job_idem.event WHERE run_id = :run_id AND verb = 'expire_lease';
-- a claim of one item: the loss is a try, and the second one is the last
SET job_idem.clock_offset = 100;
SELECT token AS one FROM job_idem.claim_item('expire_lease', '2026-11-30', 'b') \gset
SELECT job_idem.expire_lease(:one, 'x');
SET job_idem.clock_offset = 1000;
SELECT token AS one, attempt FROM job_idem.claim_item('expire_lease', '2026-11-30', 'b') \gset
SELECT :attempt AS attempt;
SELECT job_idem.expire_lease(:one, 'x');
TABLE state;
SELECT item_key, reason, kind, attempts FROM job_idem.dead_letters WHERE run_id = :run_id;
-- nothing left of it: completed, not expired
SELECT token AS one FROM job_idem.claim_item('expire_lease', '2026-11-30', 'c') \gset
UPDATE job_idem.item SET state = 'done', done_at = job_idem.now() WHERE token = :one;
SELECT job_idem.expire_lease(:one, 'x');
SELECT outcome, n_done FROM job_idem.claim_status(:one);
CALL job_idem.tick();
SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = :run_id;
-- for operators only
CREATE ROLE regress_expire_lease;
SELECT job_idem.grant_worker('expire_lease', 'regress_expire_lease');
SET ROLE regress_expire_lease;
SELECT job_idem.expire_lease(:one, 'x');
RESET ROLE;
SELECT job_idem.revoke_worker('expire_lease', 'regress_expire_lease');
DROP ROLE regress_expire_lease;
SELECT a.* FROM job_idem.audit(:run_id) a;
