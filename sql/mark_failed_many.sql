-- mark_failed_many: 500 reports in one call are 500 single ones; all or nothing; a repeated key counts once (R13, K44).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('many', batch_size => 500, retry_budget => NULL);
SELECT job_idem.set_error_rule('transient', error_class => 'many Soft*');

-- the same 500 reports, in one call and one by one
CREATE TEMP TABLE report AS
SELECT 'k' || n AS item_key, CASE WHEN n % 7 > 0 THEN 'message ' || n END AS message,
	(ARRAY['40001', '23514', NULL, '08006', 'P0001'])[n % 5 + 1] AS sqlstate,
	(ARRAY['many Softly', 'Hard', NULL])[n % 3 + 1] AS error_class, (ARRAY[true, false, NULL, NULL])[n % 4 + 1] AS transient
FROM generate_series(1, 500) AS n;
CREATE FUNCTION pg_temp.claim(key text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	r bigint;
BEGIN
	SELECT run_id INTO r FROM job_idem.open_run('many', '2026-11-30', key);
	PERFORM job_idem.add_items(r, ARRAY(SELECT item_key FROM report ORDER BY length(item_key), item_key));
	PERFORM job_idem.seal_run(r);
	RETURN (SELECT max(token) FROM job_idem.claim_items('many', run_key => key));
END
$$;
SELECT pg_temp.claim('one') AS one, pg_temp.claim('many') AS many \gset
CREATE TEMP TABLE one AS
SELECT item_key, f.* FROM report, job_idem.mark_failed(:one, item_key, message, sqlstate, error_class, transient) f;
CREATE TEMP TABLE many AS
SELECT f.* FROM (SELECT array_agg(item_key ORDER BY random()) AS k FROM report) s,
	LATERAL (SELECT array_agg(message ORDER BY n) AS m, array_agg(sqlstate ORDER BY n) AS s, array_agg(error_class ORDER BY n)
		AS c, array_agg(transient ORDER BY n) AS t FROM unnest(s.k) WITH ORDINALITY AS u (item_key, n) JOIN report USING (item_key)) a,
	job_idem.mark_failed_many(:many, s.k, a.m, a.s, a.c, a.t) f;
SELECT state, count(*), count(retry_at) FROM many GROUP BY state ORDER BY state;
SELECT count(*) FROM ((TABLE one EXCEPT TABLE many) UNION ALL (TABLE many EXCEPT TABLE one)) x;
-- and on record
CREATE TEMP VIEW record AS
SELECT f.run_key, f.item_key, f.attempt, f.kind, f.sqlstate, f.error_class, f.message, f.retry_at, i.state, i.due_at, i.attempts,
	d.reason, d.kind AS dead_kind
FROM job_idem.failures f JOIN job_idem.items i USING (run_id, item_key) LEFT JOIN job_idem.dead_letters d USING (run_id, item_key)
WHERE f.job = 'many';
SELECT run_key, count(*) FROM record GROUP BY run_key ORDER BY run_key;
CREATE TEMP VIEW one_record AS SELECT to_jsonb(r) - 'run_key' AS r FROM record r WHERE run_key = 'one';
CREATE TEMP VIEW many_record AS SELECT to_jsonb(r) - 'run_key' AS r FROM record r WHERE run_key = 'many';
SELECT count(*) FROM ((TABLE one_record EXCEPT TABLE many_record) UNION ALL (TABLE many_record EXCEPT TABLE one_record)) x;
SELECT run_key, outcome, n_items, n_done, n_failed, n_retried FROM job_idem.leases WHERE job = 'many' ORDER BY run_key;
SELECT a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job = 'many';

-- all or nothing
SELECT pg_temp.claim('three') AS token \gset
CREATE TEMP VIEW now_there AS
SELECT (SELECT count(*) FROM job_idem.failures WHERE run_key = 'three') AS failures,
	(SELECT count(*) FROM job_idem.dead_letters WHERE run_key = 'three') AS dead,
	(SELECT count(*) FROM job_idem.items WHERE run_key = 'three' AND state = 'claimed') AS claimed,
	(SELECT outcome FROM job_idem.leases WHERE run_key = 'three') AS lease;
SELECT * FROM job_idem.mark_failed_many(:token, '{k1,k2,nobody}');
SELECT * FROM job_idem.mark_failed_many(:token, '{k1,NULL}');
SELECT * FROM job_idem.mark_failed_many(:token, NULL);
SELECT * FROM job_idem.mark_failed_many(:token, '{k1,k2}', '{one}');
SELECT * FROM job_idem.mark_failed_many(:token, '{k1,k2}', sqlstates => '{40001,40001,40001}');
SELECT * FROM job_idem.mark_failed_many(:token, '{k1,k2}', transients => '{}');
SELECT * FROM job_idem.mark_failed_many(:one, '{k1}');
SELECT * FROM job_idem.mark_failed_many(-1, '{k1}');
TABLE now_there;
SELECT job_idem.mark_done(:token, 'k3');
SELECT * FROM job_idem.mark_failed_many(:token, '{k3}');
SELECT * FROM job_idem.mark_failed_many(:token, '{k1,k3}');
-- nothing to report is nothing done; repeated keys count once, the first report
SELECT * FROM job_idem.mark_failed_many(:token, '{}');
TABLE now_there;
SELECT item_key, state FROM job_idem.mark_failed_many(:token, '{k9,k8,k9,k9}', '{a,b,c,d}', '{40001,23514,23514,23514}') ORDER BY item_key;
SELECT item_key, message, attempt FROM job_idem.failures WHERE token = :token ORDER BY item_key;
SELECT * FROM job_idem.mark_failed_many(:token, '{k8}');
-- hostile texts: each report counts (R11)
SELECT item_key, state FROM job_idem.mark_failed_many(:token, '{k10,k11,k12,k13}', ARRAY[repeat('x', 20000), '', NULL, '\u0000'],
	ARRAY['40001 and more', '', NULL, '%%%'], ARRAY[repeat('c', 300), '', NULL, '*']) ORDER BY item_key;
SELECT item_key, length(message), right(message, 8) AS message, sqlstate, length(error_class), kind FROM job_idem.failures
WHERE token = :token AND item_key > 'k1' AND item_key < 'k2' ORDER BY item_key;
SELECT a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job = 'many';
SELECT job_idem.drop_error_rule(error_class => 'many Soft*');
