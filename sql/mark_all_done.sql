-- mark_all_done: completes a whole claim once, all or nothing; the numbers given must be those of what is left
-- (F12). No item row of a slice is written: the completed lease says that they are done. Items of a pick lease are
-- updated by row.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('mark_all_done', batch_size => 500);
SELECT run_id FROM job_idem.open_run('mark_all_done', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, 2000) i));
SELECT job_idem.seal_run(:run_id);
CREATE TEMP VIEW rows AS
SELECT i.item_no, i.ctid AS place, i.xmin AS writer, i.xmax AS locker, i.state, i.token, i.done_at
FROM job_idem.item i JOIN job_idem.runs r USING (run_id) WHERE r.job = 'mark_all_done' AND r.run_key = '2026-11-30';
CREATE TEMP TABLE before AS TABLE rows;
CREATE TEMP VIEW leases AS
SELECT slice_no, outcome, n_items, n_done, n_failed, closed_at - claimed_at AS took FROM job_idem.leases
WHERE job = 'mark_all_done' ORDER BY slice_no, token;

-- a whole slice: any other number than that of the claim changes nothing
SELECT min(token) AS token, count(*) FROM job_idem.claim_items('mark_all_done') \gset
SELECT job_idem.mark_all_done(:token, 499);
SELECT job_idem.mark_all_done(:token, 501);
SELECT job_idem.mark_all_done(:token, 1);
SELECT job_idem.mark_all_done(:token, 0);
SELECT job_idem.mark_all_done(:token, -500);
SELECT job_idem.mark_all_done(:token, 9223372036854775807);
SELECT job_idem.mark_all_done(:token, NULL);
SELECT job_idem.mark_all_done(NULL, 500);
-- nor do exceptions that are not reported otherwise, not of the claim, or twice the same
SELECT job_idem.mark_all_done(:token, 499, '{m1}');
SELECT job_idem.mark_all_done(:token, 500, '{m501}');
SELECT job_idem.mark_all_done(:token, 499, '{m501}');
SELECT job_idem.mark_all_done(:token, 500, '{no such key}');
SELECT job_idem.mark_all_done(:token, 500, '{NULL}');
SELECT job_idem.mark_all_done(:token, 0, (SELECT array_agg('m' || i) FROM generate_series(1, 500) i));
SELECT job_idem.mark_all_done(0, 500);
SELECT job_idem.mark_all_done(-1, 500);
SELECT outcome, n_items, n_done, n_left FROM job_idem.claim_status(:token);
TABLE leases;
-- the right one: done, no item row written, and once only
SET job_idem.clock_offset = 60;
SELECT job_idem.mark_all_done(:token, 500);
TABLE leases;
SELECT job_idem.mark_all_done(:token, 500);
SELECT job_idem.mark_all_done(:token, 0);
SELECT job_idem.mark_all_done(:token, 0, (SELECT array_agg('m' || i) FROM generate_series(1, 500) i));
(TABLE rows EXCEPT TABLE before) UNION ALL (TABLE before EXCEPT TABLE rows);
SELECT state, count(*), min(done_at) = job_idem.now() AS now, count(done_at)
FROM job_idem.items WHERE run_id = :run_id GROUP BY state ORDER BY state;

-- one of it done by itself before: that one is to be excepted; else the call would be a second effect (JI010)
SELECT min(token) AS token FROM job_idem.claim_items('mark_all_done') \gset
SELECT job_idem.mark_done(:token, 'm501', '"own result"');
SELECT job_idem.mark_all_done(:token, 500);
SELECT job_idem.mark_all_done(:token, 499);
SELECT job_idem.mark_all_done(:token, 499, '{m502}');
SELECT job_idem.mark_all_done(:token, 499, '{m501,m502}');
SELECT job_idem.mark_all_done(:token, 498, '{m501,m502}');
SELECT job_idem.mark_all_done(:token, 499, '{m501,m501}');
SELECT job_idem.mark_all_done(:token, 499, '{m501}');
SELECT item_key, result FROM job_idem.items WHERE run_id = :run_id AND result IS NOT NULL;

-- one failed, one postponed, one dead: not done under the claim, so their count is a stale idea of it (JI001)
SELECT min(token) AS token FROM job_idem.claim_items('mark_all_done') \gset
SELECT state FROM job_idem.mark_failed(:token, 'm1001', transient => true);
SELECT state FROM job_idem.mark_failed(:token, 'm1002', transient => false);
SELECT job_idem.postpone(:token, 'm1003', '1 hour') = job_idem.now() + interval '1 hour' AS postponed;
SELECT job_idem.mark_all_done(:token, 500);
SELECT job_idem.mark_all_done(:token, 497);
SELECT job_idem.mark_all_done(:token, 498, '{m1001,m1002}');
SELECT job_idem.mark_all_done(:token, 497, '{m1001,m1002}');
SELECT job_idem.mark_all_done(:token, 497, '{m1001,m1002,m1004}');
SELECT job_idem.mark_all_done(:token, 497, '{m1001,m1002,m1003}');
SELECT item_key, state FROM job_idem.items WHERE run_id = :run_id AND item_no BETWEEN 1001 AND 1004 ORDER BY item_key;

