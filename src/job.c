/*
 * job.c - definitions of jobs: define, pause, resume, drop.
 *
 * A definition is declarative: define_job compares the whole of it, defaults filled in, with the
 * version in force, and writes only what differs. Every verb locks the job's row first and reads it
 * after that. The lock is FOR NO KEY UPDATE, which passes the KEY SHARE of whoever opens a run: a
 * deploy or a pause should neither wait for him nor hold up a claim that opens a keyed run.
 * Dropping a job, and changing its kind, take FOR UPDATE, since an uncommitted run must not escape
 * them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "calendar.h"
#include "clock.h"
#include "definition.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

/* The parts of a definition, which are columns of job too. */
#define N_PARTS 28
#define PARTS \
	"kind, tier, schedule, timezone, calendar, business_date_offset, run_per, misfire," \
	" misfire_grace, valid_for, catch_up_limit, overlap, closed_day, lease, takeover_delay," \
	" max_lease, at_max_lease, max_attempts, backoff_base, backoff_factor, backoff_max," \
	" unknown_as, retry_budget, failure_threshold, failure_window, batch_size, item_source," \
	" close_after"
/* as the definition, parameter 1, has them */
#define PARTS_GIVEN PARTS " FROM jsonb_populate_record(NULL::job_idem.job, $1)"

JOB_IDEM_STATEMENT(build_definition,
				   "SELECT jsonb_build_object('kind', $1, 'tier', $2, 'schedule', $3,"
				   "  'timezone', $4, 'calendar', $5, 'business_date_offset', $6,"
				   "  'run_per', $7, 'misfire', $8, 'misfire_grace', $9, 'valid_for', $10,"
				   "  'catch_up_limit', $11, 'overlap', $12, 'closed_day', $13, 'lease', $14,"
				   "  'takeover_delay', $15, 'max_lease', $16, 'at_max_lease', $17,"
				   "  'max_attempts', $18, 'backoff_base', $19, 'backoff_factor', $20,"
				   "  'backoff_max', $21, 'unknown_as', $22, 'retry_budget', $23,"
				   "  'failure_threshold', $24, 'failure_window', $25, 'batch_size', $26,"
				   "  'item_source', $27, 'close_after', $28)",
				   N_PARTS, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID,
				   TEXTOID, INTERVALOID, INTERVALOID, INT4OID, TEXTOID, TEXTOID, INTERVALOID,
				   INTERVALOID, INTERVALOID, TEXTOID, INT4OID, INTERVALOID, FLOAT8OID,
				   INTERVALOID, TEXTOID, FLOAT8OID, FLOAT8OID, INTERVALOID, INT4OID, TEXTOID,
				   INTERVALOID);
#define INSERT_JOB \
	"INSERT INTO job_idem.job" \
	" (name, version, created_at, changed_at, plan_from, owner, owner_name, " PARTS ")" \
	" SELECT $2, $3, $4, $4, $4, $5, $6::name, " PARTS_GIVEN \
	" ON CONFLICT (name) DO NOTHING RETURNING job_id"
JOB_IDEM_STATEMENT(insert_job, INSERT_JOB, 6, JSONBOID, TEXTOID, INT4OID, TIMESTAMPTZOID,
				   REGROLEOID, TEXTOID);
#define UPDATE_JOB \
	"UPDATE job_idem.job SET (" PARTS ") = (SELECT " PARTS_GIVEN ")," \
	" version = $3, changed_at = $4, dropped_at = NULL," \
	" plan_from = CASE WHEN dropped_at IS NULL THEN plan_from ELSE $4 END," \
	" owner = coalesce($5, owner), owner_name = coalesce($6::name, owner_name)" \
	" WHERE name = $2"
JOB_IDEM_STATEMENT(update_job, UPDATE_JOB, 6, JSONBOID, TEXTOID, INT4OID, TIMESTAMPTZOID,
				   REGROLEOID, TEXTOID);
