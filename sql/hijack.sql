-- No name of a caller's schema is ever used (P2, C20): not by the install script, not by a verb, not by a view. A schema
-- early in the path has a function and an operator for almost everything that our statements could call, with the very
-- argument types, and tables and types of our names; so has pg_temp. A decoy that runs leaves a mark that no rollback
-- removes.
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
DROP EXTENSION job_idem;
CREATE SCHEMA hijack;
CREATE SEQUENCE hijack.ran;
CREATE FUNCTION pg_temp.argument_types() RETURNS oid[] LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(t::regtype::oid) FROM unnest('{bigint,integer,smallint,text,name,boolean,jsonb,interval,timestamptz,
		date,numeric,"double precision",oid,bigint[],integer[],text[],jsonb[],anyarray,anyelement,anycompatible,
		anycompatiblearray,anynonarray}'::text[]) t
$$;
CREATE FUNCTION pg_temp.make_decoys() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	made record;
	body text := 'BEGIN PERFORM pg_catalog.nextval(''hijack.ran''); RAISE ''decoy ran''; END';
BEGIN
	FOR made IN SELECT p.proname, p.oid::regprocedure AS of, p.proargtypes::oid[] AS types, p.proretset,
			format_type(p.prorettype, NULL) AS result, array_to_string(ARRAY(
				SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n) ORDER BY n), ', ') AS arguments
		FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.provariadic = 0 AND p.prokind IN ('f', 'a')
			AND p.proargtypes::oid[] <@ pg_temp.argument_types() AND p.prorettype <> 'internal'::regtype
			AND (p.prorettype = ANY (pg_temp.argument_types()) OR p.prorettype = 'record'::regtype)
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION hijack.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS %L', made.proname,
				made.arguments, CASE WHEN made.proretset THEN 'SETOF' END, made.result, body);
		EXCEPTION WHEN invalid_function_definition OR duplicate_function THEN
			NULL;
		END;
	END LOOP;
	FOR made IN SELECT o.oprname, format_type(o.oprleft, NULL) AS left_type, format_type(o.oprright, NULL) AS right_type,
			format_type(o.oprresult, NULL) AS result, row_number() OVER () AS n
		FROM pg_catalog.pg_operator o
		WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND ARRAY[o.oprleft, o.oprright] <@ pg_temp.argument_types()
	LOOP
		EXECUTE format('CREATE FUNCTION hijack.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', made.n,
			made.left_type, made.right_type, made.result, body);
		EXECUTE format('CREATE OPERATOR hijack.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = hijack.operator_%s)',
			made.oprname, made.left_type, made.right_type, made.n);
	END LOOP;
	FOR made IN SELECT unnest('{epoch,job,job_version,access,job_worker,run,run_trigger,tally,item,lease,failure,
		dead_letter,item_step,event,privilege,calendar,calendar_day,dependency,jobs,runs,items,leases,progress,dead_letters,calendars,
		calendar_days,dependencies}'::name[]) AS relation
	LOOP
		EXECUTE format('CREATE TEMP TABLE %I (nothing integer)', made.relation);
		EXECUTE format('CREATE TABLE hijack.%I (nothing integer)', made.relation);
	END LOOP;
	FOR made IN SELECT unnest('{text,int8,int4,jsonb,regrole,name,timestamptz,interval,bool,date}'::name[]) AS type
	LOOP
		EXECUTE format('CREATE TYPE pg_temp.%I AS ENUM ()', made.type);
		EXECUTE format('CREATE TYPE hijack.%I AS ENUM ()', made.type);
	END LOOP;
END
$$;
SELECT pg_temp.make_decoys();
SELECT count(*) > 500 AS many FROM pg_proc WHERE pronamespace = 'hijack'::regnamespace;
CREATE FUNCTION hijack.refuse_change() RETURNS trigger LANGUAGE plpgsql AS
	$$BEGIN PERFORM pg_catalog.nextval('hijack.ran'); RETURN NULL; END$$;
-- they work: this is what is not to happen below
SET search_path = hijack, pg_catalog, pg_temp;
SELECT 1::bigint + 1::bigint;
SELECT last_value FROM hijack.ran;
SELECT pg_catalog.setval('hijack.ran', 1, false);

