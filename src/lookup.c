/*
 * lookup.c - finds jobs and runs, and checks arguments, for every verb.
 *
 * Results live in the context of the call that is current when the function is entered, which
 * inside a scope is SPI's and ends with it.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/timestamp.h"

#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

#define JOB_COLUMNS \
	"SELECT job_id, name, kind = 'keyed', owner::oid, owner_name::text, version, enabled," \
	" paused_at IS NOT NULL, dropped_at IS NOT NULL, lease, takeover_delay, max_lease," \
	" max_attempts, backoff_base, backoff_factor, backoff_max, batch_size, item_source," \
	" close_after, at_max_lease = 'terminate', unknown_as = 'transient'," \
	" coalesce(retry_budget, -1), coalesce(failure_threshold, 0), failure_window" \
	" FROM job_idem.job WHERE "

JOB_IDEM_STATEMENT(job_by_name, JOB_COLUMNS "name = $1", 1, TEXTOID);
JOB_IDEM_STATEMENT(job_by_id, JOB_COLUMNS "job_id = $1", 1, INT8OID);

#define RUN_COLUMNS \
	"SELECT run_id, job_id, run_key, business_date, state, sealed_at IS NOT NULL, cancel_forced," \
	" finished_at IS NOT NULL, batch_size, n_items, n_slices, reason, n_late," \
	" paused_at IS NOT NULL, retries_closed IS NOT NULL, retries_from, version" \
	" FROM job_idem.run WHERE run_id = $1"

JOB_IDEM_STATEMENT(run_read, RUN_COLUMNS, 1, INT8OID);
JOB_IDEM_STATEMENT(run_for_update, RUN_COLUMNS " FOR UPDATE", 1, INT8OID);
JOB_IDEM_STATEMENT(run_try_update, RUN_COLUMNS " FOR UPDATE SKIP LOCKED", 1, INT8OID);

static void
CopyInterval(int column, Interval *into)
{
	bool is_null;

	memcpy(into, DatumGetIntervalP(JobIdemColumn(0, column, &is_null)), sizeof(Interval));
}

static JobIdemJob *
ReadJob(void)
{
	JobIdemJob *job = palloc0(sizeof(JobIdemJob));
	char *current_name;
	bool is_null;

	job->job_id = JobIdemInt64(0, 1);
	job->name = JobIdemText(0, 2, CurrentMemoryContext);
	job->keyed = JobIdemBool(0, 3);
	job->owner = JobIdemOid(0, 4);
	current_name = GetUserNameFromId(job->owner, true);
	if (current_name == NULL ||
		strcmp(current_name, JobIdemText(0, 5, CurrentMemoryContext)) != 0)
		job->owner = InvalidOid;
	job->version = JobIdemInt32(0, 6);
	job->paused = JobIdemBool(0, 8);
	job->dropped = JobIdemBool(0, 9);
	job->live = JobIdemBool(0, 7) && !job->dropped && OidIsValid(job->owner);
	CopyInterval(10, &job->lease);
	CopyInterval(11, &job->takeover_delay);
	CopyInterval(12, &job->max_lease);
	job->max_attempts = JobIdemInt16(0, 13);
	CopyInterval(14, &job->backoff_base);
	job->backoff_factor = DatumGetFloat8(JobIdemColumn(0, 15, &is_null));
	CopyInterval(16, &job->backoff_max);
	job->batch_size = JobIdemInt32(0, 17);
	job->item_source = JobIdemText(0, 18, CurrentMemoryContext);
	CopyInterval(19, &job->close_after);
	job->terminate_at_max = JobIdemBool(0, 20);
	job->unknown_is_transient = JobIdemBool(0, 21);
	job->retry_budget = DatumGetFloat8(JobIdemColumn(0, 22, &is_null));
	job->failure_threshold = DatumGetFloat8(JobIdemColumn(0, 23, &is_null));
	CopyInterval(24, &job->failure_window);
	return job;
}

/* Words of a caller's as a message shows them: not at any length. */
const char *
JobIdemShown(const char *words)
{
	int length = strlen(words);

	if (length <= JOB_IDEM_MAX_SHOWN)
		return words;
	return psprintf("%s...", pnstrdup(words, pg_mbcliplen(words, length, JOB_IDEM_MAX_SHOWN)));
}

