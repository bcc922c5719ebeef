-- Names are only names (P14): a whole life cycle of a batch and a keyed job whose names have capitals, quotes,
-- blanks, other scripts, look like SQL, or are as long as may be; their run keys, item keys and workers likewise.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
CREATE TEMP TABLE names (n serial, name text);
INSERT INTO names (name) VALUES ('Settle'), ('SETTLE'), ('settle "all"'), ('o''clock'), ('  blanks  '), (' '), ('结算'),
	('تسوية'), ('💶'), ('a.b'), ('"quoted"'), ('$1'), ('%s'), ('\d'), ('NULL'), ('{}'), ('; DROP TABLE job_idem.job; --'),
	(E'two\nlines'), ('select'), (repeat('n', 200)), (repeat('é', 100));
-- every verb once on jobs of that name; what each saw comes back as one row
CREATE FUNCTION pg_temp.life(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
	t bigint;
	k record;
	d bigint;
	seen text := '';
	rk text := 'keyed ' || left(name, 5);
BEGIN
	-- batch
	PERFORM job_idem.define_job(name, batch_size => 2, item_source => format('SELECT %L::text', name));
	ASSERT (SELECT outcome FROM job_idem.define_job(name, batch_size => 2)) = 'changed';
	ASSERT (SELECT outcome FROM job_idem.open_run(name, '2026-11-30', run_key => name, params => to_jsonb(name))) = 'new';
	SELECT run_id INTO id FROM job_idem.open_run(name, '2026-11-30', run_key => name, params => to_jsonb(name));
	PERFORM job_idem.add_items(id, ARRAY[name, 'b', 'c', 'd'], ARRAY[to_jsonb(name), NULL, NULL, NULL]);
	PERFORM job_idem.load_items(id, 'SELECT ' || quote_literal('e' || name));
	ASSERT (SELECT n_slices FROM job_idem.seal_run(id)) = 3;
	SELECT token INTO t FROM job_idem.claim_items(name, worker => name, run_key => name) c
	WHERE c.item_key = name AND payload = to_jsonb(name);
	ASSERT (SELECT outcome FROM job_idem.claim_item(name, '2026-11-30', name, run_key => name)) = 'busy';
	PERFORM job_idem.hold(t, name), job_idem.step_done(t, name, name, to_jsonb(name)), job_idem.heartbeat(t),
		job_idem.mark_done(t, name, to_jsonb(name));
	ASSERT (SELECT count(*) FROM job_idem.steps(t, name) WHERE step = name AND result = to_jsonb(name)) = 1;
	PERFORM job_idem.mark_failed(t, 'b', name, name, name, false);
	SELECT dead_letter_id INTO d FROM job_idem.dead_letters WHERE job = name AND message = name;
	ASSERT job_idem.replay(d, name, to_jsonb(name));
	PERFORM job_idem.pause_job(name, name), job_idem.resume_job(name, name);
	FOR k IN SELECT * FROM generate_series(1, 3) LOOP
		SELECT token, count(*) AS n INTO k FROM job_idem.claim_items(name, run_key => name) GROUP BY token;
		PERFORM job_idem.mark_all_done(k.token, k.n);
	END LOOP;
	seen := (SELECT format('%s/%s', done, total) FROM job_idem.progress WHERE job = name AND run_key = name);
	ASSERT (SELECT count(*) FROM job_idem.items
		WHERE job = name AND item_key = name AND result = to_jsonb(name) AND worker = name) = 1;
	ASSERT (SELECT count(*) FROM job_idem.audit(id)) = 0;
	PERFORM job_idem.cancel_run(id, name);
	ASSERT job_idem.drop_job(name, name);
	ASSERT (SELECT outcome FROM job_idem.define_job(name, 'keyed')) = 'revived';
	-- keyed
	SELECT * INTO k FROM job_idem.claim_item(name, '2026-11-30', name, name, payload => to_jsonb(name), run_key => rk);
	ASSERT k.outcome = 'claimed';
	PERFORM job_idem.postpone(k.token, name, '0');
	SELECT token INTO t FROM job_idem.claim_items(name);
	PERFORM job_idem.release(t);
	SELECT token INTO t FROM job_idem.claim_items(name);
	PERFORM job_idem.expire_lease(t, name);
	PERFORM set_config('job_idem.clock_offset', '600', true);
	SELECT token INTO t FROM job_idem.claim_items(name);
	ASSERT job_idem.mark_done_many(t, ARRAY[name], ARRAY[to_jsonb(name)]) = 1;
	SELECT * INTO k FROM job_idem.claim_item(name, '2026-11-30', name, run_key => rk);
	ASSERT k.outcome = 'done' AND k.result = to_jsonb(name);
	ASSERT NOT job_idem.is_done(name, '2026-11-30', rk);
	PERFORM job_idem.seal_run(run_id) FROM job_idem.runs r WHERE r.job = name AND r.run_key = rk;
	ASSERT (SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) WHERE r.job = name) = 0;
	PERFORM set_config('job_idem.clock_offset', '0', true);
	RETURN seen;
END
$$;
SELECT n, pg_temp.life(name) AS seen FROM names ORDER BY n;
CALL job_idem.tick();
SELECT count(DISTINCT j.job_id) AS jobs, count(*) AS runs, count(*) FILTER (WHERE r.state = 'done') AS done,
	count(*) FILTER (WHERE job_idem.is_done(n.name, '2026-11-30', 'keyed ' || left(n.name, 5))) AS is_done
FROM names n JOIN job_idem.jobs j ON j.job = n.name JOIN job_idem.runs r ON r.job = n.name;
-- one byte longer, and none at all, are no names
SELECT job_idem.define_job(repeat('n', 201));
SELECT job_idem.define_job(repeat('é', 100) || 'n');
SELECT job_idem.define_job('');
-- names are compared by bytes: no case, no accents, no trailing blanks are equal
SELECT outcome FROM job_idem.define_job('Name') UNION ALL SELECT outcome FROM job_idem.define_job('name')
UNION ALL SELECT outcome FROM job_idem.define_job('name ');
SELECT count(*) FROM job_idem.jobs WHERE job IN ('Name', 'name', 'name ');
