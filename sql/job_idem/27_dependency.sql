-- Dependencies between jobs: a graph without cycles.

CREATE TABLE job_idem.dependency (
	job_id bigint NOT NULL,
	upstream_job_id bigint NOT NULL,
	date_offset integer NOT NULL CHECK (date_offset BETWEEN -3660 AND 3660),
	offset_unit text NOT NULL CHECK (offset_unit IN ('day', 'open_day')),
	on_skipped text NOT NULL CHECK (on_skipped IN ('release', 'block')),
	PRIMARY KEY (job_id, upstream_job_id, date_offset),
	CHECK (job_id <> upstream_job_id OR date_offset < 0)
);
CREATE INDEX dependency_upstream ON job_idem.dependency (upstream_job_id);
COMMENT ON TABLE job_idem.dependency IS 'a run of the job waits for the run of the upstream job whose business date is date_offset later; there are no cycles, but for jobs that wait for earlier dates of themselves';

CREATE FUNCTION job_idem.add_dependency(job text, upstream text, date_offset integer DEFAULT 0,
	on_skipped text DEFAULT 'release', offset_unit text DEFAULT 'day') RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_add_dependency';
COMMENT ON FUNCTION job_idem.add_dependency(text, text, integer, text, text) IS
$$makes a job depend on another: its run of a date waits for that job's run of a date
date_offset: how much later the date of the upstream's run is; negative: earlier. offset_unit: day, or open_day for open days of the job's calendar. on_skipped: whether a skipped upstream run lets the job's run go (release) or not (block). A positive offset waits for a date that is still to come.
true if this call added or changed it; the same again changes nothing and is false. Several offsets to one upstream are several dependencies. A job may depend on itself by a negative offset only: the run of the day before.
Errors: JI005 it would close a cycle, the detail names all of it, or a part is refused; JI002 no such job, or a dropped one; 42501 not an operator of the job, or no right to view the upstream.$$;

CREATE FUNCTION job_idem.drop_dependency(job text, upstream text, date_offset integer DEFAULT 0) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_drop_dependency';
COMMENT ON FUNCTION job_idem.drop_dependency(text, text, integer) IS
$$takes back what add_dependency did; also for dropped jobs
true if this call dropped it. Errors: JI002 no such job; 42501 not an operator of the job.$$;

CREATE FUNCTION job_idem.dag(format text DEFAULT 'dot', job text DEFAULT NULL) RETURNS text
	LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'job_idem_dag';
COMMENT ON FUNCTION job_idem.dag(text, text) IS
$$the dependencies between the jobs that the caller may see, as text to draw a graph from
format: dot (Graphviz) or mermaid (a flowchart). An arrow leads from what runs first to what waits for it. job: only what is connected with that job. The same dependencies give the same text.
Errors: 22023 unknown format; JI002 no such job; 42501 no right to view it.$$;

CREATE VIEW job_idem.dependencies WITH (security_barrier) AS
SELECT j.name AS job, u.name AS upstream, d.date_offset, d.offset_unit, d.on_skipped,
	u.dropped_at IS NOT NULL AS upstream_dropped, d.job_id, d.upstream_job_id
FROM job_idem.dependency d
	JOIN job_idem.job j USING (job_id)
	JOIN job_idem.job u ON u.job_id = d.upstream_job_id
WHERE job_idem.may_view(d.job_id) AND job_idem.may_view(d.upstream_job_id);
COMMENT ON VIEW job_idem.dependencies IS 'which job waits for which; shown to those who may see both';
COMMENT ON COLUMN job_idem.dependencies.date_offset IS 'how much later the date of the upstream''s run is; negative: earlier';
COMMENT ON COLUMN job_idem.dependencies.offset_unit IS 'day, or open_day: of the job''s calendar';
COMMENT ON COLUMN job_idem.dependencies.on_skipped IS 'release: a skipped upstream run lets the job go; block: it does not';
COMMENT ON COLUMN job_idem.dependencies.upstream_dropped IS 'the job waits for runs that nobody opens any more';

SELECT pg_catalog.pg_extension_config_dump('job_idem.dependency', '');
