-- What every object of the extension must have: a comment, nothing for PUBLIC, a door (table privilege), a place in the
-- dump, types that hold (P1, P2, P6, P8, P14, W5, C20). Whoever adds an object without it finds its name here.
CREATE TEMP VIEW object AS
SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'job_idem' AND d.deptype = 'e';
CREATE TEMP VIEW routine AS
SELECT o.name, p.oid, p.proname, p.proacl AS acl, p.proowner AS owner, p.pronamespace AS namespace, p.proargnames,
	p.pronargs, p.prosrc, p.proconfig, p.prosecdef, l.lanname, obj_description(p.oid, 'pg_proc') AS comment
FROM object o JOIN pg_proc p ON o.classid = 'pg_proc'::regclass AND o.objid = p.oid JOIN pg_language l ON l.oid = p.prolang;
CREATE TEMP VIEW relation AS
SELECT o.name, c.oid, c.relname, c.relkind, c.relacl AS acl, c.relowner AS owner, c.relnamespace AS namespace,
	c.relpersistence, c.reloptions, obj_description(c.oid, 'pg_class') AS comment
FROM object o JOIN pg_class c ON o.classid = 'pg_class'::regclass AND o.objid = c.oid;
CREATE TEMP VIEW attribute AS
SELECT 'column ' || a.attname || ' of ' || r.name AS name, r.relname, r.relkind, a.attname, a.atttypid AS type, a.attcollation,
	format_type(a.atttypid, NULL) AS type_name
FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid
WHERE a.attnum > 0 AND NOT a.attisdropped AND r.relkind IN ('r', 'p', 'v');
CREATE TEMP VIEW index AS
SELECT indexrelid::regclass::text AS name, indrelid::regclass::text AS relation, pg_get_indexdef(indexrelid) AS definition
FROM pg_index;
CREATE TEMP VIEW handed_out AS
SELECT object, CASE split_part(object, ' ', 1) WHEN 'TABLE' THEN to_regclass(substr(object, 7))::oid
	WHEN 'FUNCTION' THEN to_regprocedure(substr(object, 10))::oid
	WHEN 'PROCEDURE' THEN to_regprocedure(substr(object, 11))::oid END AS oid
FROM job_idem.privilege;