JOB_IDEM_STATEMENT(insert_version,
				   "INSERT INTO job_idem.job_version"
				   "  (job_id, version, definition, valid_from, defined_by)"
				   " VALUES ($1, $2, $3, $4, $5::name)",
				   5, INT8OID, INT4OID, JSONBOID, TIMESTAMPTZOID, TEXTOID);
JOB_IDEM_STATEMENT(same_definition,
				   "SELECT FROM job_idem.job_version"
				   " WHERE job_id = $1 AND version = $2 AND definition = $3",
				   3, INT8OID, INT4OID, JSONBOID);
JOB_IDEM_STATEMENT(find_job, "SELECT FROM job_idem.job WHERE name = $1", 1, TEXTOID);
JOB_IDEM_STATEMENT(lock_job,
				   "SELECT FROM job_idem.job WHERE job_id = $1 FOR NO KEY UPDATE",
				   1, INT8OID);
JOB_IDEM_STATEMENT(lock_job_and_runs,
				   "SELECT FROM job_idem.job WHERE job_id = $1 FOR UPDATE",
				   1, INT8OID);
JOB_IDEM_STATEMENT(find_open_run,
				   "SELECT run_id, run_key FROM job_idem.run"
				   " WHERE job_id = $1 AND finished_at IS NULL ORDER BY run_id",
				   1, INT8OID);
JOB_IDEM_STATEMENT(pause_job,
				   "UPDATE job_idem.job SET paused_at = $2, paused_reason = $3"
				   " WHERE job_id = $1 AND paused_at IS NULL",
				   3, INT8OID, TIMESTAMPTZOID, TEXTOID);
JOB_IDEM_STATEMENT(resume_job,
				   "UPDATE job_idem.job SET paused_at = NULL, paused_reason = NULL"
				   " WHERE job_id = $1 AND paused_at IS NOT NULL",
				   1, INT8OID);
JOB_IDEM_STATEMENT(drop_job,
				   "UPDATE job_idem.job SET dropped_at = $2"
				   " WHERE job_id = $1 AND dropped_at IS NULL",
				   2, INT8OID, TIMESTAMPTZOID);

/* What became of a definition. */
typedef struct Defined
{
	int64 job_id;
	int32 version;
	const char *outcome;
} Defined;

static bool
HasSource(const JobIdemDefinition *def)
{
	return def->item_source != NULL && def->kind != NULL && strcmp(def->kind, "batch") == 0;
}

/*
 * Text that runs as the job's owner may come only from one who has the owner's rights; to operate
 * all jobs is not enough. A job without an owner will be the caller's.
 */
static void
CheckChangedSource(JobIdemDefinition *def, const JobIdemJob *job)
{
	if (!HasSource(def))
		return;
	if (OidIsValid(job->owner) && job->item_source != NULL &&
		strcmp(job->item_source, def->item_source) == 0)
		return;
	if (OidIsValid(job->owner) && !has_privs_of_role(JobIdemCaller(), job->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to change item_source of job \"%s\"", job->name),
				 errdetail("It runs as the job's owner, \"%s\".",
						   GetUserNameFromId(job->owner, false)),
				 errhint("Let a member of that role define the job.")));
	JobIdemDefinitionCheckSource(def, OidIsValid(job->owner) ? job->owner : JobIdemCaller());
}

