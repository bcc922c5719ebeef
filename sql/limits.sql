-- Bad input changes nothing and names the fault (R12): every refused call of every verb, with its code, and a hash
-- over all tables of the extension before and after. The messages are in the file `messages`.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
CREATE FUNCTION pg_temp.content() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	t regclass;
	part text;
	whole text := '';
BEGIN
	FOR t IN SELECT c.oid
	FROM pg_catalog.pg_class c WHERE relnamespace = 'job_idem'::regnamespace AND relkind IN ('r', 'p')
		ORDER BY relname
	LOOP
		EXECUTE format('SELECT md5(string_agg(r::text, '','' ORDER BY r::text)) FROM %s r', t) INTO part;
		whole := whole || t || coalesce(part, '');
	END LOOP;
	RETURN md5(whole);
END
$$;
SELECT outcome FROM job_idem.define_job('limits', batch_size => 3);
SELECT outcome FROM job_idem.define_job('limits keyed', kind => 'keyed');
SELECT run_id AS loading FROM job_idem.open_run('limits', '2026-11-29') \gset
SELECT job_idem.add_items(:loading, '{a}', '{"1"}');
SELECT run_id FROM job_idem.open_run('limits', '2026-11-30', params => '1') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d}');
SELECT job_idem.seal_run(:run_id);
SELECT min(token) AS token FROM job_idem.claim_items('limits') \gset
SELECT job_idem.mark_done(:token, 'a');
SELECT state FROM job_idem.mark_failed(:token, 'b', transient => false);
SELECT dead_letter_id AS letter FROM job_idem.dead_letters WHERE run_id = :run_id \gset
SELECT token AS key FROM job_idem.claim_item('limits keyed', '2026-11-30', 'k', payload => '1') \gset

CREATE TEMP TABLE names AS
SELECT * FROM (VALUES ('RUN', :'run_id'), ('LOADING', :'loading'), ('TOKEN', :'token'), ('LETTER', :'letter'),
	('LONG', '(''x'' || repeat(''k'', 512))'), ('LARGE', 'to_jsonb(repeat(''x'', 1048577))')) AS names (name, value);
CREATE TEMP TABLE calls (n serial, call text, code text);
CREATE PROCEDURE pg_temp.try(call text) LANGUAGE plpgsql AS $$
DECLARE
	statement text := call;
	code text := 'accepted';
	n names;
BEGIN
	FOR n IN TABLE names LOOP
		statement := replace(statement, n.name, n.value);
	END LOOP;
	BEGIN
		EXECUTE statement;
	EXCEPTION WHEN OTHERS THEN
		code := SQLSTATE;
	END;
	INSERT INTO calls (call, code) VALUES (try.call, code);
END
$$;
SELECT pg_temp.content() AS before \gset
DO $do$
DECLARE
	c text;
