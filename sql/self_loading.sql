-- A query that lists a run's items is the caller's code and runs while the run is locked by the same transaction. If
-- it calls verbs on that very run, the load is refused whole (F7, R12); one that only opens its own run finds it
-- loading. Whatever it does, audit finds nothing.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SET client_min_messages = error;
CREATE SCHEMA self_loading;
SELECT outcome FROM job_idem.define_job('self loading', batch_size => 3);
SELECT run_id FROM job_idem.open_run('self loading', '2026-11-30') \gset

CREATE FUNCTION self_loading.does(verb text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT job_idem.' || verb;
	RETURN NEXT 'a';
	RETURN NEXT 'b';
END $$;
SELECT * FROM job_idem.load_items(:run_id, format('SELECT self_loading.does(%L)', 'seal_run(' || :run_id || ')'));
SELECT * FROM job_idem.load_items(:run_id, format('SELECT self_loading.does(%L)', 'add_items(' || :run_id || ', ''{x}'')'));
SELECT * FROM job_idem.load_items(:run_id, format('SELECT self_loading.does(%L)', 'cancel_run(' || :run_id || ', ''y'')'));
SELECT state, n_items FROM job_idem.runs WHERE run_id = :run_id;

-- a verb on another run is nobody's business
SELECT run_id AS other FROM job_idem.open_run('self loading', '2026-12-01') \gset
SELECT * FROM job_idem.load_items(:run_id, format('SELECT self_loading.does(%L)', 'add_items(' || :other || ', ''{x}'')'));
SELECT * FROM job_idem.seal_run(:run_id);
SELECT * FROM job_idem.audit(:run_id);
SELECT * FROM job_idem.audit(:other);

-- an item_source that opens its own run
SELECT outcome FROM job_idem.define_job('self opening', item_source =>
	$$SELECT self_loading.does('open_run(''self opening'', ''2026-11-30'')')$$);
SELECT outcome, state FROM job_idem.open_run('self opening', '2026-11-30');
SELECT state, n_items, trigger_count FROM job_idem.runs WHERE job = 'self opening';
SELECT a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job = 'self opening';
-- and one that seals it
SELECT outcome FROM job_idem.define_job('self sealing', item_source => $$SELECT self_loading.does(
	'seal_run(run_id) FROM job_idem.open_run(''self sealing'', ''2026-11-30'')')$$);
SELECT outcome, state FROM job_idem.open_run('self sealing', '2026-11-30');
SELECT state, n_items FROM job_idem.runs WHERE job = 'self sealing';
SELECT a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job = 'self sealing';
SELECT count(job_idem.cancel_run(run_id, 'the end of this test')) FROM job_idem.runs WHERE state = 'loading' AND job LIKE 'self %';
DROP SCHEMA self_loading CASCADE;