-- a whole life in that path, as the one who may everything
CREATE EXTENSION job_idem;
SELECT outcome FROM job_idem.define_job('hijack', batch_size => 3, item_source => $$VALUES ('a'), ('b'), ('c'), ('d')$$);
SELECT outcome FROM job_idem.define_job('hijack', batch_size => 3, item_source => $$VALUES ('a'), ('b'), ('c'), ('d')$$);
SELECT outcome FROM job_idem.define_job('hijack', batch_size => 2, item_source => $$VALUES ('a'), ('b'), ('c'), ('d')$$);
SELECT outcome FROM job_idem.define_job('hijack', item_source => 'SELECT nothing FROM hijack');
SELECT outcome FROM job_idem.define_job('hijack keyed', 'keyed');
SELECT outcome FROM job_idem.define_job('hijack list');
SELECT run_id, state FROM job_idem.open_run('hijack', '2026-11-30') \gset
SELECT run_id AS list_id FROM job_idem.open_run('hijack list', '2026-11-30', params => '{"a": 1}') \gset
SELECT outcome FROM job_idem.open_run('hijack list', '2026-11-30', params => '{"a": 2}');
SELECT * FROM job_idem.add_items(:list_id, '{a,b,a}', '{1,2,1}');
SELECT * FROM job_idem.add_items(:list_id, '{a,c}', '{1,3}');
SELECT * FROM job_idem.add_items(:list_id, '{a}', '{2}');
SELECT * FROM job_idem.load_items(:list_id, $$VALUES ('c'), ('d')$$);
SELECT * FROM job_idem.seal_run(:list_id);
SELECT * FROM job_idem.add_items(:list_id, '{late}');
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT job_idem.hold(:token, 'a');
SELECT job_idem.heartbeat(:token, '1 minute');
SELECT job_idem.step_done(:token, 'a', 'step', '{"result": 1}');
SELECT step, result FROM job_idem.steps(:token, 'a');
SELECT job_idem.mark_done(:token, 'a', '{"result": 1}');
SELECT job_idem.mark_done(:token, 'a');
SELECT state FROM job_idem.mark_failed(:token, 'b', 'message', '40001');
SELECT * FROM job_idem.claim_status(:token);
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT job_idem.mark_all_done(:token, 1, '{c}');
SELECT job_idem.mark_all_done(:token, 2);
SET job_idem.clock_offset = 3600;
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT job_idem.postpone(:token, 'b', '1 second');
SET job_idem.clock_offset = 7200;
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT job_idem.release(:token);
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT job_idem.expire_lease(:token, 'test');
SET job_idem.clock_offset = 10800;
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT * FROM job_idem.mark_failed(:token, 'b', transient => false);
CALL job_idem.tick();
SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id OPERATOR(pg_catalog.=) :run_id;
SELECT job_idem.replay(1, 'again');
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT * FROM job_idem.mark_failed(:token, 'b', transient => false);
SELECT job_idem.replay_run(:run_id, note => 'again');
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT * FROM job_idem.mark_failed(:token, 'b', 'message', '23514', 'Check', false);
SELECT job_idem.replay_run(:run_id, 'Ch*', '23');
SELECT token FROM job_idem.claim_items('hijack') LIMIT 1 \gset
SELECT * FROM job_idem.mark_failed(:token, 'b', transient => false);
SELECT job_idem.discard(4, 'no more');
SELECT job_idem.discard(4);
CALL job_idem.tick();
SELECT job_idem.is_done('hijack', '2026-11-30');
SELECT outcome, token AS key_token FROM job_idem.claim_item('hijack keyed', '2026-11-30', 'k', payload => '1') \gset
SELECT outcome FROM job_idem.claim_item('hijack keyed', '2026-11-30', 'k', payload => '2');
SELECT job_idem.mark_done_many(:key_token, '{k}', '{1}');
SELECT outcome, result FROM job_idem.claim_item('hijack keyed', '2026-11-30', 'k');
SELECT token FROM job_idem.claim_items('hijack list') LIMIT 1 \gset
SET job_idem.clock_offset = 20000;
CALL job_idem.tick();
SELECT job_idem.mark_done(:token, 'late');
SELECT token FROM job_idem.claim_items('hijack list', run_key => '2026-11-30') LIMIT 1 \gset
SELECT job_idem.cancel_run(:list_id, 'enough', true);
SELECT job_idem.heartbeat(:token);
CALL job_idem.tick();
SELECT job_idem.backoff_delay(3, key => 'k') OPERATOR(pg_catalog.>) '0' AS delay;
SELECT job_idem.advance_epoch('test');
SELECT job_idem.pause_job('hijack'), job_idem.resume_job('hijack'), job_idem.drop_job('hijack');
SELECT job_idem.define_calendar('hijack', 'MON-FRI', days_query => $$VALUES ('2026-12-25'::pg_catalog.date, false)$$);
SELECT job_idem.define_calendar('hijack', 'MON-SAT', 'changed');
SELECT job_idem.set_calendar_day('hijack', '2026-12-26', true), job_idem.set_calendar_day('hijack', '2026-12-26', NULL);
SELECT * FROM job_idem.load_calendar('hijack', $$VALUES ('2026-12-25'::pg_catalog.date, true, 'x'),
	('2026-12-26'::pg_catalog.date, false, 'x')$$);
