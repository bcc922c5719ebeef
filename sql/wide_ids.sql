-- Ids are 64 bits wide (P14, C46): a whole life cycle with every sequence past 2^31, and again past 2^53; tokens of
-- the largest epoch that is exact in JavaScript numbers, near the end of its sequence. Sequences are moved by hand,
-- and back.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
CREATE PROCEDURE pg_temp.set_sequences(at bigint) LANGUAGE plpgsql AS $$
DECLARE
	s regclass;
BEGIN
	FOR s IN SELECT c.oid FROM pg_catalog.pg_class c
		WHERE relnamespace = 'job_idem'::regnamespace AND relkind = 'S' AND relname <> 'token_seq'
	LOOP
		PERFORM setval(s, at);
	END LOOP;
END
$$;
SELECT string_agg(relname, ' ' ORDER BY relname COLLATE "C") FROM pg_catalog.pg_class
WHERE relnamespace = 'job_idem'::regnamespace AND relkind = 'S' AND relname <> 'token_seq';
-- no column of ours that holds an id is narrower
SELECT c.relname, a.attname, a.atttypid::regtype
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'job_idem'::regnamespace AND c.relkind IN ('r', 'v')
	AND (a.attname ~ '_id$|^token$|^item_no$|^picks$') AND a.atttypid NOT IN ('int8'::regtype, 'int8[]'::regtype);

CREATE FUNCTION pg_temp.life(name text)
RETURNS TABLE (done bigint, dead bigint, total bigint, smallest bigint, first_token bigint, last_token bigint,
	problems bigint)
LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
	t bigint;
	c record;
BEGIN
	PERFORM job_idem.define_job(name, batch_size => 2);
	SELECT run_id INTO id FROM job_idem.open_run(name, '2026-11-30');
	PERFORM job_idem.add_items(id, '{a,b,c,d,e}');
	PERFORM job_idem.seal_run(id);
	PERFORM job_idem.add_items(id, '{late}');
	SELECT token INTO t FROM job_idem.claim_items(name) WHERE item_key = 'late';
	PERFORM job_idem.mark_all_done(t, 1);
	SELECT token INTO t FROM job_idem.claim_items(name) LIMIT 1;
	PERFORM job_idem.heartbeat(t), job_idem.hold(t, 'a'), job_idem.mark_done(t, 'a');
	PERFORM job_idem.mark_failed(t, 'b', transient => false);
	SELECT token INTO t FROM job_idem.claim_items(name) LIMIT 1;
	PERFORM job_idem.release(t);
	SELECT token INTO t FROM job_idem.claim_items(name) LIMIT 1;
	PERFORM job_idem.expire_lease(t, 'x');
	PERFORM job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = id;
	PERFORM set_config('job_idem.clock_offset', '600', true);
	LOOP
		SELECT token, count(*) AS n, min(item_key) AS k INTO c FROM job_idem.claim_items(name) GROUP BY token;
		EXIT WHEN c.token IS NULL;
		IF c.k = 'e' THEN
			PERFORM job_idem.mark_failed(c.token, 'e', transient => false);
		ELSE
			PERFORM job_idem.mark_all_done(c.token, c.n);
		END IF;
		ASSERT (SELECT outcome FROM job_idem.claim_status(c.token)) = 'completed';
	END LOOP;
	PERFORM set_config('job_idem.clock_offset', '0', true);
	RETURN QUERY SELECT p.done, p.dead, p.total,
		least(p.run_id, min(j.job_id), min(d.dead_letter_id), min(e.event_id), min(f.failure_id), min(g.trigger_id),
			min(-i.item_no) FILTER (WHERE i.item_no < 0)),
		min(l.token), max(l.token), (SELECT count(*) FROM job_idem.audit(id))
	FROM job_idem.progress p JOIN job_idem.jobs j ON j.job = p.job JOIN job_idem.lease l USING (run_id)
		JOIN job_idem.dead_letter d USING (run_id) JOIN job_idem.event e USING (run_id) JOIN job_idem.failure f USING (run_id)
		JOIN job_idem.run_trigger g USING (run_id) JOIN job_idem.item i USING (run_id)
	WHERE p.run_id = id GROUP BY p.run_id, p.done, p.dead, p.total;
END
$$;
SELECT done, dead, total, problems FROM pg_temp.life('wide_ids');
CREATE TEMP TABLE before AS SELECT c.oid::regclass AS sequence, nextval(c.oid) AS at FROM pg_catalog.pg_class c
WHERE relnamespace = 'job_idem'::regnamespace AND relkind = 'S' AND relname <> 'token_seq';
SELECT nextval('job_idem.token_seq') AS token_at \gset
BEGIN;
CALL pg_temp.set_sequences(2147483647);
SELECT done, dead, total, smallest > 2147483647 AS wide, problems FROM pg_temp.life('wide_ids 31');
CALL pg_temp.set_sequences(9007199254740993);
SELECT done, dead, total, smallest > 9007199254740992 AS wide, problems FROM pg_temp.life('wide_ids 53');
-- as far as there are numbers, but for what the cycle needs
CALL pg_temp.set_sequences(9223372036854775807 - 500);
SELECT done, dead, total, smallest >= 9223372036854775807 - 500 AS wide, problems FROM pg_temp.life('wide_ids 63');

-- tokens at the end of their sequence in epoch 511: below 2^53; and in the next one, beyond; they grow all the time
UPDATE job_idem.epoch SET epoch = 511 WHERE epoch = (SELECT max(epoch) FROM job_idem.epoch);
SELECT setval('job_idem.token_seq', (1::bigint << 44) - 100) IS NOT NULL AS moved;
SELECT done, dead, total, first_token > 511::bigint << 44 AS in_epoch, last_token < 9007199254740992 AS exact, problems,
	last_token AS last_511 FROM pg_temp.life('wide_ids 511') \gset
SELECT :done AS done, :dead AS dead, :total AS total, :'in_epoch' AS in_epoch, :'exact' AS exact, :problems AS problems;
SELECT job_idem.advance_epoch('test');
SELECT setval('job_idem.token_seq', 1) IS NOT NULL AS moved;
SELECT done, dead, total, first_token > :last_511 AS grow, first_token > 512::bigint << 44 AS in_epoch, problems
FROM pg_temp.life('wide_ids 512');
-- the last epoch there is, and the last number in it: after that an error, nothing that wraps
UPDATE job_idem.epoch SET epoch = 524287 WHERE epoch = 512;
SELECT setval('job_idem.token_seq', (1::bigint << 44) - 2) IS NOT NULL AS moved;
SELECT outcome FROM job_idem.define_job('wide_ids last', kind => 'keyed');
SELECT token = 9223372036854775807 AS last_token FROM job_idem.claim_item('wide_ids last', '2026-11-30', 'a');
SAVEPOINT t;
SELECT token FROM job_idem.claim_item('wide_ids last', '2026-11-30', 'b');
ROLLBACK TO t;
SELECT job_idem.mark_done(9223372036854775807, 'a');
SELECT job_idem.advance_epoch('one too many');
ROLLBACK;
SELECT setval('job_idem.token_seq', :token_at) IS NOT NULL AND bool_and(setval(sequence, at) = at) AS moved_back
FROM before;
SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) WHERE r.job LIKE 'wide_ids%';
