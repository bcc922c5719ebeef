-- open_run: one run per job and run key, however often it is opened; each call says whether it was the first, other
-- content under a known key is an error and changes nothing (F2), repeats are counted (F1), the key of a date is
-- its ISO form and instants are the same under every DateStyle and TimeZone (C62, C37), NULL and infinite dates are
-- refused (C12).
\set VERBOSITY sqlstate
SELECT outcome FROM job_idem.define_job('open_run');
SELECT outcome FROM job_idem.define_job('open_run keyed', kind => 'keyed');
CREATE TEMP VIEW counts AS
SELECT (SELECT count(*) FROM job_idem.run) AS runs, (SELECT count(*) FROM job_idem.run_trigger) AS triggers,
	(SELECT count(*) FROM job_idem.tally) AS tallies, (SELECT count(*) FROM job_idem.event) AS events,
	(SELECT md5(string_agg(r::text, ',' ORDER BY r.run_id)) FROM job_idem.run r) AS content;

-- the first call opens, the others find
SELECT run_id, outcome, state
FROM job_idem.open_run('open_run', '2026-11-30', params => '{"a": 1}', priority => 3) \gset first_
SELECT :'first_outcome' AS outcome, :'first_state' AS state;
SELECT run_id = :first_run_id AS same, outcome, state
FROM job_idem.open_run('open_run', '2026-11-30', params => '{"a": 1.0}');
SELECT run_id = :first_run_id AS same, outcome, state
FROM job_idem.open_run('open_run', '2026-11-30', '2026-11-30', '{"a": 1}', 9);
SELECT run_key, business_date, state, priority, params, trigger_count, n_items, sealed_at IS NULL AS unsealed,
	finished_at
FROM job_idem.runs WHERE job = 'open_run';
SELECT count(*) FROM job_idem.event WHERE run_id = :first_run_id AND verb = 'open_run';

-- other content: JI006, and nothing of the call stays
CREATE TEMP TABLE before AS TABLE counts;
SELECT * FROM job_idem.open_run('open_run', '2026-11-30', params => '{"a": 2}');
SELECT * FROM job_idem.open_run('open_run', '2026-11-30');
SELECT * FROM job_idem.open_run('open_run', '2026-11-30', params => 'null');
SELECT * FROM job_idem.open_run('open_run', '2026-12-01', run_key => '2026-11-30', params => '{"a": 1}');
-- so do bad dates and keys
SELECT * FROM job_idem.open_run('open_run', NULL);
SELECT * FROM job_idem.open_run('open_run', 'infinity');
SELECT * FROM job_idem.open_run('open_run', '-infinity');
SELECT * FROM job_idem.open_run('open_run', '2026-11-30', run_key => '');
SELECT * FROM job_idem.open_run('open_run', '2026-11-30', run_key => repeat('k', 513));
SELECT * FROM job_idem.open_run(NULL, '2026-11-30');
SELECT * FROM job_idem.open_run('no such job', '2026-11-30');
SELECT * FROM job_idem.open_run('', '2026-11-30');
TABLE counts EXCEPT TABLE before;

-- a rolled back call leaves nothing, and the next one is the first
BEGIN;
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02');
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02');
ROLLBACK;
TABLE counts EXCEPT TABLE before;
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02');

-- a key of the caller's own: several runs for one date; the longest key there may be, and one of blanks, are keys
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02', run_key => '2026-12-02#2');
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02', run_key => repeat('k', 512));
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02', run_key => ' ');
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02', run_key => '  ');
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-02', run_key => '  ');
-- the same key in another job is another run; a keyed run is open for claims at once
SELECT run_id <> :first_run_id AS other, outcome, state FROM job_idem.open_run('open_run keyed', '2026-11-30');
-- a NULL priority is none
SELECT outcome FROM job_idem.open_run('open_run', '2026-12-03', priority => NULL);
SELECT priority FROM job_idem.runs WHERE job = 'open_run' AND run_key = '2026-12-03';

-- under any DateStyle and TimeZone: ISO keys, and the same instants
SET job_idem.clock_freeze = '2026-12-31 20:00:00+00';
CREATE PROCEDURE pg_temp.open_year_ends(style text, zone text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('datestyle', style, true), set_config('timezone', zone, true);
	PERFORM job_idem.open_run('open_run', make_date(y, 12, 28) + d)
	FROM generate_series(2020, 2029) AS y, generate_series(0, 7) AS d;
END
$$;
CALL pg_temp.open_year_ends('German, DMY', 'Asia/Kolkata');
CALL pg_temp.open_year_ends('SQL, MDY', 'America/St_Johns');
CALL pg_temp.open_year_ends('Postgres, DMY', 'UTC');
SELECT count(*), bool_and(run_key = to_char(business_date, 'YYYY-MM-DD')) AS iso,
	bool_and(trigger_count = 3) AS found_again, count(DISTINCT opened_at) AS instants,
	min(opened_at) = '2026-12-31 20:00:00+00' AS utc
FROM job_idem.runs WHERE job = 'open_run' AND opened_at = '2026-12-31 20:00:00+00';
SELECT count(DISTINCT t.at) FROM job_idem.run_trigger t JOIN job_idem.runs r USING (run_id)
WHERE r.job = 'open_run' AND r.opened_at = '2026-12-31 20:00:00+00';
SELECT run_key FROM job_idem.runs
WHERE job = 'open_run' AND business_date BETWEEN '2026-12-28' AND '2027-01-04' ORDER BY run_key;
-- also before our era, in the far past and future
SET datestyle = 'SQL, DMY';
SELECT outcome FROM job_idem.open_run('open_run', make_date(-44, 3, 15));
SELECT outcome FROM job_idem.open_run('open_run', make_date(5874897, 12, 31));
RESET datestyle;
SELECT run_key
FROM job_idem.runs WHERE job = 'open_run' AND (business_date < '0001-01-01' OR business_date > '9999-12-31')
ORDER BY business_date;
-- every column that holds an instant carries a zone
SELECT c.relname, a.attname, a.atttypid::regtype
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'job_idem'::regnamespace
	AND a.atttypid IN ('timestamp'::regtype, 'time'::regtype, 'timetz'::regtype);

SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) WHERE r.job LIKE 'open_run%';
