-- Who may do what: levels on all jobs, rights on single jobs, nothing for anybody else (P1, P2, C20).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';

CREATE ROLE access_viewer;
CREATE ROLE access_worker;
CREATE ROLE access_operator;
CREATE ROLE access_own_worker;
CREATE ROLE access_other_worker;
CREATE ROLE access_owner;
CREATE ROLE access_member IN ROLE access_worker;
CREATE ROLE access_let_in;
CREATE ROLE access_nobody;
SELECT job_idem.grant_access('access_viewer', 'viewer');
SELECT job_idem.grant_access('access_worker', 'worker');
SELECT job_idem.grant_access('access_operator', 'operator');

-- A job x with an owner of its own, who has no level, and a job y. The owner is let in by hand, and so is one who has no
-- right whatever: EXECUTE alone must get him nowhere.
CREATE FUNCTION pg_temp.let_in(role name) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	object text;
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA job_idem TO %I', role);
	FOR object IN SELECT p.object FROM job_idem.privilege p
	LOOP
		EXECUTE format('GRANT %s ON %s TO %I', CASE WHEN object LIKE 'TABLE %' THEN 'SELECT' ELSE 'EXECUTE' END,
			object, role);
	END LOOP;
END
$$;
SELECT pg_temp.let_in('access_owner');
SELECT pg_temp.let_in('access_let_in');
GRANT EXECUTE ON FUNCTION job_idem.grant_access, job_idem.revoke_access, job_idem.advance_epoch TO access_let_in;
SET ROLE access_owner;
SELECT outcome FROM job_idem.define_job('access x', batch_size => 2);
SELECT outcome FROM job_idem.define_job('access x keyed', 'keyed');
RESET ROLE;
SELECT outcome FROM job_idem.define_job('access y');
SELECT job_idem.grant_worker('access x', 'access_own_worker');
SELECT job_idem.grant_worker('access x keyed', 'access_own_worker');
SELECT job_idem.grant_worker('access y', 'access_other_worker');

-- a run of x with an open claim and a dead letter
SELECT run_id FROM job_idem.open_run('access x', '2026-11-30') \gset
SELECT n_new FROM job_idem.add_items(:run_id, '{a,b,c,d,e,f}');
SELECT n_slices FROM job_idem.seal_run(:run_id);
SELECT token AS dead_token FROM job_idem.claim_items('access x') LIMIT 1 \gset
SELECT state FROM job_idem.mark_failed(:dead_token, 'a', transient => false);
SELECT dead_letter_id FROM job_idem.dead_letters WHERE run_id = :run_id \gset
SELECT token FROM job_idem.claim_items('access x') LIMIT 1 \gset
SELECT outcome FROM job_idem.open_run('access y', '2026-11-30');

SELECT job_idem.define_calendar('access');

-- Runs a call as a role and undoes it: yes, no (42501), or what else became of it.
CREATE FUNCTION pg_temp.may(role name, call text) RETURNS text STRICT LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	EXECUTE call;
	RAISE SQLSTATE 'ZZ000';
EXCEPTION
	WHEN SQLSTATE 'ZZ000' THEN RETURN 'yes';
	WHEN insufficient_privilege THEN RETURN '-';
	WHEN OTHERS THEN RETURN SQLSTATE;
END
$$;