/* JI002 if there is no such job. A dropped one is found: its runs are still to be asked about. */
JobIdemJob *
JobIdemJobByName(const char *name)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(name));
	if (JobIdemRunLatest(&job_by_name, &args, 1) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_JI_JOB_NOT_FOUND),
				 errmsg("job \"%s\" does not exist", JobIdemShown(name)),
				 errhint("Define it with job_idem.define_job; job_idem.jobs lists those that"
						 " exist.")));
	return ReadJob();
}

JobIdemJob *
JobIdemJobById(int64 job_id)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job_id));
	if (JobIdemRunLatest(&job_by_id, &args, 1) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_JI_JOB_NOT_FOUND),
				 errmsg("job number " INT64_FORMAT " does not exist", job_id),
				 errhint("A row of job_idem.job was removed by hand: restore it.")));
	return ReadJob();
}

bool
JobIdemFindRun(int64 run_id, JobIdemRunLock lock, JobIdemRunRow *run)
{
	JobIdemStatement *statement = &run_read;
	JobIdemArgs args = {.n = 0};

	switch (lock)
	{
		case RUN_READ:
			break;
		case RUN_FOR_UPDATE:
			statement = &run_for_update;
			break;
		case RUN_TRY_UPDATE:
			statement = &run_try_update;
			break;
	}
	JobIdemArg(&args, Int64GetDatum(run_id));
	if (JobIdemRunLatest(statement, &args, 1) == 0)
		return false;
	run->run_id = JobIdemInt64(0, 1);
	run->job_id = JobIdemInt64(0, 2);
	run->run_key = JobIdemText(0, 3, CurrentMemoryContext);
	run->business_date = JobIdemInt32(0, 4);
	run->state = JobIdemRunStateOf(JobIdemText(0, 5, CurrentMemoryContext));
	run->sealed = JobIdemBool(0, 6);
	run->forced = JobIdemBool(0, 7);
	run->finished = JobIdemBool(0, 8);
	run->batch_size = JobIdemInt32(0, 9);
	run->n_items = JobIdemInt64(0, 10);
	run->n_slices = JobIdemInt32(0, 11);
	run->reason = JobIdemText(0, 12, CurrentMemoryContext);
	run->n_late = JobIdemInt64(0, 13);
	run->paused = JobIdemBool(0, 14);
	run->retries_closed = JobIdemBool(0, 15);
	run->retries_from = JobIdemInt64(0, 16);
	run->version = JobIdemInt32(0, 17);
	return true;
}

void
JobIdemRunGone(int64 run_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_JI_RUN_NOT_FOUND),
			 errmsg("run " INT64_FORMAT " does not exist", run_id),
			 errhint("Open it with job_idem.open_run; job_idem.runs lists those that exist.")));
}

/* JI003 if there is no such run. */
void
JobIdemGetRun(int64 run_id, JobIdemRunLock lock, JobIdemRunRow *run)
{
	if (!JobIdemFindRun(run_id, lock, run))
		JobIdemRunGone(run_id);
}

/* The job of a run, for a caller who must have the right to it; JI003 if there is no such run. */
JobIdemJob *
JobIdemJobOfRun(int64 run_id, JobIdemRight right)
{
	JobIdemRunRow run;
	JobIdemJob *job;

	JobIdemGetRun(run_id, RUN_READ, &run);
	job = JobIdemJobById(run.job_id);
	JobIdemRequire(job->job_id, job->owner, job->name, right);
	return job;
}