static void
AddParts(JobIdemArgs *args, const JobIdemDefinition *def)
{
	JobIdemArgText(args, def->kind);
	JobIdemArgText(args, def->tier);
	JobIdemArgText(args, def->schedule);
	JobIdemArgText(args, def->timezone);
	JobIdemArgText(args, def->calendar);
	JobIdemArg(args, Int32GetDatum(def->business_date_offset));
	JobIdemArgText(args, def->run_per);
	JobIdemArgText(args, def->misfire);
	JobIdemArg(args, IntervalPGetDatum(def->misfire_grace));
	JobIdemArgNullable(args, IntervalPGetDatum(def->valid_for), def->valid_for == NULL);
	JobIdemArg(args, Int32GetDatum(def->catch_up_limit));
	JobIdemArgText(args, def->overlap);
	JobIdemArgText(args, def->closed_day);
	JobIdemArg(args, IntervalPGetDatum(def->lease));
	JobIdemArg(args, IntervalPGetDatum(def->takeover_delay));
	JobIdemArg(args, IntervalPGetDatum(def->max_lease));
	JobIdemArgText(args, def->at_max_lease);
	JobIdemArg(args, Int32GetDatum(def->max_attempts));
	JobIdemArg(args, IntervalPGetDatum(def->backoff_base));
	JobIdemArg(args, Float8GetDatum(def->backoff_factor));
	JobIdemArg(args, IntervalPGetDatum(def->backoff_max));
	JobIdemArgText(args, def->unknown_as);
	JobIdemArgNullable(args, def->retry_budget.value, def->retry_budget.isnull);
	JobIdemArgNullable(args, def->failure_threshold.value, def->failure_threshold.isnull);
	JobIdemArg(args, IntervalPGetDatum(def->failure_window));
	JobIdemArg(args, Int32GetDatum(def->batch_size));
	JobIdemArgText(args, def->item_source);
	JobIdemArg(args, IntervalPGetDatum(def->close_after));
}

/* The definition as jsonb, the same whatever the session's settings for its texts are. */
static Datum
BuildDefinition(const JobIdemDefinition *def)
{
	JobIdemArgs args = {.n = 0};
	bool is_null;

	JobIdemPin("intervalstyle", "postgres");
	JobIdemPin("extra_float_digits", "1");
	AddParts(&args, def);
	(void) JobIdemRun(&build_definition, &args, 1);
	return PointerGetDatum(PG_DETOAST_DATUM_COPY(JobIdemColumn(0, 1, &is_null)));
}

/* Appends the version, and the event that tells of it. */
static void
RecordVersion(const Defined *defined, Datum definition, TimestampTz now)
{
	JobIdemArgs args = {.n = 0};
	char *detail;

	JobIdemArg(&args, Int64GetDatum(defined->job_id));
	JobIdemArg(&args, Int32GetDatum(defined->version));
	JobIdemArg(&args, definition);
	JobIdemArg(&args, TimestampTzGetDatum(now));
	JobIdemArg(&args, CStringGetTextDatum(JobIdemCallerName()));
	(void) JobIdemRun(&insert_version, &args, 0);
	detail = psprintf("{\"version\": %d, \"outcome\": \"%s\"}", defined->version, defined->outcome);
	JobIdemEvent("define_job", defined->job_id, 0, NULL, detail, NULL);
}

/* False if somebody else was faster. */
static bool
CreateJob(const JobIdemDefinition *def, Defined *defined)
{
	JobIdemArgs args = {.n = 0};
	Datum definition = BuildDefinition(def);
	TimestampTz now = JobIdemNow();

	defined->version = Max(def->version, 1);
	defined->outcome = "new";
	JobIdemArg(&args, definition);
	JobIdemArg(&args, CStringGetTextDatum(def->name));
	JobIdemArg(&args, Int32GetDatum(defined->version));
	JobIdemArg(&args, TimestampTzGetDatum(now));
	JobIdemArg(&args, ObjectIdGetDatum(JobIdemCaller()));
	JobIdemArg(&args, CStringGetTextDatum(JobIdemCallerName()));
	if (JobIdemRun(&insert_job, &args, 1) == 0)
		return false;
	defined->job_id = JobIdemInt64(0, 1);
	RecordVersion(defined, definition, now);
	return true;
}

static void
LockJob(int64 job_id, JobIdemStatement *how)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job_id));
	(void) JobIdemRunLatest(how, &args, 1);
}

/* Raises JI004 if a run of the job has not ended. The job must be locked FOR UPDATE. */
static void
RefuseOpenRuns(const JobIdemJob *job, const char *what)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job->job_id));
	if (JobIdemRunLatest(&find_open_run, &args, 1) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_JI_RUN_NOT_OPEN),
				 errmsg("cannot %s job \"%s\" while a run of it is open", what, job->name),
				 errdetail("Run " INT64_FORMAT ", run key \"%s\", is not finished.",
						   JobIdemInt64(0, 1), JobIdemText(0, 2, CurrentMemoryContext)),
				 errhint("Let its runs end, or end them with job_idem.cancel_run.")));
}

