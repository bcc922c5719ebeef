/*
 * open.c - the row of a run: found by its key, or inserted once.
 *
 * UNIQUE (job_id, run_key) decides who opens a run. A keyed run is running from the start, a batch
 * run is loading until it is sealed.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "event.h"
#include "open.h"
#include "spi.h"

JOB_IDEM_STATEMENT(run_by_key,
				   "SELECT run_id FROM job_idem.run WHERE job_id = $1 AND run_key = $2", 2,
				   INT8OID, TEXTOID);
JOB_IDEM_STATEMENT(share_job,
				   "SELECT FROM job_idem.job WHERE job_id = $1 FOR KEY SHARE",
				   1, INT8OID);
JOB_IDEM_STATEMENT(try_share_job,
				   "SELECT FROM job_idem.job WHERE job_id = $1 FOR KEY SHARE SKIP LOCKED",
				   1, INT8OID);
JOB_IDEM_STATEMENT(insert_run,
				   "INSERT INTO job_idem.run (job_id, run_key, business_date, priority, state,"
				   " version, batch_size,"
				   " params, opened_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
				   " ON CONFLICT (job_id, run_key) DO NOTHING RETURNING run_id",
				   9, INT8OID, TEXTOID, DATEOID, INT4OID, TEXTOID, INT4OID, INT4OID, JSONBOID,
				   TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(insert_tally, "INSERT INTO job_idem.tally (run_id) VALUES ($1)", 1, INT8OID);
JOB_IDEM_STATEMENT(insert_trigger,
				   "INSERT INTO job_idem.run_trigger (run_id, at, by) VALUES ($1, $2, $3::name)",
				   3, INT8OID, TIMESTAMPTZOID, TEXTOID);

/* The run key of a business date: its ISO form, whatever the caller's DateStyle. */
char *
JobIdemRunKeyOf(DateADT business_date)
{
	struct pg_tm tm = {0};
	char text[MAXDATELEN + 1];

	j2date(business_date + POSTGRES_EPOCH_JDATE, &tm.tm_year, &tm.tm_mon, &tm.tm_mday);
	EncodeDateOnly(&tm, USE_ISO_DATES, text);
	return pstrdup(text);
}

char *
JobIdemRunKeyArgument(FunctionCallInfo fcinfo, int i, DateADT business_date)
{
	if (PG_ARGISNULL(i))
		return JobIdemRunKeyOf(business_date);
	return JobIdemKeyArgument(fcinfo, i, "run_key");
}

bool
JobIdemFindRunByKey(int64 job_id, const char *run_key, int64 *run_id)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job_id));
	JobIdemArg(&args, CStringGetTextDatum(run_key));
	if (JobIdemRunLatest(&run_by_key, &args, 1) == 0)
		return false;
	*run_id = JobIdemInt64(0, 1);
	return true;
}

/*
 * Keeps the job from being dropped, or changed in kind, until the transaction's end, and reads it
 * again after that. Passes what define_job and pause_job lock. NULL: it is just being dropped, and
 * we were not to wait.
 */
JobIdemJob *
JobIdemShareJob(int64 job_id, bool wait)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job_id));
	if (JobIdemRunLatest(wait ? &share_job : &try_share_job, &args, 1) == 0)
		return NULL;
	return JobIdemJobById(job_id);
}

/*
 * Inserts the run unless its key is there; waits for an open insert of the same key. False: it is
 * there. Above READ COMMITTED 40001 if it was committed since the transaction's snapshot.
 */
bool
JobIdemInsertRun(const JobIdemJob *job, const char *run_key, DateADT business_date,
				 NullableDatum params,
				 int32 priority, int64 *run_id)
{
	JobIdemArgs args = {.n = 0};
	JobIdemArgs tally = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job->job_id));
	JobIdemArg(&args, CStringGetTextDatum(run_key));
	JobIdemArg(&args, DateADTGetDatum(business_date));
	JobIdemArg(&args, Int32GetDatum(priority));
	JobIdemArg(&args, CStringGetTextDatum(job->keyed ? "running" : "loading"));
	JobIdemArg(&args, Int32GetDatum(job->version));
	JobIdemArg(&args, Int32GetDatum(job->batch_size));
	JobIdemArgNullable(&args, params.value, params.isnull);
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	if (JobIdemRun(&insert_run, &args, 0) == 0)
		return false;
	*run_id = JobIdemInt64(0, 1);
	JobIdemArg(&tally, Int64GetDatum(*run_id));
	(void) JobIdemRun(&insert_tally, &tally, 0);
	JobIdemEvent("open_run", job->job_id, *run_id, NULL, NULL, NULL);
	return true;
}

/*
 * Append-only: a counter in the run row would make the second trigger wait for the first one's
 * transaction.
 */
void
JobIdemCountTrigger(int64 run_id)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&args, CStringGetTextDatum(JobIdemCallerName()));
	(void) JobIdemRun(&insert_trigger, &args, 0);
}
