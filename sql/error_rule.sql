-- What kind of failure an error is: 40 SQLSTATEs by default; rules by SQLSTATE prefix and error class, for a job or for
-- all, the most specific first; the caller's word before all (R1); what none knows, as the job says (R2); bad rules change
-- nothing (R12).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('rule', batch_size => 1000, retry_budget => NULL);
SELECT outcome FROM job_idem.define_job('rule hopeful', batch_size => 1000, unknown_as => 'transient', retry_budget => NULL);

-- What would become of an item that fails so; nothing is kept.
CREATE FUNCTION pg_temp.verdict(job text, code text, class text DEFAULT NULL, transient boolean DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r bigint;
	t bigint;
	verdict text;
BEGIN
	BEGIN
		SELECT run_id INTO r FROM job_idem.open_run(job, '2026-11-30', 'v');
		PERFORM job_idem.add_items(r, '{k}');
		PERFORM job_idem.seal_run(r);
		SELECT token INTO t FROM job_idem.claim_items(job, run_key => 'v');
		SELECT state INTO verdict FROM job_idem.mark_failed(t, 'k', 'message', code, class, transient);
		SELECT kind || ' ' || verdict || CASE WHEN f.sqlstate IS DISTINCT FROM code OR f.error_class IS DISTINCT FROM class
			THEN ' not as reported' ELSE '' END INTO verdict FROM job_idem.failures f WHERE token = t;
		RAISE SQLSTATE 'ZZ000';
	EXCEPTION
		WHEN SQLSTATE 'ZZ000' THEN NULL;
	END;
	RETURN verdict;
END
$$;

-- by default
SELECT pg_temp.verdict('rule', code) AS verdict, string_agg(code, ' ' ORDER BY code)
FROM unnest('{01000,02000,08000,08001,08003,08006,0A000,21000,22001,22003,22012,22P02,23502,23503,23505,23514,25001,25P02,
	25P03,28000,40001,40002,40P01,42501,42601,53000,53100,53200,53300,54000,55000,55006,55P03,57014,57P01,57P05,58030,58P01,
	P0001,XX000}'::text[]) AS code GROUP BY 1 ORDER BY 1;
-- what no rule knows
SELECT pg_temp.verdict('rule', NULL), pg_temp.verdict('rule hopeful', NULL), pg_temp.verdict('rule', ''),
	pg_temp.verdict('rule', NULL, 'SomeError'), pg_temp.verdict('rule hopeful', NULL, 'SomeError');
SELECT pg_temp.verdict('rule hopeful', NULL, transient => false), pg_temp.verdict('rule', NULL, transient => true);

-- a rule for all, one for the job, the caller's word
SELECT job_idem.set_error_rule('transient', '23505');
SELECT pg_temp.verdict('rule', '23505'), pg_temp.verdict('rule hopeful', '23505'), pg_temp.verdict('rule', '23503');
SELECT job_idem.set_error_rule('business', '23505', job => 'rule', note => 'a duplicate stays one');
SELECT pg_temp.verdict('rule', '23505'), pg_temp.verdict('rule hopeful', '23505');
SELECT pg_temp.verdict('rule', '23505', transient => true), pg_temp.verdict('rule hopeful', '23505', transient => false);
-- the longer prefix, whosever it is
SELECT job_idem.set_error_rule('business', '40', job => 'rule');
SELECT job_idem.set_error_rule('transient', '40001');
SELECT job_idem.set_error_rule('business', '4000', job => 'rule hopeful');
SELECT pg_temp.verdict('rule', '40001'), pg_temp.verdict('rule', '40P01'), pg_temp.verdict('rule hopeful', '40001'),
	pg_temp.verdict('rule hopeful', '40002'), pg_temp.verdict('rule hopeful', '40P01');

-- classes: * is any characters, ? any one; the pattern is for the whole class
SELECT job_idem.set_error_rule('transient', error_class => '*Timeout*');
SELECT job_idem.set_error_rule('business', error_class => 'LockTimeout?');
SELECT job_idem.set_error_rule('business', error_class => 'java.net.SocketTimeoutException', job => 'rule');
SELECT class, pg_temp.verdict('rule', '22000', class), pg_temp.verdict('rule hopeful', NULL, class)
FROM unnest('{Timeout,ReadTimeoutError,timeout,LockTimeout,LockTimeouts,LockTimeoutß,LockTimeoutss,
	java.net.SocketTimeoutException,java.net.SocketTimeoutExceptions,Tim,""}'::text[]) WITH ORDINALITY AS c (class, n) ORDER BY n;
-- a class beats a SQLSTATE that is as specific; a whole SQLSTATE beats a pattern, however long
SELECT job_idem.set_error_rule('business', error_class => 'SerializationFailure');
SELECT job_idem.set_error_rule('business', error_class => 'psycopg.errors.Serialization*');
SELECT pg_temp.verdict('rule', '40001', 'SerializationFailure'),
	pg_temp.verdict('rule', '40001', 'psycopg.errors.SerializationFailure'),
	pg_temp.verdict('rule', '40002', 'psycopg.errors.SerializationFailure');
-- many stars end
SELECT job_idem.set_error_rule('transient', error_class => repeat('*a', 50) || '*b');
SELECT pg_temp.verdict('rule', NULL, repeat('a', 199)), pg_temp.verdict('rule', NULL, repeat('a', 199) || 'b');
SELECT job_idem.drop_error_rule(error_class => repeat('*a', 50) || '*b');

-- set again: only a change counts; dropped: the defaults are back
SELECT job_idem.set_error_rule('transient', '23505'), job_idem.set_error_rule('business', '23505');
SELECT * FROM job_idem.error_rules ORDER BY job NULLS FIRST, sqlstate, error_class;
SELECT job_idem.drop_error_rule('23505'), job_idem.drop_error_rule('23505'), job_idem.drop_error_rule('23505', job => 'rule');
SELECT pg_temp.verdict('rule', '23505'), pg_temp.verdict('rule hopeful', '23505');
SELECT verb, detail FROM job_idem.event WHERE verb IN ('set_error_rule', 'drop_error_rule') AND detail->>'sqlstate' = '23505'
ORDER BY event_id;

-- refused
CREATE FUNCTION pg_temp.try(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE call;
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;
CREATE TEMP TABLE before AS SELECT * FROM job_idem.error_rule;
SELECT call, pg_temp.try('SELECT job_idem.set_error_rule(' || call || ')') FROM unnest(ARRAY[
	$$'transient'$$, $$'transient', '40', 'Error'$$, $$'lost', '40'$$, $$NULL, '40'$$, $$'transient', ''$$, $$'transient', '400011'$$,
	$$'transient', '40p01'$$, $$'transient', '4%'$$, $$'transient', error_class => ''$$,
	$$'transient', error_class => repeat('x', 201)$$, $$'transient', '40', job => 'nobody'$$]) AS call;
SELECT pg_temp.try('SELECT job_idem.drop_error_rule()'), pg_temp.try($$SELECT job_idem.drop_error_rule('40', job => 'nobody')$$);
SELECT count(*) FROM ((TABLE before EXCEPT TABLE job_idem.error_rule) UNION ALL (TABLE job_idem.error_rule EXCEPT TABLE before)) x;

-- a rule for all needs a right on all
CREATE ROLE rule_owner;
SELECT job_idem.grant_access('rule_owner', 'operator');
SELECT job_idem.revoke_access('rule_owner');
SELECT job_idem.grant_worker('rule', 'rule_owner');
GRANT EXECUTE ON FUNCTION job_idem.set_error_rule, job_idem.drop_error_rule TO rule_owner;
SET ROLE rule_owner;
SELECT job_idem.set_error_rule('transient', '99');
SELECT job_idem.set_error_rule('transient', '99', job => 'rule');
RESET ROLE;
SELECT bool_and(job_idem.drop_error_rule(sqlstate, error_class, job)) FROM job_idem.error_rules;
SELECT count(*) FROM job_idem.error_rules;
SELECT job_idem.revoke_worker('rule', 'rule_owner');
DROP OWNED BY rule_owner;
DROP ROLE rule_owner;
