-- define_job: declarative, versioned, safe in every deploy (S16, C61); bad input changes nothing and names every fault
-- (R12); names of any kind (P14); item_source is checked, as the job's owner, when the job is defined (P3); at most once
-- needs batches of one (F25).
\set VERBOSITY sqlstate
\set define 'SELECT job_version, outcome FROM job_idem.define_job'

-- what an omitted argument means, by tier
:define('define standard');
:define('define critical', tier => 'critical', kind => 'keyed');
:define('define slow backoff', backoff_base => '1 minute');
\x
SELECT job, kind, tier, version, state, lease, takeover_delay, max_lease, at_max_lease, max_attempts, backoff_base,
	backoff_factor, backoff_max, unknown_as, retry_budget, failure_threshold, failure_window, batch_size, item_source,
	close_after
FROM job_idem.jobs WHERE job LIKE 'define %' ORDER BY job_id;
\x
SELECT owner = current_user AS owned_by_caller, created_at = changed_at AS never_changed
FROM job_idem.jobs WHERE job = 'define standard';

-- the same again changes nothing, whatever the session's settings, and however a default is spelled
CREATE TEMP VIEW written AS
SELECT j.ctid AS place, j.xmin AS writer, j.version, v.n AS versions, e.n AS events
FROM job_idem.job j,
	LATERAL (SELECT count(*) AS n FROM job_idem.job_version v WHERE v.job_id = j.job_id) v,
	LATERAL (SELECT count(*) AS n FROM job_idem.event e WHERE e.job_id = j.job_id) e
WHERE j.name LIKE 'define %';
CREATE TEMP TABLE before AS TABLE written;
:define('define standard');
:define('define standard', 'batch', lease => NULL, backoff_max => '240 seconds', version => 1);
:define('define critical', 'keyed', 'critical', takeover_delay => '60 seconds', lease => '900');
SET intervalstyle = iso_8601;
SET extra_float_digits = -15;
SET datestyle = 'German';
SET search_path = job_idem;
SELECT outcome FROM define_job('define slow backoff', backoff_base => 'PT1M', backoff_factor => 2.0);
RESET ALL;
(TABLE written EXCEPT ALL TABLE before) UNION ALL (TABLE before EXCEPT ALL TABLE written);

-- any other part makes the next version; the history keeps what was in force
:define('define standard', lease => '10 minutes');
:define('define standard', lease => '10 minutes', backoff_factor => 1.1);
:define('define standard', lease => '10 minutes', backoff_factor => 1.1);
:define('define standard');
SELECT v.version, v.definition->>'lease' AS lease, v.definition->'backoff_factor' AS backoff_factor,
	v.definition ? 'name' AS has_name, v.defined_by = current_user AS by_me, v.valid_from <= job_idem.now() AS in_past
FROM job_idem.job_version v JOIN job_idem.job j USING (job_id) WHERE j.name = 'define standard' ORDER BY v.version;
SELECT e.verb, e.detail, e.by = current_user AS by_me
FROM job_idem.event e JOIN job_idem.job j USING (job_id) WHERE j.name = 'define standard' ORDER BY event_id;
SELECT version, lease, changed_at > created_at AS changed FROM job_idem.jobs WHERE job = 'define standard';

-- a version may be named: the next one, or the one in force with the content that it has
:define('define named', version => 7);
:define('define named', version => 7);
:define('define named', version => 7, batch_size => 10);
:define('define named', version => 6);
:define('define named', version => 9, batch_size => 10);
:define('define named', version => 8, batch_size => 10);
:define('define named', version => 7);
:define('define named', version => 8, batch_size => 10);
-- the next version with the same content is a version too
:define('define named', version => 9, batch_size => 10);
:define('define named', batch_size => 10);
\set VERBOSITY terse
:define('define named', version => 3);
\set VERBOSITY sqlstate
-- there is an end to versions
:define('define last', version => 2147483647);
:define('define last', batch_size => 10);

