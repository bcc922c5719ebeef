-- The failure path cannot fail, and hostile values do no harm (R11, C11, C45): a batch of 100 reported as failed in
-- one transaction, among them NUL and lone surrogate escapes, 20 MB, empty and NULL texts: each changes state, cut
-- texts carry a marker. Data of the caller's that must not be altered is refused by name instead, or kept as it is.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('hostile_text', batch_size => 100);
SELECT run_id FROM job_idem.open_run('hostile_text', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, 200) i));
SELECT job_idem.seal_run(:run_id);
CREATE FUNCTION pg_temp.message(i int) RETURNS text LANGUAGE sql AS $$
	SELECT CASE i WHEN 37 THEN '{"detail": "\u0000"}' WHEN 38 THEN '{"detail": "\ud800"}'
		WHEN 39 THEN repeat('twenty megabytes. ', 20 * 1024 * 1024 / 18) WHEN 40 THEN '' WHEN 41 THEN NULL
		WHEN 42 THEN repeat('é', 5000) WHEN 43 THEN repeat('x', 8191) || '😀' WHEN 44 THEN repeat('x', 8192)
		WHEN 45 THEN E'\x01\x02\r\n\t\x7f' WHEN 46 THEN ''';DROP TABLE job_idem.item;--'
		WHEN 47 THEN '\\\"%s%n$1' ELSE 'plain ' || i END
$$;
SELECT min(token) AS token FROM job_idem.claim_items('hostile_text') \gset
BEGIN;
SELECT f.state, count(*)
FROM generate_series(1, 100) i,
	LATERAL job_idem.mark_failed(:token, 'm' || i, pg_temp.message(i), '40001', 'Class' || i) f
GROUP BY f.state;
COMMIT;
SELECT count(*), count(DISTINCT item_key) AS items FROM job_idem.failure WHERE run_id = :run_id;
SELECT state, attempts, count(*) FROM job_idem.items WHERE run_id = :run_id GROUP BY 1, 2 ORDER BY 1, 2;
SELECT i, length(message), octet_length(message) AS bytes, right(message, 8) AS ending,
	message IS NOT DISTINCT FROM pg_temp.message(i) AS whole
FROM generate_series(37, 47) i LEFT JOIN job_idem.failure f ON f.run_id = :run_id AND f.item_key = 'm' || i ORDER BY i;
SELECT message = 'plain 36' AS plain FROM job_idem.failure WHERE run_id = :run_id AND item_key = 'm36';

-- the other texts of the call
SELECT min(token) AS token FROM job_idem.claim_items('hostile_text') \gset
SELECT state FROM job_idem.mark_failed(:token, 'm101', 'long code', repeat('4', 2 * 1024 * 1024), transient => true);
SELECT state FROM job_idem.mark_failed(:token, 'm102', 'long class', '40001', repeat('ä', 1024 * 1024));
SELECT state FROM job_idem.mark_failed(:token, 'm103', 'hostile code', 'é😀\u0000', '\u0000');
SELECT state FROM job_idem.mark_failed(:token, 'm104', 'empty', '', '');
SELECT state FROM job_idem.mark_failed(:token, 'm105', NULL, NULL, NULL, NULL);
SELECT item_key, sqlstate, left(error_class, 12) AS class, octet_length(error_class) AS class_bytes,
	right(error_class, 7) AS ending, kind
FROM job_idem.failure WHERE run_id = :run_id AND token = :token ORDER BY failure_id;
SELECT item_key, sqlstate, reason, message FROM job_idem.dead_letters WHERE run_id = :run_id ORDER BY dead_letter_id;
-- a key as long as memory allows is only unknown
SELECT state FROM job_idem.mark_failed(:token, repeat('k', 2 * 1024 * 1024), 'x');
SELECT job_idem.mark_done(:token, repeat('k', 2 * 1024 * 1024));
SELECT job_idem.postpone(:token, repeat('k', 2 * 1024 * 1024), '1 s');
SELECT job_idem.hold(:token, repeat('k', 2 * 1024 * 1024));
SELECT job_idem.step_done(:token, repeat('k', 2 * 1024 * 1024), 's');
SELECT * FROM job_idem.steps(:token, repeat('k', 2 * 1024 * 1024));
SELECT job_idem.mark_done_many(:token, ARRAY[repeat('k', 2 * 1024 * 1024)]);
SELECT job_idem.mark_all_done(:token, 95, ARRAY[repeat('k', 2 * 1024 * 1024)]);

-- the caller's data: what jsonb cannot hold does not reach us; what it can is kept as it is
SELECT job_idem.mark_done(:token, 'm106', '{"detail": "\u0000"}');
SELECT job_idem.mark_done(:token, 'm106', '{"detail": "\ud800"}');
SELECT job_idem.mark_done(:token, 'm106', to_jsonb(repeat('x', 2 * 1024 * 1024)));
SELECT state FROM job_idem.items WHERE run_id = :run_id AND item_key = 'm106';
SELECT job_idem.mark_done(:token, 'm106', to_jsonb(E'\x01\\u0000''"😀'::text));
SELECT result #>> '{}' = E'\x01\\u0000''"😀' AS kept FROM job_idem.items WHERE run_id = :run_id AND item_key = 'm106';
-- a bad row among good ones: the message names the row, and no row of the call stays
\set VERBOSITY default
SELECT * FROM job_idem.add_items(:run_id, '{n1,n2,n3}', ARRAY['1', to_jsonb(repeat('x', 2 * 1024 * 1024)), '3']);
SELECT * FROM job_idem.add_items(:run_id, ARRAY['n1', repeat('clé', 300), 'n3']);
\set VERBOSITY sqlstate
SELECT count(*) FROM job_idem.items WHERE run_id = :run_id AND item_key LIKE 'n%';
-- keys are bytes: quotes, backslashes, controls, wildcards, other scripts are names like any other
CREATE TEMP TABLE keys (key text);
INSERT INTO keys VALUES (''''), ('"'), ('\'), ('\u0000'), ('%'), ('_'), ('{}'), ('{NULL}'), ('NULL'), (','), (E'\n'),
	(E'\x01'), ('$1'), (';--'), ('账户'), ('😀'), (E'e\u0301'), (E'\u00e9'), ('İ'), ('i'), ('I');