-- One call for everything that a role can be granted; what has none shows as a row of blanks.
CREATE TEMP TABLE call (name text, statement text);
INSERT INTO call VALUES
	('jobs', 'SELECT FROM job_idem.jobs'),
	('runs', 'SELECT FROM job_idem.runs'),
	('items', 'SELECT FROM job_idem.items'),
	('leases', 'SELECT FROM job_idem.leases'),
	('progress', 'SELECT FROM job_idem.progress'),
	('dead_letters', 'SELECT FROM job_idem.dead_letters'),
	('failures', 'SELECT FROM job_idem.failures'),
	('error_rules', 'SELECT FROM job_idem.error_rules'),
	('stuck', 'SELECT FROM job_idem.stuck'),
	('dependencies', 'SELECT FROM job_idem.dependencies'),
	('dag', $$SELECT job_idem.dag('dot', 'access x')$$),
	('calendars', 'SELECT FROM job_idem.calendars'),
	('calendar_days', 'SELECT FROM job_idem.calendar_days'),
	('is_open_day', $$SELECT job_idem.is_open_day('access', '2026-11-30')$$),
	('shift_open_days', $$SELECT job_idem.shift_open_days('access', '2026-11-30', 1)$$),
	('version', 'SELECT job_idem.version()'),
	('now', 'SELECT job_idem.now()'),
	('may_view', 'SELECT job_idem.may_view(1)'),
	('lease_holders', 'SELECT job_idem.lease_holders(' || :token || ')'),
	('is_done', $$SELECT job_idem.is_done('access x', '2026-11-30')$$),
	('claim_status', 'SELECT job_idem.claim_status(' || :token || ')'),
	('item_transitions', 'SELECT FROM job_idem.item_transitions()'),
	('run_transitions', 'SELECT FROM job_idem.run_transitions()'),
	('audit', 'SELECT FROM job_idem.audit(' || :run_id || ')'),
	('backoff_delay', 'SELECT job_idem.backoff_delay(1)'),
	('open_run', $$SELECT job_idem.open_run('access x', '2026-12-01')$$),
	('add_items', 'SELECT job_idem.add_items(' || :run_id || $$, '{late}')$$),
	('load_items', 'SELECT job_idem.load_items(' || :run_id || $$, 'VALUES (''late'')')$$),
	('seal_run', 'SELECT job_idem.seal_run(' || :run_id || ')'),
	('claim_items', $$SELECT FROM job_idem.claim_items('access x')$$),
	('claim_item', $$SELECT job_idem.claim_item('access x keyed', '2026-11-30', 'k')$$),
	('mark_all_done', 'SELECT job_idem.mark_all_done(' || :token || ', 2)'),
	('mark_done', 'SELECT job_idem.mark_done(' || :token || $$, 'c')$$),
	('mark_done_many', 'SELECT job_idem.mark_done_many(' || :token || $$, '{c,d}')$$),
	('mark_failed', 'SELECT job_idem.mark_failed(' || :token || $$, 'c')$$),
	('mark_failed_many', 'SELECT FROM job_idem.mark_failed_many(' || :token || $$, '{c,d}')$$),
	('postpone', 'SELECT job_idem.postpone(' || :token || $$, 'c', '1 hour')$$),
	('release', 'SELECT job_idem.release(' || :token || ')'),
	('heartbeat', 'SELECT job_idem.heartbeat(' || :token || ')'),
	('hold', 'SELECT job_idem.hold(' || :token || ')'),
	('step_done', 'SELECT job_idem.step_done(' || :token || $$, 'c', 's')$$),
	('steps', 'SELECT FROM job_idem.steps(' || :token || $$, 'c')$$),
	('define_job', $$SELECT job_idem.define_job('access x')$$),
	('pause_job', $$SELECT job_idem.pause_job('access x')$$),
	('resume_job', $$SELECT job_idem.resume_job('access x')$$),
	('drop_job', $$SELECT job_idem.drop_job('access x keyed')$$),
	('grant_worker', $$SELECT job_idem.grant_worker('access x', 'access_nobody')$$),
	('revoke_worker', $$SELECT job_idem.revoke_worker('access x', 'access_own_worker')$$),
	('add_dependency', $$SELECT job_idem.add_dependency('access x', 'access x', -1)$$),
	('drop_dependency', $$SELECT job_idem.drop_dependency('access x', 'access x', -1)$$),
	('define_calendar', $$SELECT job_idem.define_calendar('access')$$),
	('set_calendar_day', $$SELECT job_idem.set_calendar_day('access', '2026-11-30', true)$$),
	('load_calendar', $$SELECT job_idem.load_calendar('access', 'SELECT date ''2026-11-30'', true')$$),
	('drop_calendar', $$SELECT job_idem.drop_calendar('access')$$),
	('cancel_run', 'SELECT job_idem.cancel_run(' || :run_id || $$, 'test')$$),
	('cron_next', $$SELECT job_idem.cron_next('@daily')$$),
	('cron_previous', $$SELECT job_idem.cron_previous('@daily')$$),
	('cron_fires', $$SELECT job_idem.cron_fires('@daily', '2026-11-30', '2026-12-01')$$),
	('cron_explain', $$SELECT job_idem.cron_explain('@daily')$$),
	('plan', $$SELECT FROM job_idem.plan('access x', '2026-11-30', '2026-11-30')$$),
	('backfill', $$SELECT FROM job_idem.backfill('access x', '2026-11-30', '2026-11-30')$$),
	('unblock_run', 'SELECT job_idem.unblock_run(' || :run_id || $$, 'test')$$),
	('install_ticks', 'SELECT job_idem.install_ticks()'),
	('remove_ticks', 'SELECT job_idem.remove_ticks()'),
	('pause_run', 'SELECT job_idem.pause_run(' || :run_id || $$, 'test')$$),
	('resume_run', 'SELECT job_idem.resume_run(' || :run_id || ')'),
	('set_error_rule', $$SELECT job_idem.set_error_rule('transient', '23', job => 'access x')$$),
	('drop_error_rule', $$SELECT job_idem.drop_error_rule('23', job => 'access x')$$),
	('expire_lease', 'SELECT job_idem.expire_lease(' || :token || $$, 'test')$$),
	('end_holder', 'SELECT job_idem.end_holder(' || :token || ')'),
	('replay', 'SELECT job_idem.replay(' || :dead_letter_id || ')'),
	('replay_run', 'SELECT job_idem.replay_run(' || :run_id || ')'),
	('discard', 'SELECT job_idem.discard(' || :dead_letter_id || ')'),
	-- gets as far as finding itself in a transaction
	('tick', 'CALL job_idem.tick()'),
	-- nobody is granted these
	('grant_access', $$SELECT job_idem.grant_access('access_nobody', 'viewer')$$),
	('revoke_access', $$SELECT job_idem.revoke_access('access_viewer')$$),
	('advance_epoch', 'SELECT job_idem.advance_epoch()');
