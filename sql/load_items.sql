-- load_items: the items that a query returns, run as the caller, with the caller's rights and search_path, never
-- with the extension's (F7, P3); otherwise as add_items: a bad row or a failing query leaves nothing of the call
-- (R12, F2).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('load_items', batch_size => 4);
SELECT run_id FROM job_idem.open_run('load_items', '2026-11-30') \gset
CREATE TEMP VIEW manifest AS
SELECT item_no, item_key, state, payload FROM job_idem.items WHERE job = 'load_items' AND run_key = '2026-11-30';

-- numbered in the query's order; with and without payloads; varchar keys too
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'm' || i FROM generate_series(5, 1, -1) i$$);
SELECT * FROM job_idem.load_items(:run_id,
	$$SELECT ('m' || i)::varchar(10), jsonb_build_object('i', i) FROM generate_series(6, 8) i$$);
SELECT * FROM job_idem.load_items(:run_id, $$VALUES ('m8', '{"i": 8}'::jsonb), ('m9', NULL), ('m9', NULL)$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'x' WHERE false$$);
TABLE manifest ORDER BY item_no;

-- more than one chunk, with keys known from before and from the chunk before: no holes
SELECT * FROM job_idem.load_items(:run_id,
	$$SELECT 'm' || i FROM generate_series(1, 10500) i UNION ALL SELECT 'm10' UNION ALL SELECT 'end'$$);
SELECT count(*), max(item_no), count(DISTINCT item_key) AS keys, max(item_key) FILTER (WHERE item_no = 10501) AS last
FROM manifest;

-- what is refused, and leaves nothing: rows, columns, queries
CREATE TEMP TABLE before AS SELECT count(*) AS n, max(item_no) FROM manifest;
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new' UNION ALL SELECT NULL$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new' UNION ALL SELECT ''$$);
SELECT * FROM job_idem.load_items(:run_id,
	$$SELECT 'new' || i FROM generate_series(1, 10001) i UNION ALL SELECT repeat('k', 513)$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new', '1'::jsonb UNION ALL SELECT 'm8', '{"i": 9}'$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new', to_jsonb(repeat('x', 1024 * 1024 + 1))$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 1$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new', 'payload'$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new', '1'::jsonb, 3$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new' || 1 / (2 - i) FROM generate_series(1, 2) i$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELEC 'new'$$);
SELECT * FROM job_idem.load_items(:run_id, $$$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new'; SELECT 'new2'$$);
SELECT * FROM job_idem.load_items(:run_id, $$CREATE TABLE load_items_made (key text)$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT key FROM load_items_made$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT $1::text$$);
SELECT * FROM job_idem.load_items(:run_id, NULL);
SELECT * FROM job_idem.load_items(NULL, $$SELECT 'new'$$);
SELECT * FROM job_idem.load_items(0, $$SELECT 'new'$$);
SELECT n, max FROM before EXCEPT SELECT count(*), max(item_no) FROM manifest;

-- the caller's rights: a worker without SELECT on the table gets 42501, and what the extension's owner may read is
-- out of the worker's reach; the caller's search_path finds the table
CREATE SCHEMA load_items_source;
CREATE TABLE load_items_source.merchant (key text);
INSERT INTO load_items_source.merchant VALUES ('w1'), ('w2');
CREATE ROLE regress_load_items;
GRANT USAGE ON SCHEMA load_items_source TO regress_load_items;
SELECT job_idem.grant_worker('load_items', 'regress_load_items');
SET ROLE regress_load_items;
SET search_path = load_items_source;
SELECT * FROM job_idem.load_items(:run_id, $$SELECT key FROM merchant$$);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT item_key FROM job_idem.item$$);
SELECT * FROM job_idem.load_items(:run_id,
	$$SELECT current_user || ' ' || session_user || ' ' || current_setting('search_path')$$);
RESET ROLE;
GRANT SELECT ON load_items_source.merchant TO regress_load_items;
SET ROLE regress_load_items;
SELECT * FROM job_idem.load_items(:run_id, $$SELECT key FROM merchant$$);
-- settings of ours do not reach the query, nor is the caller's state changed afterwards
SELECT * FROM job_idem.load_items(:run_id,
	$$SELECT 'seqscan ' || current_setting('enable_seqscan') || ' ' || current_setting('jit')$$);
SELECT current_user, current_setting('search_path') AS path;
RESET ROLE;
RESET search_path;
SELECT item_key = 'regress_load_items ' || session_user || ' load_items_source' AS as_caller FROM manifest
WHERE item_key LIKE 'regress%';
SELECT item_key = 'seqscan on ' || current_setting('jit') AS own_settings FROM manifest
WHERE item_key LIKE 'seqscan%';
-- row security of the table holds
ALTER TABLE load_items_source.merchant ENABLE ROW LEVEL SECURITY;
CREATE POLICY odd ON load_items_source.merchant TO regress_load_items USING (key <> 'w4');
INSERT INTO load_items_source.merchant VALUES ('w3'), ('w4');
SET ROLE regress_load_items;
SELECT * FROM job_idem.load_items(:run_id, $$SELECT key FROM load_items_source.merchant$$);
RESET ROLE;
SELECT item_key FROM manifest WHERE item_key ~ '^w\d' ORDER BY item_key;
-- somebody without rights on the job is refused before the query is run
SELECT job_idem.revoke_worker('load_items', 'regress_load_items');
SET ROLE regress_load_items;
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'new' || 1 / 0$$);
RESET ROLE;

-- the query may call the extension's functions, as the caller
SELECT * FROM job_idem.load_items(:run_id,
	$$SELECT 'known ' || outcome FROM job_idem.open_run('load_items', '2026-11-30')$$);
-- after the seal its items are late ones
SELECT n_slices > 0 AS sliced FROM job_idem.seal_run(:run_id);
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'late' || i FROM generate_series(1, 3) i UNION ALL SELECT 'm1'$$);
SELECT item_no < 0 AS no_slice, item_key, state FROM manifest WHERE item_key LIKE 'late%' ORDER BY item_key;
SELECT r.n_items + r.n_late = count(*) AS counted, r.n_late FROM job_idem.run r JOIN job_idem.item i USING (run_id)
WHERE run_id = :run_id GROUP BY r.run_id;
SELECT job_idem.cancel_run(:run_id, 'end of test');
SELECT * FROM job_idem.load_items(:run_id, $$SELECT 'too late'$$);
SELECT * FROM job_idem.audit(:run_id);

SET client_min_messages = warning;
DROP SCHEMA load_items_source CASCADE;
DROP ROLE regress_load_items;
