-- add_dependency and drop_dependency: no cycles but a job's own earlier dates, the refusal names the whole cycle (S18, C28
-- as far as cycles go); the same call again changes nothing; hostile names (P14) and bad input (R12).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT count(*) FROM unnest('{a,b,c,d,e}'::text[]) AS job, LATERAL job_idem.define_job('dep ' || job);
CREATE TEMP VIEW deps AS
SELECT job, upstream, date_offset, offset_unit, on_skipped FROM job_idem.dependencies WHERE job LIKE 'dep %';

-- the same again is false, another way to treat skipped runs or to count is a change, another offset another dependency
SELECT job_idem.add_dependency('dep b', 'dep a');
SELECT job_idem.add_dependency('dep b', 'dep a');
SELECT job_idem.add_dependency('dep b', upstream => 'dep a', on_skipped => 'block');
SELECT job_idem.add_dependency('dep b', upstream => 'dep a', on_skipped => 'block');
SELECT job_idem.add_dependency('dep b', 'dep a', -1, offset_unit => 'open_day');
SELECT job_idem.add_dependency('dep b', 'dep a', -1, offset_unit => 'open_day');
SELECT job_idem.add_dependency('dep b', 'dep a', -1);
SELECT job_idem.add_dependency('dep b', 'dep a', 1);
SELECT * FROM deps ORDER BY job, upstream, date_offset;
SELECT job_idem.drop_dependency('dep b', 'dep a', -1);
SELECT job_idem.drop_dependency('dep b', 'dep a', -1);
SELECT job_idem.drop_dependency('dep b', 'dep a', 7);
SELECT job_idem.drop_dependency('dep a', 'dep b');
SELECT job_idem.drop_dependency('dep b', 'dep a', 1);
SELECT job_idem.add_dependency('dep b', 'dep a');
SELECT * FROM deps ORDER BY job, upstream, date_offset;
SELECT j.name AS job, e.verb, e.detail FROM job_idem.event e JOIN job_idem.job j USING (job_id)
WHERE e.verb LIKE '%dependency' AND j.name LIKE 'dep _' ORDER BY event_id;