static void
RefuseVersion(const JobIdemDefinition *def, const JobIdemJob *job)
{
	ereport(ERROR,
			(errcode(ERRCODE_JI_KEY_CONFLICT),
			 errmsg("job \"%s\" cannot get this definition as version %d", job->name, def->version),
			 errdetail("Version %d is %s.", job->version, job->dropped ? "dropped" : "in force"),
			 errhint("Name the next version, or none: the one in force keeps its content.")));
}

/* The version that follows, which must be the one named, if any was. */
static int32
NextVersion(const JobIdemDefinition *def, const JobIdemJob *job)
{
	int32 next;

	if (pg_add_s32_overflow(job->version, 1, &next))
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("job \"%s\" has no more versions", job->name),
				 errdetail("Version %d is the largest there is.", job->version),
				 errhint("Define a job of another name.")));
	if (def->version != 0 && def->version != next)
		RefuseVersion(def, job);
	return next;
}

/*
 * Named as the next version, the same content makes a version too: workers may tell by it which
 * code they are.
 */
static bool
IsInForce(const JobIdemDefinition *def, const JobIdemJob *job, Datum definition)
{
	JobIdemArgs args = {.n = 0};

	if (job->dropped || !OidIsValid(job->owner) ||
		(def->version != 0 && def->version != job->version))
		return false;
	JobIdemArg(&args, Int64GetDatum(job->job_id));
	JobIdemArg(&args, Int32GetDatum(job->version));
	JobIdemArg(&args, definition);
	return JobIdemRunLatest(&same_definition, &args, 1) > 0;
}

/*
 * The job is locked and was read after that. One whose owner is gone, renamed or was not restored
 * gets the caller as its owner: that is how it comes back.
 */
static void
ChangeJob(const JobIdemDefinition *def, const JobIdemJob *job, Defined *defined)
{
	Datum definition = BuildDefinition(def);
	TimestampTz now = JobIdemNow();
	JobIdemArgs args = {.n = 0};

	defined->job_id = job->job_id;
	if (IsInForce(def, job, definition))
	{
		defined->version = job->version;
		defined->outcome = "unchanged";
		return;
	}
	defined->version = NextVersion(def, job);
	defined->outcome = job->dropped ? "revived" : "changed";
	if (job->keyed != (strcmp(def->kind, "keyed") == 0))
	{
		LockJob(job->job_id, &lock_job_and_runs);
		RefuseOpenRuns(job, "change the kind of");
	}
	JobIdemArg(&args, definition);
	JobIdemArg(&args, CStringGetTextDatum(def->name));
	JobIdemArg(&args, Int32GetDatum(defined->version));
	JobIdemArg(&args, TimestampTzGetDatum(now));
	JobIdemArgNullable(&args, ObjectIdGetDatum(JobIdemCaller()), OidIsValid(job->owner));
	JobIdemArgNullable(&args, CStringGetTextDatum(JobIdemCallerName()), OidIsValid(job->owner));
	(void) JobIdemRunLatest(&update_job, &args, 0);
	RecordVersion(defined, definition, now);
}

static bool
JobExists(const char *name)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(name));
	return JobIdemRunLatest(&find_job, &args, 1) > 0;
}

/* The job, locked and read after that. Who may not operate it cannot hold it up either. */
static JobIdemJob *
GetLockedJob(const char *name, JobIdemStatement *how)
{
	JobIdemJob *job = JobIdemJobByName(name);

	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_OPERATE);
	LockJob(job->job_id, how);
	return JobIdemJobById(job->job_id);
}

/* Nobody drops the calendar before the transaction's end. */
static void
CheckCalendar(JobIdemDefinition *def)
{
	if (def->calendar != NULL && !JobIdemCalendarKeep(def->calendar))
		JobIdemDefinitionProblem(def, "calendar", "there is no such calendar");
}