SELECT coalesce(p.level, 'owner only') AS level, coalesce(p.name, s.name) AS object, viewer, worker, operator, own_worker,
	other_worker, owner, member, let_in, nobody
FROM (SELECT *, substring(object FROM 'job_idem\.(\w+)') AS name FROM job_idem.privilege) p
	FULL JOIN call s USING (name)
	CROSS JOIN LATERAL pg_temp.may('access_viewer', s.statement) AS viewer
	CROSS JOIN LATERAL pg_temp.may('access_worker', s.statement) AS worker
	CROSS JOIN LATERAL pg_temp.may('access_operator', s.statement) AS operator
	CROSS JOIN LATERAL pg_temp.may('access_own_worker', s.statement) AS own_worker
	CROSS JOIN LATERAL pg_temp.may('access_other_worker', s.statement) AS other_worker
	CROSS JOIN LATERAL pg_temp.may('access_owner', s.statement) AS owner
	CROSS JOIN LATERAL pg_temp.may('access_member', s.statement) AS member
	CROSS JOIN LATERAL pg_temp.may('access_let_in', s.statement) AS let_in
	CROSS JOIN LATERAL pg_temp.may('access_nobody', s.statement) AS nobody
ORDER BY array_position('{viewer,worker,operator}', p.level), object;
SELECT * FROM job_idem.audit(:run_id);