-- cycles: of two, of three, of five, whatever the offsets; the detail names them all, the shortest one
CREATE FUNCTION pg_temp.refused(job text, upstream text, date_offset integer DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	RETURN job_idem.add_dependency(job, upstream, date_offset);
EXCEPTION WHEN SQLSTATE 'JI005' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN detail;
END
$$;
SELECT pg_temp.refused('dep a', 'dep b');
SELECT pg_temp.refused('dep a', 'dep b', -1);
SELECT pg_temp.refused('dep a', 'dep b', 1);
SELECT pg_temp.refused('dep c', 'dep b');
SELECT pg_temp.refused('dep a', 'dep c');
SELECT pg_temp.refused('dep d', 'dep c', -3), pg_temp.refused('dep e', 'dep d');
SELECT pg_temp.refused('dep a', 'dep e'), pg_temp.refused('dep b', 'dep e'), pg_temp.refused('dep d', 'dep e');
SELECT pg_temp.refused('dep e', 'dep b');
SELECT pg_temp.refused('dep a', 'dep e');
-- on itself: earlier dates only, and they are on no other cycle
SELECT pg_temp.refused('dep c', 'dep c', -1), pg_temp.refused('dep c', 'dep c', -7);
SELECT pg_temp.refused('dep c', 'dep c');
SELECT pg_temp.refused('dep c', 'dep c', 1);
SELECT pg_temp.refused('dep a', 'dep c');
SELECT count(*) FROM deps;
-- what closed it is gone: now it is lawful
SELECT job_idem.drop_dependency('dep b', 'dep a');
SELECT pg_temp.refused('dep a', 'dep e');
SELECT pg_temp.refused('dep b', 'dep a');
-- within one transaction, too, and a refusal leaves nothing
BEGIN;
SELECT job_idem.drop_dependency('dep a', 'dep e');
SELECT job_idem.add_dependency('dep b', 'dep a');
SAVEPOINT s;
SELECT job_idem.add_dependency('dep a', 'dep b');
ROLLBACK TO s;
SELECT count(*) FROM deps;
ROLLBACK;
SELECT * FROM deps ORDER BY job, upstream, date_offset;
\set VERBOSITY default
SELECT job_idem.add_dependency('dep b', 'dep a');
\set VERBOSITY sqlstate

-- a ladder of diamonds has 2^40 paths and is looked through at once; what would close it is named by a shortest path
SELECT count(job_idem.define_job('ladder ' || i || side)) FROM generate_series(0, 40) AS i, unnest('{l,r}'::text[]) AS side;
SELECT count(*) FROM generate_series(1, 40) AS i, unnest('{l,r}'::text[]) AS one, unnest('{l,r}'::text[]) AS other
WHERE job_idem.add_dependency('ladder ' || i || one, 'ladder ' || i - 1 || other);
SELECT array_length(regexp_split_to_array(pg_temp.refused('ladder 0l', 'ladder 40r'), ' -> '), 1) AS named;
SELECT job_idem.add_dependency('ladder 40l', 'ladder 0l');
SELECT regexp_replace(pg_temp.refused('ladder 0l', 'ladder 40l'), 'ladder ', '', 'g');

-- dropped jobs get no dependencies, and what they had can be dropped; define_job brings them back with it
SELECT job_idem.drop_job('dep d');
SELECT job_idem.add_dependency('dep d', 'dep a');
SELECT job_idem.add_dependency('dep b', 'dep d');
SELECT job, upstream, upstream_dropped FROM job_idem.dependencies WHERE 'dep d' IN (job, upstream) ORDER BY job, upstream;
SELECT pg_temp.refused('dep c', 'dep e');
SELECT job_idem.drop_dependency('dep d', 'dep c', -3), job_idem.drop_dependency('dep e', 'dep d');
SELECT outcome FROM job_idem.define_job('dep d');
SELECT job_idem.add_dependency('dep d', 'dep a');

-- what is refused, and leaves nothing
CREATE TEMP VIEW content AS
SELECT (SELECT md5(string_agg(d::text, E'\n' ORDER BY d::text)) FROM job_idem.dependency d) AS dependencies,
	(SELECT count(*) FROM job_idem.event) AS events;
CREATE TEMP TABLE before AS TABLE content;
SELECT job_idem.add_dependency('no such job', 'dep a');
SELECT job_idem.add_dependency('dep a', 'no such job');
SELECT job_idem.add_dependency(NULL, 'dep a');
SELECT job_idem.add_dependency('dep a', NULL);
SELECT job_idem.add_dependency('dep a', 'dep c', NULL);
SELECT job_idem.add_dependency('dep a', 'dep c', 0, NULL);
SELECT job_idem.add_dependency('dep a', 'dep c', 0, 'release', NULL);
SELECT job_idem.add_dependency('dep a', 'dep c', on_skipped => 'RELEASE');
SELECT job_idem.add_dependency('dep a', 'dep c', on_skipped => '');
SELECT job_idem.add_dependency('dep a', 'dep c', offset_unit => 'days');
SELECT job_idem.add_dependency('dep a', 'dep c', -3661);
SELECT job_idem.add_dependency('dep a', 'dep c', 2147483647);
SELECT job_idem.drop_dependency('no such job', 'dep a');
SELECT job_idem.drop_dependency('dep a', 'no such job');
SELECT job_idem.drop_dependency('dep a', NULL);
SELECT job_idem.drop_dependency('dep a', 'dep c', NULL);
TABLE before EXCEPT TABLE content;

-- it takes the right to operate the one, and to see the other
CREATE ROLE dep_operator;
CREATE ROLE dep_viewer;
GRANT USAGE ON SCHEMA job_idem TO dep_operator;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA job_idem TO dep_operator;
SET ROLE dep_operator;
SELECT outcome FROM job_idem.define_job('dep own');
SELECT job_idem.add_dependency('dep own', 'dep a');
SELECT job_idem.add_dependency('dep a', 'dep own');
SELECT job_idem.drop_dependency('dep a', 'dep e');
RESET ROLE;
SELECT job_idem.grant_worker('dep a', 'dep_operator');
SET ROLE dep_operator;
SELECT job_idem.add_dependency('dep own', 'dep a');
SELECT job_idem.add_dependency('dep a', 'dep own');
SELECT job, upstream FROM job_idem.dependencies;
RESET ROLE;
SELECT job_idem.grant_access('dep_viewer', 'viewer');
GRANT EXECUTE ON FUNCTION job_idem.add_dependency TO dep_viewer;
SET ROLE dep_viewer;
SELECT job_idem.add_dependency('dep a', 'dep b');
SELECT count(*) > 160 AS all_visible FROM job_idem.dependencies;
RESET ROLE;
-- who may not see all of a cycle is told that there is one
SELECT outcome FROM job_idem.define_job('dep hidden');
SELECT job_idem.drop_dependency('dep own', 'dep a');
SELECT job_idem.add_dependency('dep hidden', 'dep own'), job_idem.drop_dependency('dep a', 'dep e');
SELECT job_idem.add_dependency('dep a', 'dep hidden');
SET ROLE dep_operator;
SELECT pg_temp.refused('dep own', 'dep a');
SELECT job, upstream FROM job_idem.dependencies;
RESET ROLE;

-- names are only names
CREATE TEMP TABLE names (n serial, name text);
INSERT INTO names (name) VALUES ('Dep'), ('DEP'), ('dep "all"'), ('o''clock'), (' '), ('结算'), ('💶'), ('$1'), ('%s'), ('\d'),
	('NULL'), ('; DROP TABLE job_idem.dependency; --'), (E'two\nlines'), (' -> '), (repeat('é', 100));
SELECT count(job_idem.define_job(name)) FROM names;
SELECT count(*) FROM names a JOIN names b ON b.n = a.n - 1 WHERE job_idem.add_dependency(a.name, b.name);
SELECT count(*) FROM names a JOIN names b ON b.n = a.n - 1 JOIN job_idem.dependencies d ON d.job = a.name AND d.upstream = b.name
	JOIN job_idem.event e ON e.job_id = d.job_id AND e.verb = 'add_dependency'
WHERE e.detail->>'upstream' = b.name;
SELECT pg_temp.refused('Dep', (SELECT name FROM names ORDER BY n DESC LIMIT 1))
	= 'Each would wait for the one before it: ' || (SELECT string_agg(name, ' -> ' ORDER BY n) FROM names) || ' -> Dep.' AS whole_path;
SELECT count(*) FROM names a JOIN names b ON b.n = a.n - 1 WHERE job_idem.drop_dependency(a.name, b.name);

SELECT job_idem.revoke_access('dep_viewer'), job_idem.revoke_worker('dep a', 'dep_operator');
SELECT job_idem.drop_job('dep own');
DROP OWNED BY dep_operator, dep_viewer;
DROP ROLE dep_operator, dep_viewer;
