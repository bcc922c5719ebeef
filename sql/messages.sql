-- Wording of the errors that a worker's author reads first: each says what is wrong, with which values, and what to
-- do.
\set VERBOSITY default
\set SHOW_CONTEXT never
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE TEMP TABLE ids (name text, value text);
-- makes the call with ids for names, and shows what it says with names for ids
CREATE PROCEDURE pg_temp.say(call text) LANGUAGE plpgsql AS $$
DECLARE
	statement text := call;
	message text;
	detail text;
	hint text;
	said text;
	i ids;
BEGIN
	FOR i IN TABLE ids LOOP
		statement := replace(statement, i.name, i.value);
	END LOOP;
	EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message := MESSAGE_TEXT, detail := PG_EXCEPTION_DETAIL, hint := PG_EXCEPTION_HINT;
	said := format(E'%s: %s\n%s\n%s', SQLSTATE, message, coalesce(nullif(detail, ''), '-'), hint);
	FOR i IN SELECT * FROM ids WHERE name <> 'RUN' LOOP
		said := replace(said, i.value, i.name);
	END LOOP;
	RAISE NOTICE '%', regexp_replace(said, '([Rr]un )\d+\M(?!-)', '\1RUN', 'g');
END
$$;
SELECT outcome FROM job_idem.define_job('messages', batch_size => 3, max_lease => '1 hour');
SELECT run_id FROM job_idem.open_run('messages', '2026-11-30', params => '{"a": 1}') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d}', ARRAY['1', NULL, NULL, NULL]::jsonb[]);
SELECT job_idem.seal_run(:run_id);
SELECT min(token) AS token FROM job_idem.claim_items('messages') \gset
INSERT INTO ids VALUES ('TOKEN', :'token'), ('RUN', :'run_id');

-- JI001: an item that is not in the claim, a number that is not the claim's, a token that is none
CALL pg_temp.say('SELECT job_idem.mark_done(TOKEN, ''d'')');
CALL pg_temp.say('SELECT job_idem.mark_all_done(TOKEN, 2)');
CALL pg_temp.say('SELECT job_idem.mark_done(999999999999, ''a'')');
CALL pg_temp.say('SELECT job_idem.claim_status(999999999999)');
-- JI010: done before, by itself, with others, and the whole
SELECT job_idem.mark_done(:token, 'a');
CALL pg_temp.say('SELECT job_idem.mark_done(TOKEN, ''a'')');
CALL pg_temp.say('SELECT job_idem.mark_done_many(TOKEN, ''{a,b}'')');
CALL pg_temp.say('SELECT job_idem.mark_all_done(TOKEN, 3)');
SELECT job_idem.step_done(:token, 'b', 'fetch', '1');
CALL pg_temp.say('SELECT job_idem.step_done(TOKEN, ''b'', ''fetch'')');
CALL pg_temp.say('SELECT job_idem.step_done(TOKEN, ''b'', '''')');
SELECT job_idem.mark_all_done(:token, 2, '{a}');
CALL pg_temp.say('SELECT job_idem.mark_all_done(TOKEN, 2, ''{a}'')');
-- JI001 after the end of a claim, and past max_lease
SELECT min(token) AS other FROM job_idem.claim_items('messages') \gset
INSERT INTO ids VALUES ('OTHER', :'other');
SET job_idem.clock_offset = 4000;
CALL pg_temp.say('SELECT job_idem.hold(OTHER)');
CALL pg_temp.say('SELECT job_idem.step_done(OTHER, ''d'', ''fetch'')');
SELECT job_idem.expire_lease(:other, 'x');
CALL pg_temp.say('SELECT job_idem.heartbeat(OTHER)');
CALL pg_temp.say('SELECT job_idem.mark_all_done(OTHER, 1)');
-- JI006, JI009
CALL pg_temp.say('SELECT job_idem.open_run(''messages'', ''2026-11-30'')');
CALL pg_temp.say('SELECT job_idem.open_run(''messages'', ''2026-12-01'', ''2026-11-30'', ''{"a": 1}'')');
CALL pg_temp.say($$SELECT job_idem.add_items(RUN, '{a}', ARRAY['2']::jsonb[])$$);
CALL pg_temp.say($$SELECT job_idem.add_items(RUN, ARRAY['x', repeat('k', 600)])$$);
CALL pg_temp.say($$SELECT job_idem.add_items(RUN, '{x}', ARRAY[to_jsonb(repeat('x', 1048600))])$$);
-- JI002, JI003
CALL pg_temp.say('SELECT * FROM job_idem.claim_items(''no such job'')');
CALL pg_temp.say('SELECT job_idem.seal_run(0)');
CALL pg_temp.say('SELECT job_idem.claim_item(''messages'', ''2026-12-24'', ''x'')');
-- JI004
SELECT job_idem.cancel_run(:run_id, 'wrong file', force => true);
CALL pg_temp.say($$SELECT job_idem.add_items(RUN, '{x}')$$);
CALL pg_temp.say('SELECT job_idem.mark_done(TOKEN, ''b'')');
-- NULL and the like
CALL pg_temp.say('SELECT job_idem.open_run(''messages'', NULL)');
CALL pg_temp.say('SELECT job_idem.open_run(''messages'', ''infinity'')');
CALL pg_temp.say('SELECT job_idem.cancel_run(RUN, '''')');
CALL pg_temp.say('CALL job_idem.tick()');
CALL pg_temp.say('SELECT job_idem.replay(0)');
