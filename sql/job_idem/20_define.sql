-- Definitions: jobs and rights.

CREATE FUNCTION job_idem.version() RETURNS text
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_version';
COMMENT ON FUNCTION job_idem.version() IS 'version of the loaded library, as text';

CREATE FUNCTION job_idem.define_job(
	name text,
	kind text DEFAULT 'batch',
	tier text DEFAULT 'standard',
	schedule text DEFAULT NULL,
	timezone text DEFAULT 'UTC',
	calendar text DEFAULT NULL,
	business_date_offset integer DEFAULT 0,
	run_per text DEFAULT 'date',
	misfire text DEFAULT 'catch_up',
	misfire_grace interval DEFAULT '5 minutes',
	valid_for interval DEFAULT NULL,
	catch_up_limit integer DEFAULT 100,
	overlap text DEFAULT 'allow',
	closed_day text DEFAULT 'skip',
	lease interval DEFAULT NULL,
	takeover_delay interval DEFAULT NULL,
	max_lease interval DEFAULT '24 hours',
	at_max_lease text DEFAULT 'wait',
	max_attempts integer DEFAULT 4,
	backoff_base interval DEFAULT '30 seconds',
	backoff_factor double precision DEFAULT 2,
	backoff_max interval DEFAULT NULL,
	unknown_as text DEFAULT 'business',
	retry_budget double precision DEFAULT 0.2,
	failure_threshold double precision DEFAULT NULL,
	failure_window interval DEFAULT '15 minutes',
	batch_size integer DEFAULT 100,
	item_source text DEFAULT NULL,
	close_after interval DEFAULT '7 days',
	version integer DEFAULT NULL,
	OUT job_id bigint, OUT job_version integer, OUT outcome text)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_define_job';
COMMENT ON FUNCTION job_idem.define_job(text, text, text, text, text, text, integer, text, text, interval, interval,
	integer, text, text, interval, interval, interval, text, integer, interval, double precision, interval, text,
	double precision, double precision, interval, integer, text, interval, integer) IS
$$creates a job or changes it; safe in every deploy, since the same definition changes nothing
An omitted argument means its default: lease 5 min (critical: 15 min), takeover_delay 0 (critical: 1 min), backoff_max 8 x backoff_base.
kind: batch (a list of items, sealed) or keyed (items appear when claimed). item_source: a query with $1 business_date date and $2 params jsonb, names schema-qualified, that returns item_key text and, if it likes, payload jsonb; it runs as the job's owner.
schedule: cron, five fields or six with seconds (see cron_explain), in timezone; NULL: opened by hand. Its business date is the local date of the planned instant plus business_date_offset, in days, or with a calendar in open days; closed_day: what becomes of a fire on a closed day of the calendar (skip, next, previous). run_per: one run a date, or one a fire. misfire: fires found later than misfire_grace are all run (catch_up), only the newest (latest), none (skip), or those not older than valid_for (expire); every one of them gets its row. catch_up_limit: rows that one tick writes at most. overlap: while an earlier run is not finished the next one runs too (allow), is blocked (wait) or is skipped (skip).
at_max_lease: what becomes of a transaction that still holds a claim past max_lease: wait (it shows in stuck) or terminate (tick ends it). unknown_as: how a failure is treated that no rule knows: business or transient. retry_budget: retries of a run as a share of its items (0.2: a fifth, never less than 10 unless 0; NULL: no limit). failure_threshold: share of failed tries (0.5: half; NULL: off), among those of failure_window and at least 100, that pauses the run.
outcome: new, changed, unchanged, or revived (a dropped name defined again). The caller becomes the owner of a new job.
Errors: JI005 a part is refused, the detail names it; JI006 the version named exists with other content; JI004 the kind changes while a run is open; 42501 not the job's owner.$$;

CREATE FUNCTION job_idem.pause_job(job text, reason text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_pause_job';
COMMENT ON FUNCTION job_idem.pause_job(text, text) IS
$$stops claims of all runs of a job, through restart and restore; leases already held may be finished
true if this call paused it, false if it was paused already. Errors: JI002 no such job; 42501.$$;

CREATE FUNCTION job_idem.resume_job(job text, reason text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_resume_job';
COMMENT ON FUNCTION job_idem.resume_job(text, text) IS
$$lets a paused job go on
true if this call resumed it, false if it was not paused. Errors: JI002 no such job; 42501.$$;

CREATE FUNCTION job_idem.drop_job(job text, reason text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_drop_job';
COMMENT ON FUNCTION job_idem.drop_job(text, text) IS
$$drops a job; its row stays as a tombstone, so that its run keys stay refused, and define_job revives it
true if this call dropped it, false if it was dropped already. Errors: JI002 no such job; JI004 a run is not finished (cancel it first); 42501.$$;

CREATE FUNCTION job_idem.grant_access(role name, level text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_grant_access';
COMMENT ON FUNCTION job_idem.grant_access(name, text) IS
$$gives a role, and its members, a level on all jobs: viewer (reads the views), worker (works all jobs), operator (everything but rights)
A second call replaces the level. Needs the rights of the extension's owner. Errors: 22023 unknown level; 42704 no such role; 42501.$$;

CREATE FUNCTION job_idem.revoke_access(role name) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_revoke_access';
COMMENT ON FUNCTION job_idem.revoke_access(name) IS
$$takes back what grant_access gave; rights on single jobs stay
true if there was something to take back. Errors: 42704 no such role; 42501.$$;

CREATE FUNCTION job_idem.grant_worker(job text, role name) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_grant_worker';
COMMENT ON FUNCTION job_idem.grant_worker(text, name) IS
$$lets a role, and its members, work one job
true if this call granted it. Needs the rights of the job's owner, or operator. Errors: JI002 no such job; 42704 no such role; 42501.$$;

CREATE FUNCTION job_idem.revoke_worker(job text, role name) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_revoke_worker';
COMMENT ON FUNCTION job_idem.revoke_worker(text, name) IS
$$takes back what grant_worker gave
true if this call took it back. Errors: JI002 no such job; 42704 no such role; 42501.$$;

CREATE FUNCTION job_idem.may_view(job_id bigint) RETURNS boolean
	LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'job_idem_may_view';
COMMENT ON FUNCTION job_idem.may_view(bigint) IS 'may the caller see this job; the views ask it for every row';

CREATE FUNCTION job_idem.advance_epoch(reason text DEFAULT NULL) RETURNS integer
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_advance_epoch';
COMMENT ON FUNCTION job_idem.advance_epoch(text) IS
$$makes all later tokens larger than any before; to be called after a file-level copy was restored
Returns the new epoch. Needs the rights of the extension's owner. Errors: 42501; JI009 past epoch 524287.$$;