CREATE TEMP VIEW fault (rule, object) AS
	SELECT 'has a comment', name FROM routine WHERE comment IS NULL
	UNION ALL SELECT 'has a comment', name FROM relation WHERE relkind <> 'S' AND comment IS NULL
	UNION ALL SELECT 'has a comment', name FROM object
		WHERE classid = 'pg_namespace'::regclass AND obj_description(objid, 'pg_namespace') IS NULL
	UNION ALL SELECT 'names codes that there are', name || ': ' || found[1]
		FROM routine, LATERAL regexp_matches(comment, 'JI\w+', 'g') AS found WHERE found[1] !~ '^JI0(0[1-9]|10)$'
	-- everything is in our schema and belongs to its owner, and nothing is there that is not ours
	UNION ALL SELECT 'is of a kind that is expected', name FROM object WHERE classid NOT IN ('pg_proc'::regclass,
		'pg_class'::regclass, 'pg_type'::regclass, 'pg_namespace'::regclass)
	UNION ALL SELECT 'is in the schema', name FROM routine WHERE namespace <> 'job_idem'::regnamespace
	UNION ALL SELECT 'is in the schema', name FROM relation WHERE namespace <> 'job_idem'::regnamespace
	UNION ALL SELECT 'has one owner', name FROM (SELECT name, owner FROM routine UNION ALL SELECT name, owner FROM relation)
		AS o WHERE owner <> (SELECT nspowner FROM pg_namespace WHERE nspname = 'job_idem')
	UNION ALL SELECT 'is part of the extension', pg_describe_object('pg_proc'::regclass, oid, 0) FROM pg_proc
		WHERE pronamespace = 'job_idem'::regnamespace AND oid NOT IN (SELECT oid FROM routine)
	UNION ALL SELECT 'is part of the extension', pg_describe_object('pg_class'::regclass, oid, 0) FROM pg_class
		WHERE relnamespace = 'job_idem'::regnamespace AND relkind NOT IN ('i', 'I', 't', 'c')
		AND oid NOT IN (SELECT oid FROM relation)
	-- rights
	UNION ALL SELECT 'grants nothing to PUBLIC', o.name || ': ' || a.privilege_type FROM (
			SELECT name, coalesce(acl, acldefault('f', owner)) AS acl FROM routine
			UNION ALL SELECT name, coalesce(acl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", owner))
			FROM relation
			UNION ALL SELECT nspname, coalesce(nspacl, acldefault('n', nspowner)) FROM pg_namespace WHERE nspname = 'job_idem'
		) AS o, LATERAL aclexplode(o.acl) AS a WHERE a.grantee = 0
	UNION ALL SELECT 'is listed in privilege', name FROM routine r WHERE NOT EXISTS (SELECT FROM handed_out h WHERE h.oid = r.oid)
		AND proname NOT IN ('grant_access', 'revoke_access', 'advance_epoch')
		-- a trigger, and CHECKs, which run as the owner only
		AND proname NOT IN ('refuse_change', 'epoch_changed', 'item_is_sound', 'lease_is_sound')
	UNION ALL SELECT 'is listed in privilege', name FROM relation r
		WHERE relkind IN ('v', 'm') AND NOT EXISTS (SELECT FROM handed_out h WHERE h.oid = r.oid)
	UNION ALL SELECT 'is there', object FROM handed_out WHERE oid IS NULL
	UNION ALL SELECT 'is a view, not a table', object FROM handed_out JOIN relation USING (oid) WHERE relkind NOT IN ('v', 'm')
	UNION ALL SELECT 'is a security barrier', name FROM relation
		WHERE relkind = 'v' AND NOT coalesce(reloptions @> '{security_barrier=true}', false)
	-- routines
	UNION ALL SELECT 'pins its path', name FROM routine
		WHERE lanname <> 'c' AND NOT coalesce(proconfig @> '{"search_path=pg_catalog, pg_temp"}', false)
	UNION ALL SELECT 'runs as its caller', name FROM routine WHERE prosecdef
	UNION ALL SELECT 'has the name of its C symbol', name FROM routine
		WHERE lanname = 'c' AND prosrc !~ ('^job_idem_' || proname || '(_\d+)?$')
	UNION ALL SELECT 'names its arguments', name FROM routine
		WHERE pronargs > 0 AND (proargnames IS NULL OR '' = ANY (proargnames))
	UNION ALL SELECT 'names them by no reserved word', name || ': ' || word
		FROM routine, LATERAL unnest(proargnames) AS word JOIN pg_get_keywords() USING (word) WHERE catcode IN ('R', 'T')
	-- tables and sequences
	UNION ALL SELECT 'has a primary key', name FROM relation r WHERE relkind IN ('r', 'p')
		AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = r.oid AND i.indisprimary)
	UNION ALL SELECT 'goes into a dump', name FROM relation
		WHERE relkind IN ('r', 'p', 'S') AND relname <> 'privilege'
		AND oid NOT IN (SELECT unnest(extconfig) FROM pg_extension WHERE extname = 'job_idem')
	UNION ALL SELECT 'is logged', name FROM relation WHERE relpersistence <> 'p'
	UNION ALL SELECT 'is 64 bits wide, and neither cycles nor keeps numbers back', name FROM relation r
		JOIN pg_sequence s ON s.seqrelid = r.oid
		WHERE seqtypid <> 'bigint'::regtype OR seqcycle OR seqcache <> 1 OR seqincrement <> 1
	-- columns
	UNION ALL SELECT 'has a type that holds', name || ': ' || type_name FROM attribute
		WHERE type IN ('timestamp'::regtype, 'time'::regtype, 'timetz'::regtype, 'char'::regtype, 'varchar'::regtype,
			'json'::regtype, 'money'::regtype, 'real'::regtype)
		OR (type_name LIKE 'reg%' AND type_name <> 'regrole')
		OR (attname ~ '_id$|^(token|item_no)$' AND type <> 'bigint'::regtype)
		OR ((attname ~ '_at$' OR attname IN ('at', 'since', 'deadline')) AND type <> 'timestamptz'::regtype)
	UNION ALL SELECT 'compares keys byte by byte', name FROM attribute
		WHERE attname IN ('item_key', 'run_key') AND attcollation <> '"C"'::regcollation
	-- completing an item may be HOT, and so may heartbeat and close of a slice lease; nothing locks the run row for them
	UNION ALL SELECT 'mentions nothing that completion writes', name FROM index
		WHERE relation = 'job_idem.item' AND definition ~ '\m(state|token|done_at|result|attempts|lost)\M'
	UNION ALL SELECT 'mentions nothing that a heartbeat writes', name FROM index
		WHERE relation = 'job_idem.lease' AND definition ~ '\m(deadline|outcome|closed_at|n_done|n_failed|n_lost)\M'
	-- which a parallel restore would trip over, too
	UNION ALL SELECT 'is no foreign key', conname || ' of ' || conrelid::regclass FROM pg_constraint
		WHERE contype = 'f' AND connamespace = 'job_idem'::regnamespace;

