-- end_holder: what it refuses, and that it does nothing where nobody holds the claim. The ending itself is shown in
-- test/t/025_end_holder.pl, with several connections (F28, K54). lease_holders tells who holds a claim, of all claims
-- open or closed, and only to those who may see the job.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('end_holder', batch_size => 2);
SELECT run_id FROM job_idem.open_run('end_holder', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d}');
SELECT job_idem.seal_run(:run_id);
SELECT min(token) AS token FROM job_idem.claim_items('end_holder') \gset
-- no claim, nobody at work
SELECT job_idem.end_holder(NULL);
SELECT job_idem.end_holder(0);
SELECT job_idem.end_holder(:token);
SELECT job_idem.lease_holders(NULL);
SELECT job_idem.lease_holders(0);
SELECT job_idem.lease_holders(:token);
-- the caller's own transaction, by hold, by a mark, by a completion; each once, whatever it has done how often
BEGIN;
SELECT job_idem.hold(:token);
SELECT job_idem.lease_holders(:token) = ARRAY[pg_backend_pid()] AS own;
SAVEPOINT refused;
SELECT job_idem.end_holder(:token);
ROLLBACK TO refused;
SAVEPOINT s;
SELECT job_idem.mark_done(:token, 'a');
SELECT job_idem.heartbeat(:token) = job_idem.now() + interval '5 minutes' AS beats;
RELEASE s;
SELECT job_idem.lease_holders(:token) = ARRAY[pg_backend_pid()] AS own;
ROLLBACK;
SELECT job_idem.lease_holders(:token);
BEGIN;
SELECT job_idem.mark_all_done(:token, 2);
SELECT job_idem.lease_holders(:token) = ARRAY[pg_backend_pid()] AS own;
COMMIT;
-- a closed claim can be held as well; a lock of a savepoint that was rolled back is none
BEGIN;
SELECT FROM job_idem.lease WHERE token = :token FOR KEY SHARE;
SELECT job_idem.lease_holders(:token) = ARRAY[pg_backend_pid()] AS own;
COMMIT;
SELECT min(token) AS other FROM job_idem.claim_items('end_holder') \gset
BEGIN;
SAVEPOINT s;
SELECT job_idem.mark_done(:other, 'c');
SELECT job_idem.lease_holders(:other) = ARRAY[pg_backend_pid()] AS own;
ROLLBACK TO s;
SELECT job_idem.lease_holders(:other);
COMMIT;
-- an old snapshot sees who holds it now
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT job_idem.lease_holders(:other);
SELECT job_idem.hold(:other);
SELECT job_idem.lease_holders(:other) = ARRAY[pg_backend_pid()] AS own;
COMMIT;
-- nothing was ended, so nothing is on record
SELECT count(*) FROM job_idem.event WHERE verb = 'end_holder' AND run_id = :run_id;
-- for operators only
CREATE ROLE regress_end_holder;
SELECT job_idem.grant_worker('end_holder', 'regress_end_holder');
SET ROLE regress_end_holder;
SELECT job_idem.end_holder(:other);
SELECT job_idem.lease_holders(:other);
RESET ROLE;
SELECT job_idem.revoke_worker('end_holder', 'regress_end_holder');
DROP ROLE regress_end_holder;
SELECT a.* FROM job_idem.audit(:run_id) a;
