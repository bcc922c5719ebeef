-- dag: the graph of dependencies as dot and mermaid (S19), the same text whatever the order of definition; names are only
-- names (P14); nobody sees a job that he may not see.
\set VERBOSITY sqlstate
\pset format unaligned
\pset tuples_only on
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';

-- whose jobs these are sees no others, whatever else there is
CREATE ROLE dag_owner;
GRANT USAGE ON SCHEMA job_idem TO dag_owner;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA job_idem TO dag_owner;
SET ROLE dag_owner;
-- nothing to draw
SELECT job_idem.dag(), job_idem.dag('mermaid');

-- a diamond, a job that waits for its own day before, and two more that have nothing to do with it
SELECT count(job_idem.define_job('dag ' || job)) FROM unnest('{report,settle,load,fees,next,other,alone}'::text[]) AS job;
SELECT job_idem.add_dependency('dag report', 'dag settle'),
	job_idem.add_dependency('dag settle', 'dag load', on_skipped => 'block'),
	job_idem.add_dependency('dag report', 'dag fees', 2),
	job_idem.add_dependency('dag fees', 'dag load', -1, offset_unit => 'open_day'),
	job_idem.add_dependency('dag settle', 'dag settle', -1),
	job_idem.add_dependency('dag next', 'dag other', -7, 'block'), job_idem.add_dependency('dag next', 'dag other');
SELECT job_idem.dag();
SELECT job_idem.dag('mermaid');
SELECT md5(job_idem.dag()) AS before \gset
SELECT job_idem.drop_dependency('dag settle', 'dag load'), job_idem.drop_dependency('dag next', 'dag other'),
	job_idem.add_dependency('dag next', 'dag other'), job_idem.add_dependency('dag settle', 'dag load', on_skipped => 'block');
SELECT md5(job_idem.dag()) = :'before' AS same;

-- only what is connected with a job, and a job that is connected with nothing
SELECT job_idem.dag(job => 'dag fees') = job_idem.dag('dot', 'dag report') AS same;
SELECT job_idem.dag('mermaid', 'dag load');
SELECT job_idem.dag('mermaid', 'dag other');
SELECT job_idem.dag(job => 'dag alone');
SELECT job_idem.dag('mermaid', 'dag alone');

-- a dropped job is told from one that is there
SELECT job_idem.drop_job('dag other');
SELECT job_idem.dag('mermaid', 'dag other');

SELECT job_idem.dag('svg');
SELECT job_idem.dag('DOT');
SELECT job_idem.dag(NULL);
SELECT job_idem.dag('dot', 'no such job');

-- who may see one job of a dependency only does not see it
RESET ROLE;
CREATE ROLE dag_worker;
GRANT USAGE ON SCHEMA job_idem TO dag_worker;
GRANT EXECUTE ON FUNCTION job_idem.dag TO dag_worker;
SET ROLE dag_worker;
SELECT job_idem.dag('mermaid');
SELECT job_idem.dag('mermaid', 'dag settle');
RESET ROLE;
SELECT job_idem.grant_worker('dag settle', 'dag_worker'), job_idem.grant_worker('dag load', 'dag_worker');
SET ROLE dag_worker;
SELECT job_idem.dag('mermaid');
SELECT job_idem.dag('mermaid', 'dag load');
SELECT job_idem.dag('mermaid', 'dag fees');
RESET ROLE;
SELECT job_idem.grant_worker('dag report', 'dag_worker'), job_idem.revoke_worker('dag settle', 'dag_worker');
SET ROLE dag_worker;
SELECT job_idem.dag('mermaid', 'dag load');
RESET ROLE;
SELECT job_idem.revoke_worker('dag report', 'dag_worker'), job_idem.revoke_worker('dag load', 'dag_worker');
SELECT count(*) FROM unnest('{report,settle,load,fees,next,other,alone}'::text[]) AS job WHERE job_idem.drop_job('dag ' || job);
DROP OWNED BY dag_worker, dag_owner;
DROP ROLE dag_worker, dag_owner;

-- whatever a name is made of is drawn, and nothing of it is obeyed
CREATE TEMP TABLE names (n serial, name text);
INSERT INTO names (name) VALUES ('hub'), ('say "hello"'), ('back\slash\'), ('\N\n\l'), (E'two\nlines'), (E'tab\tand\r'),
	('结算 [每日]'), ('💶{}()'), ('a -> b;'), ('n1["x"] --> n2'), ('<b>bold</b> & &lt;'), ('`markdown` *a* _b_'), ('1. list'),
	('- list'), ('#quot; #35;'), ('%%{init: {"theme":"dark"}}%%'), ('style x:#f00;'), ('end'), (' '), ('v1.2_final-3'),
	('}'), ('"];}');
SELECT count(job_idem.define_job(name)) FROM names;
SELECT count(*) FROM names WHERE name <> 'hub' AND job_idem.add_dependency(name, 'hub');
SELECT job_idem.dag('dot', 'hub');
SELECT job_idem.dag('mermaid', 'hub');
-- one line for each job and each dependency, whatever is in the names
SELECT format, count(*) FILTER (WHERE line ~ '^\tn\d+( \[label="|\[").*"\];?$') AS jobs,
	count(*) FILTER (WHERE line ~ '^\tn\d+ -?-> n\d+;?$') AS dependencies, count(*) AS lines
FROM unnest('{dot,mermaid}'::text[]) AS format, LATERAL regexp_split_to_table(job_idem.dag(format, 'hub'), '\n') AS line
WHERE line <> '' GROUP BY format ORDER BY format;
-- what a reader of the text gets back is the name, but for control characters
SELECT count(*) FROM names n JOIN (
	SELECT replace(replace(replace(replace(replace(m[1], '\\', E'\x01'), '\"', '"'), '\n', E'\n'), E'\x01', '\'), '&amp;', '&')
		AS label
	FROM regexp_matches(job_idem.dag('dot', 'hub'), '\[label="(([^"\\]|\\.)*)"\]', 'g') AS m) AS d
	ON d.label = translate(n.name, E'\t\r', '  ');
SELECT count(*) FROM names WHERE name <> 'hub' AND job_idem.drop_dependency(name, 'hub');