-- what each sees: rows of x and of y
CREATE FUNCTION pg_temp.sees(role name, job text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	seen text;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	EXECUTE format('SELECT concat_ws('','', (SELECT count(*) FROM job_idem.jobs WHERE job = %1$L),
		(SELECT count(*) FROM job_idem.runs WHERE job = %1$L), (SELECT count(*) FROM job_idem.items WHERE job = %1$L),
		(SELECT count(*) FROM job_idem.leases WHERE job = %1$L), (SELECT count(*) FROM job_idem.progress WHERE job = %1$L),
		(SELECT count(*) FROM job_idem.dead_letters WHERE job = %1$L))', job) INTO seen;
	RESET ROLE;
	RETURN seen;
END
$$;
SELECT role, pg_temp.sees(role, 'access x') AS x, pg_temp.sees(role, 'access y') AS y
FROM unnest('{access_viewer,access_worker,access_operator,access_own_worker,access_other_worker,access_owner,
	access_member,access_let_in}'::name[]) WITH ORDINALITY AS r (role, n) ORDER BY n;
SELECT job_idem.may_view(NULL);
SET ROLE access_let_in;
SELECT job_idem.may_view(-1);
RESET ROLE;

-- nobody but the owner has anything of a table or a sequence, nor may create in the schema
SELECT r.rolname, c.relname FROM pg_roles r CROSS JOIN pg_class c
WHERE c.relnamespace = 'job_idem'::regnamespace AND c.relkind IN ('r', 'S') AND NOT r.rolsuper
	AND CASE c.relkind WHEN 'S' THEN has_sequence_privilege(r.oid, c.oid, 'USAGE, SELECT, UPDATE')
		ELSE has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
			OR has_any_column_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, REFERENCES') END
	AND NOT pg_has_role(r.oid, 'pg_read_all_data', 'USAGE') AND NOT pg_has_role(r.oid, 'pg_write_all_data', 'USAGE');
SELECT rolname FROM pg_roles WHERE NOT rolsuper AND has_schema_privilege(oid, 'job_idem', 'CREATE');

-- a second grant replaces the level, up and down
CREATE TEMP VIEW granted AS
SELECT CASE WHEN has_schema_privilege('access_nobody', 'job_idem', 'USAGE') THEN 'usage' ELSE '-' END AS schema, level,
	count(*) FILTER (WHERE CASE WHEN object LIKE 'TABLE %'
		THEN has_table_privilege('access_nobody', substr(object, 7), 'SELECT')
		ELSE has_function_privilege('access_nobody', substring(object FROM ' (.*)'), 'EXECUTE') END) AS granted,
	count(*) AS of
FROM job_idem.privilege GROUP BY level ORDER BY array_position('{viewer,worker,operator}', level);
SELECT job_idem.grant_access('access_nobody', 'viewer');
TABLE granted;
SELECT job_idem.grant_access('access_nobody', 'operator');
TABLE granted;
SELECT job_idem.grant_access('access_nobody', 'viewer');
TABLE granted;
-- a right on one job keeps what its worker needs, whatever happens to the level
SELECT job_idem.grant_worker('access y', 'access_nobody');
SELECT job_idem.grant_worker('access y', 'access_nobody');
TABLE granted;
SELECT job_idem.grant_access('access_nobody', 'operator');
SELECT job_idem.revoke_access('access_nobody');
SELECT job_idem.revoke_access('access_nobody');
TABLE granted;
SELECT job_idem.grant_worker('access x', 'access_nobody');
SELECT job_idem.revoke_worker('access y', 'access_nobody');
TABLE granted;
SELECT job_idem.revoke_worker('access x', 'access_nobody');
SELECT job_idem.revoke_worker('access x', 'access_nobody');
TABLE granted;
SELECT e.verb, e.detail - 'role' AS detail, j.name AS job, e.by = current_user AS by_me
FROM job_idem.event e LEFT JOIN job_idem.job j USING (job_id) WHERE e.detail->>'role' = 'access_nobody' ORDER BY event_id;

-- what there is not
SELECT job_idem.grant_access('access_nobody', 'admin');
SELECT job_idem.grant_access('access_nobody', NULL);
SELECT job_idem.grant_access('no such role', 'viewer');
SELECT job_idem.grant_access('public', 'viewer');
SELECT job_idem.grant_access(NULL, 'viewer');
SELECT job_idem.revoke_access('no such role');
SELECT job_idem.grant_worker('no such job', 'access_nobody');
SELECT job_idem.grant_worker('access x', 'no such role');
SELECT job_idem.grant_worker('access x', NULL);
SELECT job_idem.revoke_worker('access x', 'no such role');
-- role names are names
CREATE ROLE "Access ""Quoted"", 结算; --";
SELECT job_idem.grant_access('Access "Quoted", 结算; --', 'operator');
SELECT has_function_privilege('Access "Quoted", 结算; --', 'job_idem.pause_job(text, text)', 'EXECUTE') AS granted;
SELECT detail FROM job_idem.event WHERE verb = 'grant_access' ORDER BY event_id DESC LIMIT 1;
SELECT job_idem.revoke_access('Access "Quoted", 结算; --');
DROP ROLE "Access ""Quoted"", 结算; --";

SELECT job_idem.revoke_access('access_viewer'), job_idem.revoke_access('access_worker'),
	job_idem.revoke_access('access_operator'), job_idem.revoke_worker('access x', 'access_own_worker'),
	job_idem.revoke_worker('access x keyed', 'access_own_worker'), job_idem.revoke_worker('access y', 'access_other_worker');
DROP OWNED BY access_owner, access_let_in;
DROP ROLE access_member, access_viewer, access_worker, access_operator, access_own_worker, access_other_worker, access_owner,
	access_let_in, access_nobody;