BEGIN
	FOR c IN SELECT * FROM regexp_split_to_table($calls$
SELECT job_idem.define_job(NULL)
SELECT job_idem.define_job('')
SELECT job_idem.define_job(LONG)
SELECT job_idem.define_job('l', kind => 'other')
SELECT job_idem.define_job('l', kind => NULL)
SELECT job_idem.define_job('l', tier => 'other')
SELECT job_idem.define_job('l', batch_size => 0)
SELECT job_idem.define_job('l', batch_size => -1)
SELECT job_idem.define_job('l', batch_size => 100001)
SELECT job_idem.define_job('l', max_attempts => 0)
SELECT job_idem.define_job('l', max_attempts => 32768)
SELECT job_idem.define_job('l', max_attempts => 1)
SELECT job_idem.define_job('l', lease => '0')
SELECT job_idem.define_job('l', lease => '-1 s')
SELECT job_idem.define_job('l', takeover_delay => '-1 s')
SELECT job_idem.define_job('l', max_lease => '1 s')
SELECT job_idem.define_job('l', max_lease => '-1 day')
SELECT job_idem.define_job('l', backoff_base => '-1 s')
SELECT job_idem.define_job('l', backoff_factor => 0.5)
SELECT job_idem.define_job('l', backoff_factor => 'NaN')
SELECT job_idem.define_job('l', backoff_factor => 'Infinity')
SELECT job_idem.define_job('l', backoff_max => '1 s')
SELECT job_idem.define_job('l', close_after => '-1 s')
SELECT job_idem.define_job('l', item_source => 'SELEC 1')
SELECT job_idem.define_job('l', kind => 'keyed', item_source => 'SELECT ''a''')
SELECT job_idem.define_job('l', version => 0)
SELECT job_idem.define_job('limits', batch_size => 4, version => 1)
SELECT job_idem.define_job('limits', kind => 'keyed')
SELECT job_idem.pause_job('none')
SELECT job_idem.pause_job(NULL)
SELECT job_idem.resume_job('none')
SELECT job_idem.drop_job('none')
SELECT job_idem.drop_job('limits')
SELECT job_idem.grant_access('no such role', 'worker')
SELECT job_idem.grant_access('pg_monitor', 'king')
SELECT job_idem.grant_access(NULL, 'worker')
SELECT job_idem.grant_worker('none', 'pg_monitor')
SELECT job_idem.grant_worker('limits', 'no such role')
SELECT job_idem.open_run(NULL, '2026-12-01')
SELECT job_idem.open_run('none', '2026-12-01')
SELECT job_idem.open_run('limits', NULL)
SELECT job_idem.open_run('limits', 'infinity')
SELECT job_idem.open_run('limits', '-infinity')
SELECT job_idem.open_run('limits', '2026-12-01', '')
SELECT job_idem.open_run('limits', '2026-12-01', LONG)
SELECT job_idem.open_run('limits', '2026-12-01', params => LARGE)
SELECT job_idem.open_run('limits', '2026-11-30', params => '2')
SELECT job_idem.open_run('limits', '2026-11-30')
SELECT job_idem.add_items(NULL, '{x}')
SELECT job_idem.add_items(0, '{x}')
SELECT job_idem.add_items(LOADING, NULL)
SELECT job_idem.add_items(LOADING, '{x,NULL}')
SELECT job_idem.add_items(LOADING, '{x,""}')
SELECT job_idem.add_items(LOADING, ARRAY['x', LONG])
SELECT job_idem.add_items(LOADING, '{x,y}', '{"1"}')
SELECT job_idem.add_items(LOADING, '{x,a}', '{"1","2"}')
SELECT job_idem.add_items(LOADING, '{x}', ARRAY[LARGE])
SELECT job_idem.add_items(RUN, '{x,""}')
SELECT job_idem.load_items(LOADING, NULL)
SELECT job_idem.load_items(LOADING, 'SELECT 1')
SELECT job_idem.load_items(LOADING, 'SELECT ''x'' UNION ALL SELECT NULL')
SELECT job_idem.load_items(LOADING, 'SELECT ''x'' || 1 / 0')
SELECT job_idem.load_items(0, 'SELECT ''x''')
SELECT job_idem.seal_run(NULL)
SELECT job_idem.seal_run(0)
SELECT job_idem.cancel_run(NULL, 'x')
SELECT job_idem.cancel_run(0, 'x')
SELECT job_idem.cancel_run(RUN, NULL)
SELECT job_idem.cancel_run(RUN, '')
SELECT job_idem.is_done('none', '2026-11-30')
SELECT job_idem.is_done('limits', 'infinity')
SELECT * FROM job_idem.claim_items(NULL)
SELECT * FROM job_idem.claim_items('none')
SELECT * FROM job_idem.claim_items('limits', business_date => '-infinity')
SELECT * FROM job_idem.claim_items('limits', lease => '0')
SELECT * FROM job_idem.claim_items('limits', lease => '-1 s')
SELECT job_idem.claim_item('limits keyed', '2026-11-30', NULL)
SELECT job_idem.claim_item('limits keyed', '2026-11-30', '')
SELECT job_idem.claim_item('limits keyed', '2026-11-30', LONG)
SELECT job_idem.claim_item('limits keyed', 'infinity', 'x')
SELECT job_idem.claim_item('limits keyed', NULL, 'x')
SELECT job_idem.claim_item('limits keyed', '2026-11-30', 'x', lease => '0')
SELECT job_idem.claim_item('limits keyed', '2026-11-30', 'x', payload => LARGE)
SELECT job_idem.claim_item('limits keyed', '2026-12-01', 'x', run_key => '')
SELECT job_idem.claim_item('limits', '2026-12-01', 'x')
SELECT job_idem.claim_item('none', '2026-12-01', 'x')
SELECT job_idem.mark_all_done(NULL, 1)
SELECT job_idem.mark_all_done(0, 1)
SELECT job_idem.mark_all_done(TOKEN, NULL)
SELECT job_idem.mark_all_done(TOKEN, -1)
SELECT job_idem.mark_all_done(TOKEN, 3)
SELECT job_idem.mark_all_done(TOKEN, 1, '{a,NULL}')
SELECT job_idem.mark_done(NULL, 'c')
SELECT job_idem.mark_done(0, 'c')
SELECT job_idem.mark_done(TOKEN, NULL)
SELECT job_idem.mark_done(TOKEN, '')
SELECT job_idem.mark_done(TOKEN, 'd')
SELECT job_idem.mark_done(TOKEN, 'a')
SELECT job_idem.mark_done(TOKEN, 'c', LARGE)
SELECT job_idem.mark_done_many(TOKEN, NULL)
SELECT job_idem.mark_done_many(TOKEN, '{c,NULL}')
SELECT job_idem.mark_done_many(TOKEN, '{c,d}')
SELECT job_idem.mark_done_many(TOKEN, '{c,a}')
SELECT job_idem.mark_done_many(TOKEN, '{c}', '{"1","2"}')
SELECT job_idem.mark_done_many(TOKEN, '{c}', ARRAY[LARGE])
SELECT job_idem.mark_failed(NULL, 'c')
SELECT job_idem.mark_failed(0, 'c')
SELECT job_idem.mark_failed(TOKEN, NULL)
SELECT job_idem.mark_failed(TOKEN, 'd')
SELECT job_idem.mark_failed(TOKEN, 'b')
SELECT job_idem.postpone(TOKEN, 'c', NULL)
SELECT job_idem.postpone(TOKEN, 'c', '-1 s')
SELECT job_idem.postpone(TOKEN, 'd', '1 s')
SELECT job_idem.postpone(0, 'c', '1 s')
SELECT job_idem.release(NULL)
SELECT job_idem.release(0)
SELECT job_idem.heartbeat(NULL)
SELECT job_idem.heartbeat(0)
SELECT job_idem.heartbeat(TOKEN, '0')
SELECT job_idem.heartbeat(TOKEN, '-1 s')
SELECT job_idem.hold(NULL)
SELECT job_idem.hold(0)
SELECT job_idem.hold(TOKEN, 'd')
SELECT job_idem.step_done(NULL, 'c', 's')
SELECT job_idem.step_done(0, 'c', 's')
SELECT job_idem.step_done(TOKEN, 'd', 's')
SELECT job_idem.step_done(TOKEN, 'c', NULL)
SELECT job_idem.step_done(TOKEN, 'c', '')
SELECT job_idem.step_done(TOKEN, 'c', LONG)
SELECT job_idem.step_done(TOKEN, 'c', 's', LARGE)
SELECT job_idem.steps(NULL, 'c')
SELECT job_idem.steps(TOKEN, NULL)
SELECT job_idem.claim_status(NULL)
SELECT job_idem.claim_status(0)
SELECT job_idem.expire_lease(NULL, 'x')
SELECT job_idem.expire_lease(0, 'x')
SELECT job_idem.expire_lease(TOKEN, NULL)
SELECT job_idem.expire_lease(TOKEN, '')
SELECT job_idem.replay(NULL)
SELECT job_idem.replay(0)
SELECT job_idem.replay(LETTER, payload => LARGE)
SELECT job_idem.replay_run(NULL)
SELECT job_idem.replay_run(0)
SELECT job_idem.replay_run(RUN, error_class => '')
SELECT job_idem.replay_run(RUN, sqlstate => '')
SELECT job_idem.replay_run(RUN, error_class => LONG)
SELECT job_idem.replay_run(RUN, sqlstate => LONG)
SELECT job_idem.discard(NULL)
SELECT job_idem.discard(0)
SELECT job_idem.backoff_delay(0)
SELECT job_idem.audit(NULL)
SELECT job_idem.audit(0)
CALL job_idem.tick()$calls$, '\n+') LOOP
		IF c <> '' THEN
			CALL pg_temp.try(c);
		END IF;
	END LOOP;
END
$do$;
SELECT code, call FROM calls ORDER BY n;
SELECT call AS accepted FROM calls WHERE code = 'accepted';
SELECT pg_temp.content() = :'before' AS unchanged;
-- it would be seen
CALL pg_temp.try('SELECT job_idem.pause_job(''limits'')');
SELECT pg_temp.content() = :'before' AS unchanged;
SELECT job_idem.resume_job('limits');
SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'limits%';