/* False if another session created the job meanwhile. */
static bool
DefineNew(JobIdemDefinition *def, Defined *defined)
{
	if (HasSource(def))
		JobIdemDefinitionCheckSource(def, JobIdemCaller());
	CheckCalendar(def);
	JobIdemDefinitionRaise(def);
	return CreateJob(def, defined);
}

static void
DefineAgain(JobIdemDefinition *def, Defined *defined)
{
	JobIdemJob *job = GetLockedJob(def->name, &lock_job);

	CheckChangedSource(def, job);
	CheckCalendar(def);
	JobIdemDefinitionRaise(def);
	ChangeJob(def, job, defined);
}

static Datum
DefinedRow(FunctionCallInfo fcinfo, const Defined *defined)
{
	Datum values[3] = {Int64GetDatum(defined->job_id), Int32GetDatum(defined->version),
					   CStringGetTextDatum(defined->outcome)};
	bool nulls[3] = {false, false, false};

	return JobIdemRow(fcinfo, values, nulls);
}

PG_FUNCTION_INFO_V1(job_idem_define_job);
Datum
job_idem_define_job(PG_FUNCTION_ARGS)
{
	JobIdemDefinition def;
	Defined defined;
	JobIdemScope scope;

	JobIdemDefinitionRead(fcinfo, &def);
	JobIdemEnter(&scope);
	if (def.name != NULL && JobExists(def.name))
		DefineAgain(&def, &defined);
	else if (!DefineNew(&def, &defined))
		DefineAgain(&def, &defined);
	JobIdemLeave(&scope);
	return DefinedRow(fcinfo, &defined);
}

static void
RefuseDropped(const JobIdemJob *job)
{
	if (job->dropped)
		ereport(ERROR,
				(errcode(ERRCODE_JI_JOB_NOT_FOUND),
				 errmsg("job \"%s\" is dropped", job->name),
				 errhint("Define it again with job_idem.define_job.")));
}

PG_FUNCTION_INFO_V1(job_idem_pause_job);
Datum
job_idem_pause_job(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	char *reason = JobIdemReasonArgument(fcinfo, 1, false);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	JobIdemJob *job;
	bool paused;

	JobIdemEnter(&scope);
	job = GetLockedJob(name, &lock_job);
	RefuseDropped(job);
	JobIdemArg(&args, Int64GetDatum(job->job_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArgText(&args, reason);
	paused = JobIdemRunLatest(&pause_job, &args, 0) > 0;
	if (paused)
		JobIdemEvent("pause_job", job->job_id, 0, NULL, NULL, reason);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(paused);
}

PG_FUNCTION_INFO_V1(job_idem_resume_job);
Datum
job_idem_resume_job(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	char *reason = JobIdemReasonArgument(fcinfo, 1, false);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	JobIdemJob *job;
	bool resumed;

	JobIdemEnter(&scope);
	job = GetLockedJob(name, &lock_job);
	RefuseDropped(job);
	JobIdemArg(&args, Int64GetDatum(job->job_id));
	resumed = JobIdemRunLatest(&resume_job, &args, 0) > 0;
	if (resumed)
		JobIdemEvent("resume_job", job->job_id, 0, NULL, NULL, reason);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(resumed);
}

PG_FUNCTION_INFO_V1(job_idem_drop_job);
Datum
job_idem_drop_job(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	char *reason = JobIdemReasonArgument(fcinfo, 1, false);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	JobIdemJob *job;
	bool dropped;

	JobIdemEnter(&scope);
	job = GetLockedJob(name, &lock_job_and_runs);
	RefuseOpenRuns(job, "drop");
	JobIdemArg(&args, Int64GetDatum(job->job_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	dropped = JobIdemRunLatest(&drop_job, &args, 0) > 0;
	if (dropped)
		JobIdemEvent("drop_job", job->job_id, 0, NULL, NULL, reason);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(dropped);
}
