-- mark_done: one item, once, in the transaction of the business write. A repeated one raises JI010, whatever became
-- of the lease meanwhile, a stale or foreign one JI001, and nothing is written (F12, F13); the first result stays
-- (F10); the last item closes the lease. A lease overdue that nobody has taken is the holder's still (C32).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('mark_done', batch_size => 3, takeover_delay => '1 minute');
SELECT run_id FROM job_idem.open_run('mark_done', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d,e,f,g,h,i}');
SELECT job_idem.seal_run(:run_id);
CREATE TEMP TABLE ledger (item_key text PRIMARY KEY, n int);
INSERT INTO ledger SELECT item_key, 0 FROM job_idem.items WHERE run_id = :run_id;
-- the business write and the mark in one statement's transaction: what is refused writes nothing
CREATE FUNCTION pg_temp.work(claim bigint, key text, result jsonb DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	UPDATE ledger SET n = n + 1 WHERE item_key = key;
	SELECT job_idem.mark_done(claim, key, result);
$$;
CREATE TEMP VIEW state AS
SELECT i.item_key, i.state, i.done_at = job_idem.now() AS done_now, i.result, l.n AS written
FROM job_idem.items i JOIN ledger l USING (item_key) WHERE i.job = 'mark_done' ORDER BY item_key;
CREATE TEMP VIEW leases AS
SELECT slice_no, outcome, n_done, n_failed FROM job_idem.leases WHERE job = 'mark_done' ORDER BY token;

SELECT min(token) AS token FROM job_idem.claim_items('mark_done', worker => 'A') \gset
SELECT pg_temp.work(:token, 'b', '{"receipt": 1}');
SELECT pg_temp.work(:token, 'b', '{"receipt": 2}');
SELECT pg_temp.work(:token, 'd');
SELECT pg_temp.work(:token, 'no such key');
SELECT pg_temp.work(:token + 1, 'a');
SELECT pg_temp.work(0, 'a');
SELECT pg_temp.work(-9223372036854775808, 'a');
SELECT pg_temp.work(9223372036854775807, 'a');
SELECT pg_temp.work(NULL, 'a');
SELECT pg_temp.work(:token, NULL);
SELECT pg_temp.work(:token, '');
SELECT pg_temp.work(:token, repeat('x', 100000));
SELECT pg_temp.work(:token, 'a', to_jsonb(repeat('x', 1024 * 1024 + 1)));
TABLE state;
TABLE leases;
-- the last one closes the lease; a repeated mark is JI010 still, one of another slice JI001
SELECT pg_temp.work(:token, 'a'), pg_temp.work(:token, 'c', 'null');
TABLE leases;
SELECT pg_temp.work(:token, 'a');
SELECT pg_temp.work(:token, 'd');
SELECT job_idem.mark_all_done(:token, 3);
SELECT outcome, n_items, n_done, n_left FROM job_idem.claim_status(:token);

-- overdue, and not taken: done. Taken back: JI001 for what was left, JI010 for what was done before
SELECT min(token) AS token FROM job_idem.claim_items('mark_done', worker => 'A') \gset
SET job_idem.clock_offset = 359;
CALL job_idem.tick();
SELECT pg_temp.work(:token, 'd');
SET job_idem.clock_offset = 361;
CALL job_idem.tick();
SELECT pg_temp.work(:token, 'd');
SELECT pg_temp.work(:token, 'e');
SELECT item_key, state FROM job_idem.items WHERE run_id = :run_id AND item_key IN ('d', 'e', 'f') ORDER BY item_key;
-- taken by another, of the same name: the old token is stale, the new one's claim unchanged
SET job_idem.clock_offset = 1000;
SELECT min(token) AS other, count(*) FROM job_idem.claim_items('mark_done', worker => 'A') \gset
SELECT :other > :token AS larger, :'count' AS items;
SELECT pg_temp.work(:token, 'e');
SELECT pg_temp.work(:other, 'd');
SELECT pg_temp.work(:other, 'e');
SELECT pg_temp.work(:other, 'e');
SELECT pg_temp.work(:token, 'e');

-- what was failed, postponed, given back or is dead cannot be done under the old token
SELECT min(token) AS one FROM job_idem.claim_items('mark_done') \gset
SELECT pg_temp.work(:one, 'f');
SELECT min(token) AS third FROM job_idem.claim_items('mark_done') \gset
SELECT state FROM job_idem.mark_failed(:third, 'g', transient => true);
SELECT pg_temp.work(:third, 'g');
SELECT state FROM job_idem.mark_failed(:third, 'h', transient => false);
SELECT pg_temp.work(:third, 'h');
SELECT job_idem.release(:third);
SELECT pg_temp.work(:third, 'i');

-- rolled back, it never happened: also when it closed the lease
SET job_idem.clock_offset = 5000;
SELECT token AS one FROM job_idem.claim_item('mark_done', '2026-11-30', 'g') \gset
BEGIN;
SAVEPOINT s;
SELECT pg_temp.work(:one, 'g');
SELECT outcome FROM job_idem.claim_status(:one);
ROLLBACK TO s;
SELECT outcome, n_left FROM job_idem.claim_status(:one);
SELECT pg_temp.work(:one, 'g', '"second time"');
COMMIT;
SELECT outcome, n_left FROM job_idem.claim_status(:one);

TABLE state;
SELECT max(n) AS at_most_once FROM ledger;
SELECT a.* FROM job_idem.audit(:run_id) a;