-- enabled and pauses are no part of a definition: a deploy never resumes a job
SELECT job_idem.pause_job('define named', 'looking into it');
UPDATE job_idem.job SET enabled = false WHERE name = 'define slow backoff';
:define('define named');
:define('define slow backoff');
SELECT job, state, paused_at IS NOT NULL AS paused, paused_reason
FROM job_idem.jobs WHERE job IN ('define named', 'define slow backoff') ORDER BY job;

-- a dropped name is revived under its old id, always with the next version
SELECT job_id AS old_id FROM job_idem.jobs WHERE job = 'define critical' \gset
SELECT job_idem.drop_job('define critical', 'no longer needed');
SELECT state FROM job_idem.jobs WHERE job = 'define critical';
:define('define critical', 'keyed', 'critical', version => 1);
SELECT job_id = :old_id AS same_id, job_version, outcome
FROM job_idem.define_job('define critical', 'keyed', 'critical', version => 2);
SELECT state, dropped_at FROM job_idem.jobs WHERE job = 'define critical';
:define('define critical', 'keyed', 'critical');

-- the kind cannot change while a run is open
SELECT run_id FROM job_idem.open_run('define standard', '2026-11-30') \gset
:define('define standard', 'keyed');
:define('define standard', batch_size => 7);
-- and a run keeps the version and the batch size that it was opened with
SELECT version, batch_size FROM job_idem.runs WHERE run_id = :run_id;
SELECT job_idem.cancel_run(:run_id, 'to change the kind');
:define('define standard', 'keyed');
:define('define standard', 'batch');