-- in a transaction that rolls back it never happened
SELECT min(token) AS token FROM job_idem.claim_items('mark_all_done', run_key => '2026-11-30') \gset
BEGIN;
SELECT job_idem.mark_all_done(:token, 500);
SELECT job_idem.mark_all_done(:token, 500);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT job_idem.mark_all_done(:token, 500);
ROLLBACK TO s;
SELECT outcome, n_left FROM job_idem.claim_status(:token);
SELECT job_idem.mark_all_done(:token, 500);
COMMIT;
TABLE leases;

-- the lease's end, however it came: released or expired is JI001, for any number
SELECT outcome FROM job_idem.define_job('mark_all_done', batch_size => 3);
SELECT run_id AS second FROM job_idem.open_run('mark_all_done', '2026-12-01') \gset
SELECT job_idem.add_items(:second, '{a,b,c,d,e,f}');
SELECT job_idem.seal_run(:second);
SELECT min(token) AS token FROM job_idem.claim_items('mark_all_done', run_key => '2026-12-01') \gset
SELECT job_idem.release(:token);
SELECT job_idem.mark_all_done(:token, 3);
SELECT job_idem.mark_all_done(:token, 0, '{a,b,c}');

-- a pick lease: its rows are updated, otherwise the same
SELECT min(token) AS token, string_agg(item_key, ' ' ORDER BY item_key) AS items
FROM job_idem.claim_items('mark_all_done', run_key => '2026-12-01') \gset
SELECT :'items' AS items;
SELECT job_idem.mark_all_done(:token, 2);
SELECT job_idem.mark_all_done(:token, 2, '{a}');
SELECT job_idem.mark_done(:token, 'a');
SELECT job_idem.mark_all_done(:token, 3);
SELECT job_idem.mark_all_done(:token, 2, '{b}');
SELECT job_idem.mark_all_done(:token, 2, '{a}');
SELECT job_idem.mark_all_done(:token, 2, '{a}');
SELECT item_key, state, token = :token AS own_token, done_at = job_idem.now() AS now
FROM job_idem.item WHERE run_id = :second AND item_no <= 3 ORDER BY item_no;
-- a single item claimed by its key
SELECT job_idem.add_items(:second, '{late}');
SELECT token FROM job_idem.claim_item('mark_all_done', '2026-12-01', 'late') \gset
SELECT job_idem.mark_all_done(:token, 2);
SELECT job_idem.mark_all_done(:token, 1);
SELECT job_idem.mark_all_done(:token, 1);

-- with the business write in the transaction: whatever is refused writes nothing
CREATE TEMP TABLE ledger (item_key text, token bigint);
CREATE FUNCTION pg_temp.work(token bigint, n bigint) RETURNS bigint LANGUAGE sql AS $$
	INSERT INTO ledger SELECT 'x', token FROM generate_series(1, n);
	SELECT job_idem.mark_all_done(token, n);
$$;
SELECT min(token) AS token FROM job_idem.claim_items('mark_all_done', run_key => '2026-12-01') \gset
SELECT pg_temp.work(:token, 2);
SELECT pg_temp.work(:token, 3);
SELECT pg_temp.work(:token, 3);
SELECT count(*) FROM ledger;

-- after the end of the run, and after a cancel without force, what is held may be completed; with force not
CALL job_idem.tick();
SELECT run_key, state, n_done FROM job_idem.runs WHERE job = 'mark_all_done' ORDER BY run_key;
SELECT run_id AS third FROM job_idem.open_run('mark_all_done', '2026-12-02') \gset
SELECT job_idem.add_items(:third, '{a,b,c,d,e,f}');
SELECT job_idem.seal_run(:third);
SELECT min(token) AS token FROM job_idem.claim_items('mark_all_done', run_key => '2026-12-02') \gset
SELECT min(token) AS other FROM job_idem.claim_items('mark_all_done', run_key => '2026-12-02') \gset
SELECT job_idem.cancel_run(:third, 'not wanted');
SELECT job_idem.mark_all_done(:token, 3);
SELECT job_idem.cancel_run(:third, 'not wanted at all', force => true);
SELECT job_idem.mark_all_done(:other, 3);
SELECT job_idem.mark_all_done(:token, 3);

SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job = 'mark_all_done';