SELECT job_idem.add_items(:run_id, (SELECT array_agg(key) FROM keys));
DO $$
DECLARE
	c record;
BEGIN
	LOOP
		SELECT token, array_agg(item_key) AS keys INTO c FROM job_idem.claim_items('hostile_text') GROUP BY token;
		EXIT WHEN c.token IS NULL;
		PERFORM job_idem.mark_done_many(c.token, c.keys);
	END LOOP;
END
$$;
SELECT count(*), count(*) FILTER (WHERE i.state = 'done') AS done, count(DISTINCT i.item_key) AS keys
FROM keys k LEFT JOIN job_idem.items i ON i.run_id = :run_id AND i.item_key = k.key;
-- reasons and notes of operators are cut, not refused; messages that name them are whole sentences
SELECT job_idem.discard(dead_letter_id, repeat('é', 1024 * 1024)) 
FROM job_idem.dead_letters WHERE run_id = :run_id AND item_key = 'm103';
SELECT octet_length(note) AS bytes FROM job_idem.dead_letters WHERE run_id = :run_id AND status = 'discarded';
SELECT job_idem.cancel_run(:run_id, repeat('x', 1024 * 1024));
SELECT octet_length(reason) AS bytes FROM job_idem.runs WHERE run_id = :run_id;
SELECT max(octet_length(e::text)) < 3000 AS short FROM job_idem.event e WHERE run_id = :run_id;
SELECT a.* FROM job_idem.audit(:run_id) a;