SELECT job_idem.define_calendar('hijack', days_query => $$VALUES ('2026-12-26'::pg_catalog.date, false)$$);
SELECT job_idem.is_open_day('hijack', '2026-12-26'), job_idem.shift_open_days('hijack', '2026-12-25', 1);
SELECT job_idem.define_calendar('hijack 2'), job_idem.drop_calendar('hijack 2');
SELECT job_idem.add_dependency('hijack list', 'hijack keyed'), job_idem.add_dependency('hijack keyed', 'hijack keyed', -1);
SELECT job_idem.add_dependency('hijack keyed', 'hijack list');
SELECT job_idem.drop_dependency('hijack keyed', 'hijack keyed', -1);
SELECT job_idem.dag(), job_idem.dag('mermaid', 'hijack list');
CREATE ROLE hijack_role;
SELECT job_idem.grant_access('hijack_role', 'operator');
SELECT job_idem.grant_worker('hijack list', 'hijack_role');
SELECT job_idem.grant_access('hijack_role', 'viewer');
GRANT USAGE ON SCHEMA hijack TO hijack_role;
SET ROLE hijack_role;
SELECT job, state, owner FROM job_idem.jobs ORDER BY job USING OPERATOR(pg_catalog.<);
SELECT run_key, state, n_items, n_done, n_dead, trigger_count FROM job_idem.runs ORDER BY run_id USING OPERATOR(pg_catalog.<);
SELECT item_key, state, attempts, lost FROM job_idem.items
ORDER BY run_id USING OPERATOR(pg_catalog.<), item_no USING OPERATOR(pg_catalog.<);
SELECT outcome, overdue, lease_kind, n_items, n_done FROM job_idem.leases ORDER BY token USING OPERATOR(pg_catalog.<);
SELECT run_key, done, dead, total, percent, bar FROM job_idem.progress ORDER BY run_id USING OPERATOR(pg_catalog.<);
SELECT item_key, status, reason, note FROM job_idem.dead_letters ORDER BY dead_letter_id USING OPERATOR(pg_catalog.<);
SELECT calendar, open_days, n_opened, n_closed, last_exception, note FROM job_idem.calendars;
SELECT calendar, day, is_open, note FROM job_idem.calendar_days;
SELECT job, upstream, date_offset, offset_unit, on_skipped, upstream_dropped FROM job_idem.dependencies;
SELECT * FROM job_idem.audit(:run_id);
SELECT * FROM job_idem.audit(:list_id);
RESET ROLE;
SELECT job_idem.revoke_worker('hijack list', 'hijack_role'), job_idem.revoke_access('hijack_role');
UPDATE job_idem.event SET verb = NULL;

-- none ran
SELECT last_value, is_called FROM hijack.ran;
RESET search_path;
REVOKE ALL ON SCHEMA hijack FROM hijack_role;
DROP ROLE hijack_role;
DROP SCHEMA hijack CASCADE;
