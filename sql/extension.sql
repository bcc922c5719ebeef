-- The extension comes and goes as a whole. pg_regress has created it.
SELECT e.extversion = a.default_version AS is_default, n.nspname
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_available_extensions a ON a.name = e.extname
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'job_idem';

-- everybody else has to be let in
SELECT pg_catalog.has_schema_privilege('public', 'job_idem', 'USAGE') AS public_usage,
	pg_catalog.has_schema_privilege('public', 'job_idem', 'CREATE') AS public_create;

-- dropped and created again, it leaves nothing behind, in no schema
DROP EXTENSION job_idem;
CREATE TEMP VIEW objects AS
SELECT 'pg_class'::regclass AS catalog, c.oid FROM pg_catalog.pg_class c
WHERE c.relnamespace <> pg_catalog.pg_my_temp_schema()
UNION ALL SELECT 'pg_proc'::regclass, p.oid FROM pg_catalog.pg_proc p
UNION ALL SELECT 'pg_type'::regclass, t.oid FROM pg_catalog.pg_type t
WHERE t.typnamespace <> pg_catalog.pg_my_temp_schema()
UNION ALL SELECT 'pg_operator'::regclass, o.oid FROM pg_catalog.pg_operator o
UNION ALL SELECT 'pg_event_trigger'::regclass, v.oid FROM pg_catalog.pg_event_trigger v
UNION ALL SELECT 'pg_namespace'::regclass, n.oid FROM pg_catalog.pg_namespace n
UNION ALL SELECT 'pg_extension'::regclass, x.oid FROM pg_catalog.pg_extension x
UNION ALL SELECT 'pg_description'::regclass, d.objoid FROM pg_catalog.pg_description d;
CREATE TEMP TABLE before AS SELECT * FROM objects;
CREATE EXTENSION job_idem;
DROP EXTENSION job_idem;
SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = 'job_idem';
(TABLE objects EXCEPT ALL TABLE before) UNION ALL (TABLE before EXCEPT ALL TABLE objects);

-- a schema that somebody prepared is not adopted
CREATE SCHEMA job_idem;
\set VERBOSITY sqlstate
CREATE EXTENSION job_idem;
\set VERBOSITY default
DROP SCHEMA job_idem;

-- nor can it be told to live in another schema
\set VERBOSITY sqlstate
CREATE EXTENSION job_idem SCHEMA public;
\set VERBOSITY default

CREATE EXTENSION job_idem;
