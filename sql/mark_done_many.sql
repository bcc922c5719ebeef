-- mark_done_many: a set is done whole or not at all, and once (F12): one foreign key among 500: JI001 and nothing
-- changed; the same 500 again: JI010; repeated keys count once; results go with their keys (R12 for bad input).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('mark_done_many', batch_size => 500);
SELECT run_id FROM job_idem.open_run('mark_done_many', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, 1500) i));
SELECT job_idem.seal_run(:run_id);
CREATE TEMP VIEW rows AS
SELECT i.item_no, i.ctid AS place, i.state, i.token, i.result FROM job_idem.item i JOIN job_idem.runs r USING (run_id)
WHERE r.job = 'mark_done_many';
CREATE FUNCTION pg_temp.keys(first int, last int) RETURNS text[] LANGUAGE sql AS $$
	SELECT array_agg('m' || i ORDER BY i) FROM generate_series(first, last) i
$$;
CREATE TEMP VIEW counts AS SELECT state, count(*)
FROM job_idem.items WHERE job = 'mark_done_many' GROUP BY state ORDER BY state;

SELECT min(token) AS token FROM job_idem.claim_items('mark_done_many') \gset
SELECT min(token) AS other FROM job_idem.claim_items('mark_done_many') \gset
CREATE TEMP TABLE before AS TABLE rows;
-- own and foreign: of another claim, of none, unknown, empty
SELECT job_idem.mark_done_many(:token, pg_temp.keys(1, 501));
SELECT job_idem.mark_done_many(:token, pg_temp.keys(1, 500) || 'm1500'::text);
SELECT job_idem.mark_done_many(:token, pg_temp.keys(1, 500) || 'no such key'::text);
SELECT job_idem.mark_done_many(:token, pg_temp.keys(1, 500) || ''::text);
-- bad input
SELECT job_idem.mark_done_many(:token, '{m1,NULL}');
SELECT job_idem.mark_done_many(:token, NULL);
SELECT job_idem.mark_done_many(NULL, '{m1}');
SELECT job_idem.mark_done_many(0, '{m1}');
SELECT job_idem.mark_done_many(:token, '{m1,m2}', ARRAY['1']::jsonb[]);
SELECT job_idem.mark_done_many(:token, '{m1}', '{}');
SELECT job_idem.mark_done_many(:token, '{m1,m2}', ARRAY['1', to_jsonb(repeat('x', 1024 * 1024 + 1))]);
(TABLE rows EXCEPT TABLE before) UNION ALL (TABLE before EXCEPT TABLE rows);
SELECT job_idem.mark_done_many(:token, '{}');

-- the 500, then again; the lease is completed by the call
SELECT job_idem.mark_done_many(:token, pg_temp.keys(1, 500));
TABLE counts;
SELECT outcome, n_done, n_failed FROM job_idem.leases WHERE token = :token;
CREATE TEMP TABLE after AS TABLE rows;
SELECT job_idem.mark_done_many(:token, pg_temp.keys(1, 500));
SELECT job_idem.mark_done_many(:token, '{m7,m7}');
SELECT job_idem.mark_done_many(:token, pg_temp.keys(1, 501));
SELECT job_idem.mark_done(:token, 'm1');
SELECT job_idem.mark_all_done(:token, 500);
(TABLE rows EXCEPT TABLE after) UNION ALL (TABLE after EXCEPT TABLE rows);

-- results go with their keys; a key named twice counts once; part of it done before: nothing of the call happens
SELECT job_idem.mark_done_many(:other, '{m503,m501,m502,m503}', ARRAY['3', '1', NULL, '3']::jsonb[]);
SELECT item_key, state, result
FROM job_idem.items WHERE run_id = :run_id AND item_no BETWEEN 501 AND 504 ORDER BY item_no;
SELECT job_idem.mark_done_many(:other, '{m501,m504}');
SELECT job_idem.mark_done_many(:other, '{m504,m1}');
SELECT job_idem.mark_done_many(:other, '{m501,m502,m503}');
SELECT state FROM job_idem.items WHERE run_id = :run_id AND item_key = 'm504';
-- set forms and single ones together; rolled back they never happened
BEGIN;
SELECT job_idem.mark_done(:other, 'm504');
SELECT job_idem.mark_done_many(:other, pg_temp.keys(505, 1000));
SELECT outcome FROM job_idem.claim_status(:other);
ROLLBACK;
SELECT outcome, n_done, n_left FROM job_idem.claim_status(:other);
SELECT job_idem.mark_all_done(:other, 497, '{m501,m502,m503}');

-- a pick lease
SELECT min(token) AS token FROM job_idem.claim_items('mark_done_many') \gset
SELECT job_idem.release(:token);
SELECT min(token) AS pick FROM job_idem.claim_items('mark_done_many') \gset
SELECT job_idem.mark_done_many(:pick, pg_temp.keys(1001, 1100) || 'm1'::text);
SELECT job_idem.mark_done_many(:pick, pg_temp.keys(1001, 1499));
SELECT job_idem.mark_done_many(:pick, '{m1500,m1001}');
SELECT job_idem.mark_done_many(:token, '{m1500}');
SELECT job_idem.mark_done_many(:pick, '{m1500}');
SELECT job_idem.mark_done_many(:pick, pg_temp.keys(1001, 1500));
SELECT outcome, lease_kind, n_done, n_failed FROM job_idem.leases WHERE token = :pick;
CALL job_idem.tick();
SELECT state, n_items, n_done FROM job_idem.runs WHERE run_id = :run_id;
TABLE counts;
SELECT a.* FROM job_idem.audit(:run_id) a;