/* Of a blocked run no hint is as good as that it is not for ever. */
void
JobIdemRunNotOpen(const JobIdemRunRow *run, const char *hint)
{
	if (run->state == RUN_BLOCKED)
		hint = "Wait until what it waits for is done, or let it go with job_idem.unblock_run.";
	ereport(ERROR,
			(errcode(ERRCODE_JI_RUN_NOT_OPEN),
			 errmsg("run " INT64_FORMAT " is %s", run->run_id, JobIdemRunStateName(run->state)),
			 errdetail("Run key \"%s\"%s%s.", run->run_key, run->reason ? ", reason: " : "",
					   run->reason ? run->reason : ""),
			 errhint("%s", hint)));
}

Datum
JobIdemRow(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc columns;

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, nulls));
}

void
JobIdemRequireReadCommitted(void)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("a running run takes new keys at READ COMMITTED only"),
				 errdetail("An old snapshot cannot tell whether the run is being finished."),
				 errhint("Add or claim them in a READ COMMITTED transaction.")));
}

static void
RefuseNull(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", name),
			 errhint("Give a value for %s.", name)));
}

char *
JobIdemTextArgument(FunctionCallInfo fcinfo, int i, const char *name)
{
	if (PG_ARGISNULL(i))
		RefuseNull(name);
	return text_to_cstring(PG_GETARG_TEXT_PP(i));
}

char *
JobIdemTextArgumentOrNull(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(i));
}

int64
JobIdemInt64Argument(FunctionCallInfo fcinfo, int i, const char *name)
{
	if (PG_ARGISNULL(i))
		RefuseNull(name);
	return PG_GETARG_INT64(i);
}

int32
JobIdemInt32Argument(FunctionCallInfo fcinfo, int i, const char *name)
{
	if (PG_ARGISNULL(i))
		RefuseNull(name);
	return PG_GETARG_INT32(i);
}

DateADT
JobIdemDateArgument(FunctionCallInfo fcinfo, int i, const char *name)
{
	DateADT date;

	if (PG_ARGISNULL(i))
		RefuseNull(name);
	date = PG_GETARG_DATEADT(i);
	if (DATE_NOT_FINITE(date))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be finite", name),
				 errhint("Give a calendar date.")));
	return date;
}

void
JobIdemCheckKey(const char *key, int length, const char *name)
{
	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", name),
				 errhint("A key names one unit of work; blanks are allowed and distinct.")));
	if (length > JOB_IDEM_MAX_KEY)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("%s is too long", name),
				 errdetail("It has %d bytes, at most %d are allowed; it begins \"%.40s\".", length,
						   JOB_IDEM_MAX_KEY, pnstrdup(key, pg_mbcliplen(key, length, 40))),
				 errhint("Use a shorter natural key, or a hash of the long one.")));
}

char *
JobIdemKeyArgument(FunctionCallInfo fcinfo, int i, const char *name)
{
	char *key = JobIdemTextArgument(fcinfo, i, name);

	JobIdemCheckKey(key, strlen(key), name);
	return key;
}

void
JobIdemCheckPayload(Datum payload, const char *name)
{
	Size size = toast_raw_datum_size(payload);

	if (size > (Size) job_idem_max_payload * 1024)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("%s is too large", name),
				 errdetail("It has %zu bytes, job_idem.max_payload allows %d kB.", size,
						   job_idem_max_payload),
				 errhint("Keep large values in a table of your own and put their key here.")));
}

/* An operator's words, cut where too long. */
char *
JobIdemReasonArgument(FunctionCallInfo fcinfo, int i, bool required)
{
	char *reason = JobIdemTextArgumentOrNull(fcinfo, i);

	if (required && (reason == NULL || reason[0] == '\0'))
		RefuseNull("reason");
	if (reason != NULL && strlen(reason) > JOB_IDEM_MAX_REASON)
		reason[pg_mbcliplen(reason, strlen(reason), JOB_IDEM_MAX_REASON)] = '\0';
	return reason;
}