-- every part refused, by name; nothing is written
CREATE FUNCTION pg_temp.refused(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	faults text;
BEGIN
	EXECUTE format('SELECT job_idem.define_job(%s)', arguments);
	RETURN 'accepted';
EXCEPTION WHEN SQLSTATE 'JI005' THEN
	GET STACKED DIAGNOSTICS faults = PG_EXCEPTION_DETAIL;
	RETURN faults;
END
$$;
SELECT count(*) AS n_jobs FROM job_idem.job \gset
SELECT arguments, pg_temp.refused(arguments) AS refused FROM unnest(ARRAY[
	$$NULL$$,
	$$''$$,
	$$repeat('x', 201)$$,
	$$'bad', NULL$$,
	$$'bad', 'sharded'$$,
	$$'bad', tier => NULL$$,
	$$'bad', tier => 'Critical'$$,
	$$'bad', lease => '0'$$,
	$$'bad', lease => '-1 second'$$,
	$$'bad', lease => '1 day 1 second'$$,
	$$'bad', lease => '178000000 years', max_lease => '178000000 years'$$,
	$$'bad', lease => '1001 years', max_lease => '1001 years', takeover_delay => '1001 years'$$,
	$$'bad', lease => '1 month -31 days'$$,
	$$'bad', takeover_delay => '-1 microsecond'$$,
	$$'bad', max_lease => NULL$$,
	$$'bad', max_lease => '4 minutes 59 seconds'$$,
	$$'bad', at_max_lease => 'kill'$$,
	$$'bad', at_max_lease => NULL$$,
	$$'bad', unknown_as => 'lost'$$,
	$$'bad', unknown_as => NULL$$,
	$$'bad', retry_budget => -0.1$$,
	$$'bad', retry_budget => 'NaN'$$,
	$$'bad', retry_budget => 'Infinity'$$,
	$$'bad', failure_threshold => 0$$,
	$$'bad', failure_threshold => 50$$,
	$$'bad', failure_threshold => 'NaN'$$,
	$$'bad', failure_window => '0'$$,
	$$'bad', failure_window => NULL$$,
	$$'bad', max_attempts => NULL$$,
	$$'bad', max_attempts => 0$$,
	$$'bad', max_attempts => 32768$$,
	$$'bad', max_attempts => 1$$,
	$$'bad', 'keyed', max_attempts => 1$$,
	$$'bad', backoff_base => NULL$$,
	$$'bad', backoff_base => '-1 second'$$,
	$$'bad', backoff_factor => NULL$$,
	$$'bad', backoff_factor => 0.99$$,
	$$'bad', backoff_factor => 'NaN'$$,
	$$'bad', backoff_factor => 'Infinity'$$,
	$$'bad', backoff_factor => '-Infinity'$$,
	$$'bad', backoff_max => '29 seconds'$$,
	$$'bad', backoff_max => '-1 second'$$,
	$$'bad', batch_size => NULL$$,
	$$'bad', batch_size => 0$$,
	$$'bad', batch_size => -5$$,
	$$'bad', batch_size => 100001$$,
	$$'bad', close_after => NULL$$,
	$$'bad', close_after => '-1 day'$$,
	$$'bad', version => 0$$,
	$$'bad', 'keyed', item_source => 'SELECT ''a'''$$
]) WITH ORDINALITY AS a (arguments, n) ORDER BY n;
SELECT count(*) = :n_jobs AS nothing_written FROM job_idem.job;

-- all of them at once, and what the error says
\set VERBOSITY default
SELECT job_idem.define_job('bad', 'x', 'y', '61 * * * *', 'Nowhere', 'no calendar', 9999, 'week', 'never', '-1 s', '0', 0, 'x', 'y',
	'-1 s', '-1 s', '-1 s', 'z', 0, '-1 s', 'NaN', '-2 s', 'lost', '-1', 'NaN', '0', 0, NULL, NULL, 0);
\set VERBOSITY sqlstate

-- the smallest and the largest that are allowed
:define('define least', lease => '1 microsecond', takeover_delay => '0', max_lease => '1 microsecond', max_attempts => 1,
	backoff_base => '0', backoff_factor => 1, backoff_max => '0', batch_size => 1, close_after => '0');
:define('define most', lease => '1000 years', takeover_delay => '1000 years', max_lease => '1000 years',
	max_attempts => 32767, backoff_base => '200000 years', backoff_factor => 1e300, batch_size => 100000,
	close_after => '200000 years');
:define('define most', lease => '1000 years', takeover_delay => '1000 years', max_lease => '1000 years',
	max_attempts => 32767, backoff_base => '200000 years', backoff_factor => 1e300, batch_size => 100000,
	close_after => '200000 years');

-- names are names
SELECT name, d.outcome, again.outcome
FROM unnest(ARRAY['define "quoted"', 'define ''quotes''', ' define blanks ', 'Define CAPITALS', 'define capitals',
	'结算日终', 'define; DROP TABLE job_idem.job; --', E'define\ttab', repeat('x', 200)]) WITH ORDINALITY AS n (name, n),
	LATERAL job_idem.define_job(name) AS d,
	LATERAL job_idem.define_job(name) AS again
ORDER BY n.n;

-- item_source: one query that reads, prepared as it will run
CREATE SCHEMA define_data;
CREATE TABLE define_data.merchant (merchant_id integer, name text, info jsonb);
CREATE VIEW define_data.keys AS SELECT 'k' AS key;
SELECT source, pg_temp.refused(format('%L, item_source => %L', 'source ' || n, source)) AS refused FROM unnest(ARRAY[
	$$SELECT m.name FROM define_data.merchant m$$,
	$$SELECT m.merchant_id::text, m.info || $2 FROM define_data.merchant m WHERE $1 > '2020-01-01'$$,
	$$VALUES ('a'), ('b')$$,
	$$TABLE define_data.keys$$,
	$$WITH w AS (SELECT 'a'::varchar AS k) SELECT k, NULL::jsonb FROM w;$$,
	$$SELECT 'a', '{}'::jsonb FOR UPDATE$$,
	$$$$,
	$$-- nothing$$,
	$$SELECT$$,
	$$SELECT 1$$,
	$$SELECT 'a'::char(3)$$,
	$$SELECT 'a'::name$$,
	$$SELECT 'a', '{}'$$,
	$$SELECT 'a', '{}'::json$$,
	$$SELECT 'a', '{}'::jsonb, 1$$,
	$$SELECT 'a'; SELECT 'b'$$,
	$$SELECT merchant_id::text FROM merchant$$,
	$$SELECT m.nothing FROM define_data.merchant m$$,
	$$SELECT $3$$,
	$$SELECT $1 || 'a'$$,
	$$SELECT 'x'::integer::text$$,
	$$SELEC 'a'$$,
	$$SELECT name INTO TEMP stolen FROM define_data.merchant$$,
	$$INSERT INTO define_data.merchant (name) VALUES ('a') RETURNING name$$,
	$$WITH w AS (DELETE FROM define_data.merchant RETURNING name) SELECT name FROM w$$,
	$$EXPLAIN SELECT 'a'$$,
	$$SHOW search_path$$,
	$$BEGIN$$
]) WITH ORDINALITY AS a (source, n) ORDER BY n;
-- what is in force is not looked at again
DROP VIEW define_data.keys;
:define('source 4', item_source => 'TABLE define_data.keys');
:define('source 4', item_source => 'TABLE define_data.keys', batch_size => 7);
:define('source 3', item_source => 'TABLE define_data.keys');

-- as the job's owner, whoever defines
CREATE ROLE define_owner;
CREATE ROLE define_operator;
CREATE ROLE define_nobody;
SELECT job_idem.grant_access('define_owner', 'operator');
SELECT job_idem.grant_access('define_operator', 'operator');
SET ROLE define_owner;
:define('define owned');
:define('define owned', item_source => 'SELECT m.name FROM define_data.merchant m');
RESET ROLE;
:define('define owned', item_source => 'SELECT m.name FROM define_data.merchant m');
GRANT USAGE ON SCHEMA define_data TO define_owner;
GRANT SELECT ON define_data.merchant TO define_owner;
:define('define owned', item_source => 'SELECT m.name FROM define_data.merchant m');
SELECT owner FROM job_idem.jobs WHERE job = 'define owned';
-- so an operator of all jobs may change everything else, but not make the owner run other text
SET ROLE define_operator;
:define('define owned', item_source => 'SELECT m.name FROM define_data.merchant m', batch_size => 7);
:define('define owned', item_source => 'SELECT m.info::text FROM define_data.merchant m');
:define('define owned', batch_size => 7);
:define('define owned', item_source => 'SELECT m.name FROM define_data.merchant m');
-- nor may one who has no right on the job change anything, even knowing a function that calls us
RESET ROLE;
GRANT USAGE ON SCHEMA job_idem TO define_nobody;
GRANT EXECUTE ON FUNCTION job_idem.define_job TO define_nobody;
SET ROLE define_nobody;
:define('define owned');
:define('define standard');
RESET ROLE;
-- a dropped owner: the job is not lost; who defines it again is its owner then, and its text runs as that one
REVOKE ALL ON define_data.merchant FROM define_owner;
REVOKE ALL ON SCHEMA define_data FROM define_owner;
SELECT job_idem.revoke_access('define_owner');
DROP ROLE define_owner;
SELECT state, owner FROM job_idem.jobs WHERE job = 'define owned';
SELECT pg_temp.refused($$'define owned', item_source => 'SELECT ''a'''$$);
:define('define owned');
SELECT state, owner = current_user AS taken_over FROM job_idem.jobs WHERE job = 'define owned';
-- and only then: the same definition again changes nothing
:define('define owned');

REVOKE ALL ON FUNCTION job_idem.define_job FROM define_nobody;
REVOKE ALL ON SCHEMA job_idem FROM define_nobody;
SELECT job_idem.revoke_access('define_operator');
DROP ROLE define_operator, define_nobody;
SET client_min_messages = warning;
DROP SCHEMA define_data CASCADE;
