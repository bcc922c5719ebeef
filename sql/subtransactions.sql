-- No verb opens a subtransaction per item (C30): whatever is written in a transaction is written by the transaction
-- itself; where one is needed, their number is bounded: one for an item_source, one for each lease that expires, at
-- most 50 in one transaction. Ordinary answers are values, not errors that need a savepoint; results are those of
-- one-by-one.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('subtransactions', batch_size => 10000);
SELECT outcome FROM job_idem.define_job('subtransactions keyed', kind => 'keyed');
-- rows of our tables written by a subtransaction of the current transaction: their ids come after its own
CREATE FUNCTION pg_temp.by_subtransactions() RETURNS TABLE (relation regclass, subtransactions bigint)
LANGUAGE plpgsql AS $$
DECLARE
	top bigint := (pg_current_xact_id()::text)::bigint & 4294967295;
BEGIN
	FOR relation IN SELECT c.oid FROM pg_catalog.pg_class c WHERE relnamespace = 'job_idem'::regnamespace AND relkind = 'r'
		ORDER BY relname COLLATE "C"
	LOOP
		EXECUTE format('SELECT count(DISTINCT xmin::text) FROM %s WHERE xmin::text::bigint > %s', relation, top)
			INTO subtransactions;
		IF subtransactions > 0 THEN
			RETURN NEXT;
		END IF;
	END LOOP;
END
$$;
-- one transaction, 10,000 items, of which some fail: by the set forms
BEGIN;
SELECT run_id FROM job_idem.open_run('subtransactions', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i) FROM generate_series(1, 10000) i));
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i) FROM generate_series(5000, 10100) i));
SELECT job_idem.load_items(:run_id, $$SELECT 'm' || i FROM generate_series(10000, 20000) i$$);
SELECT job_idem.seal_run(:run_id);
SELECT job_idem.add_items(:run_id, '{m1,late1,late2}');
SELECT count(*), min(token) AS late FROM job_idem.claim_items('subtransactions') \gset
SELECT job_idem.mark_done_many(:late, '{late1,late2}');
SELECT min(token) AS token, count(*) FROM job_idem.claim_items('subtransactions') \gset
SELECT f.state, count(*)
FROM generate_series(1, 10000, 100) i,
	LATERAL job_idem.mark_failed(:token, 'm' || i, 'x', CASE WHEN i < 5000 THEN '40001' ELSE '22003' END) f
GROUP BY f.state ORDER BY f.state;
SELECT job_idem.mark_done_many(:token, (SELECT array_agg('m' || i) FROM generate_series(1, 10000) i WHERE i % 100 <> 1));
SELECT outcome, n_done, n_failed, n_items FROM job_idem.leases WHERE token = :token;
SELECT min(token) AS second FROM job_idem.claim_items('subtransactions') \gset
-- and one by one, with answers that are no errors
SELECT sum(job_idem.mark_done(:second, 'm' || i)) FROM generate_series(10001, 11000) i;
SELECT outcome, count(*)
FROM generate_series(10990, 11010) i, LATERAL job_idem.claim_item('subtransactions', '2026-11-30', 'm' || i)
GROUP BY outcome ORDER BY outcome;
SELECT count(job_idem.postpone(:second, 'm' || i, '1 hour')) FROM generate_series(11001, 11020) i;
SELECT job_idem.heartbeat(:second) IS NOT NULL AS beat, job_idem.hold(:second) IS NULL AS held;
SELECT job_idem.release(:second);
SELECT outcome, count(*)
FROM generate_series(1, 200) i, LATERAL job_idem.claim_item('subtransactions keyed', '2026-11-30', 'k' || i % 100)
GROUP BY outcome ORDER BY outcome;
SELECT count(*) FROM job_idem.claim_items('subtransactions keyed');
SELECT count(job_idem.mark_done(token, item_key)) FROM job_idem.items
WHERE job = 'subtransactions keyed' AND state = 'claimed' AND item_no % 2 = 0;
SELECT count(job_idem.expire_lease(token, 'x')) FROM job_idem.items
WHERE job = 'subtransactions keyed' AND state = 'claimed';
SELECT count(job_idem.replay(dead_letter_id)) FROM job_idem.dead_letters WHERE run_id = :run_id;
SELECT * FROM pg_temp.by_subtransactions();
-- a savepoint of the caller's would be seen
SAVEPOINT s;
SELECT outcome FROM job_idem.claim_item('subtransactions keyed', '2026-11-30', 'in savepoint');
RELEASE s;
SELECT * FROM pg_temp.by_subtransactions();
COMMIT;
-- the same as one by one: counts of what became of them
SELECT state, count(*) FROM job_idem.items WHERE run_id = :run_id GROUP BY state ORDER BY state;

-- the item_source: one, also when it fails
SELECT outcome FROM job_idem.define_job('subtransactions source',
	item_source => $$SELECT 'm' || i FROM pg_catalog.generate_series(1, 1000) i$$);
BEGIN;
SELECT state FROM job_idem.open_run('subtransactions source', '2026-11-30');
SELECT relation, subtransactions FROM pg_temp.by_subtransactions()
WHERE relation IN ('job_idem.item'::regclass, 'job_idem.event'::regclass);
ROLLBACK;
-- tick: each lease in its own, at most 50 of them in one transaction
SELECT outcome FROM job_idem.define_job('subtransactions tick', batch_size => 1);
SELECT run_id AS many FROM job_idem.open_run('subtransactions tick', '2026-11-30') \gset
SELECT job_idem.add_items(:many, (SELECT array_agg('m' || i) FROM generate_series(1, 120) i));
SELECT job_idem.seal_run(:many);
DO $$
BEGIN
	FOR i IN 1..120 LOOP
		PERFORM * FROM job_idem.claim_items('subtransactions tick');
	END LOOP;
END
$$;
SET job_idem.clock_offset = 3600;
-- an idle claim takes one
BEGIN;
SELECT count(*) FROM job_idem.claim_items('subtransactions tick');
SELECT relation, subtransactions FROM pg_temp.by_subtransactions() WHERE relation = 'job_idem.lease'::regclass;
COMMIT;
CALL job_idem.tick();
SELECT outcome, count(*), count(DISTINCT xmin::text) AS subtransactions
FROM job_idem.lease WHERE run_id = :many GROUP BY outcome;
-- their ids lie in steps of at most 50, each begun by a transaction of its own, whose id no lease has
SELECT max(n) <= 50 AS bounded FROM (
	SELECT count(*) AS n FROM (
		SELECT x - row_number() OVER (ORDER BY x) AS step
		FROM (SELECT xmin::text::bigint AS x FROM job_idem.lease WHERE run_id = :many) l
	) s GROUP BY step
) c;
SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'subtransactions%';
