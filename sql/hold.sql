-- hold: locks the claim for the transaction, by its lease and, with a key, by the item too; refused for a claim
-- that is not, or no longer, the caller's, past claimed_at + max_lease, completed, or cancelled with force (F13,
-- F17); PREPARE TRANSACTION is refused after it, and after a claim, whatever subtransaction it was in.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('hold', batch_size => 3, max_lease => '1 hour');
SELECT run_id FROM job_idem.open_run('hold', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d,e,f,g,h,i}');
SELECT job_idem.seal_run(:run_id);
SELECT min(token) AS token FROM job_idem.claim_items('hold') \gset
SELECT min(token) AS other FROM job_idem.claim_items('hold') \gset

-- who may hold, and what
SELECT job_idem.hold(:token);
SELECT job_idem.hold(:token, 'a');
SELECT job_idem.hold(:token, 'd');
SELECT job_idem.hold(:token, 'no such key');
SELECT job_idem.hold(:token, '');
SELECT job_idem.hold(0);
SELECT job_idem.hold(NULL);
SELECT job_idem.mark_done(:token, 'a');
SELECT job_idem.hold(:token, 'a');
SELECT job_idem.hold(:token, 'b');
SELECT state FROM job_idem.mark_failed(:token, 'b', transient => true);
SELECT job_idem.hold(:token, 'b');
-- it takes row locks, of the lease and of the item, and writes nothing
CREATE TEMP VIEW locks AS
SELECT l.xmax::text <> '0' AS lease_locked, i.item_key,
	i.xmax::text = pg_current_xact_id_if_assigned()::xid::text AS item_locked
FROM job_idem.lease l JOIN job_idem.item i ON i.run_id = l.run_id AND i.item_no BETWEEN 4 AND 6
WHERE l.run_id = (SELECT run_id FROM job_idem.runs WHERE job = 'hold') AND l.slice_no = 1 ORDER BY i.item_no;
BEGIN;
SELECT job_idem.hold(:other);
TABLE locks;
SELECT job_idem.hold(:other, 'e');
TABLE locks;
SELECT job_idem.hold(:other), job_idem.hold(:other, 'e'), job_idem.hold(:other, 'f');
COMMIT;
SELECT outcome, n_items, n_left FROM job_idem.claim_status(:other);

-- overdue: still held while nobody took it; past claimed_at + max_lease no longer, though marks may complete it
SET job_idem.clock_offset = 3600;
SELECT job_idem.hold(:other);
SELECT job_idem.hold(:other, 'e');
SET job_idem.clock_offset = 3600.000001;
SELECT job_idem.hold(:other);
SELECT job_idem.hold(:other, 'e');
SELECT job_idem.mark_done(:other, 'e');
SELECT job_idem.mark_all_done(:other, 2, '{e}');
SELECT job_idem.hold(:other);
SELECT job_idem.hold(:other, 'd');
-- expired, released: JI001
CALL job_idem.tick();
SELECT job_idem.hold(:token);
SELECT job_idem.hold(:token, 'c');
SELECT job_idem.hold(:token, 'a');

-- PREPARE TRANSACTION: refused after a hold or a claim, and the transaction is gone
BEGIN;
SELECT min(token) AS token FROM job_idem.claim_items('hold') \gset
PREPARE TRANSACTION 'hold 1';
SELECT outcome FROM job_idem.claim_status(:token);
SELECT min(token) AS token, count(*) FROM job_idem.claim_items('hold') \gset
BEGIN;
SELECT job_idem.hold(:token);
PREPARE TRANSACTION 'hold 2';
BEGIN;
SAVEPOINT s;
SELECT job_idem.hold(:token);
RELEASE s;
PREPARE TRANSACTION 'hold 3';
SELECT outcome, n_left = :count AS unchanged FROM job_idem.claim_status(:token);
SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'hold%';

-- after a cancel it may be held still, after a forced one not
SELECT job_idem.cancel_run(:run_id, 'x');
SELECT job_idem.hold(:token);
SELECT job_idem.cancel_run(:run_id, 'x', force => true);
SELECT job_idem.hold(:token);
SELECT a.* FROM job_idem.audit(:run_id) a;