SELECT (SELECT count(*) FROM routine) >= 40 AS routines, (SELECT count(*) FROM relation) > 25 AS relations,
	(SELECT count(*) FROM attribute) > 200 AS attributes;
SELECT * FROM fault ORDER BY rule, object;

-- volatility, strictness and parallel label: a change shows here
SELECT proname AS routine, CASE provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END AS volatility,
	CASE proparallel WHEN 's' THEN 'safe' WHEN 'r' THEN 'restricted' ELSE 'unsafe' END AS parallel, proisstrict AS strict,
	lanname AS language
FROM routine JOIN pg_proc p USING (oid, proname) ORDER BY proname, oid;

-- the lint sees
BEGIN;
CREATE FUNCTION job_idem.bare(integer, "end" integer) RETURNS integer LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';
CREATE UNLOGGED TABLE job_idem.bare (run_key text, at timestamp, job_id integer, what regclass);
CREATE VIEW job_idem.bare_view AS SELECT 1 AS one;
CREATE SEQUENCE job_idem.bare_seq AS integer CACHE 10;
CREATE FUNCTION public.bare_elsewhere() RETURNS integer LANGUAGE c AS '$libdir/job_idem', 'job_idem_now';
CREATE COLLATION job_idem.bare_collation (LOCALE = 'C');
CREATE FUNCTION job_idem.not_ours() RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE TABLE job_idem.not_ours ();
ALTER EXTENSION job_idem ADD FUNCTION job_idem.bare(integer, integer);
ALTER EXTENSION job_idem ADD TABLE job_idem.bare;
ALTER EXTENSION job_idem ADD VIEW job_idem.bare_view;
ALTER EXTENSION job_idem ADD SEQUENCE job_idem.bare_seq;
ALTER EXTENSION job_idem ADD FUNCTION public.bare_elsewhere();
ALTER EXTENSION job_idem ADD COLLATION job_idem.bare_collation;
ALTER TABLE job_idem.bare OWNER TO pg_monitor;
INSERT INTO job_idem.privilege VALUES ('viewer', 'TABLE job_idem.nothing'), ('viewer', 'TABLE job_idem.bare');
CREATE INDEX bare_item ON job_idem.item (run_id) WHERE state = 'pending';
CREATE INDEX bare_lease ON job_idem.lease (deadline);
ALTER TABLE job_idem.item ADD CONSTRAINT bare FOREIGN KEY (run_id) REFERENCES job_idem.run NOT VALID;
COMMENT ON FUNCTION job_idem.version() IS 'Errors: JI011.';
SELECT * FROM fault ORDER BY rule, object;
ROLLBACK;
