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
				   " version, batch_size, params, opened_at, reason, scheduled_at, waits_for,"
				   " finished_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
				   " ON CONFLICT (job_id, run_key) DO NOTHING RETURNING run_id",
				   13, INT8OID, TEXTOID, DATEOID, INT4OID, TEXTOID, INT4OID, INT4OID, JSONBOID,
				   TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID);
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

/* What a run that nothing holds back begins as: a keyed one has no list to wait for. */
JobIdemRunState
JobIdemFirstState(const JobIdemJob *job)
{
	return job->keyed ? RUN_RUNNING : RUN_LOADING;
}

static const char *
OpeningVerb(JobIdemRunState state)
{
	if (state == RUN_SKIPPED)
		return "skip_run";
	return state == RUN_EXPIRED ? "expire_run" : "open_run";
}

/*
 * Inserts the run unless its key is there; waits for an open insert of the same key. False: it is
 * there. Above READ COMMITTED 40001 if it was committed since the transaction's snapshot.
 */
bool
JobIdemInsertRun(const JobIdemJob *job, const JobIdemNewRun *run, int64 *run_id)
{
	JobIdemArgs args = {.n = 0};
	JobIdemArgs tally = {.n = 0};
	TimestampTz now = JobIdemNow();
	bool over = run->state == RUN_SKIPPED || run->state == RUN_EXPIRED;

	JobIdemArg(&args, Int64GetDatum(job->job_id));
	JobIdemArg(&args, CStringGetTextDatum(run->run_key));
	JobIdemArg(&args, DateADTGetDatum(run->business_date));
	JobIdemArg(&args, Int32GetDatum(run->priority));
	JobIdemArg(&args, CStringGetTextDatum(JobIdemRunStateName(run->state)));
	JobIdemArg(&args, Int32GetDatum(run->version));
	JobIdemArg(&args, Int32GetDatum(job->batch_size));
	JobIdemArgNullable(&args, run->params.value, run->params.isnull);
	JobIdemArg(&args, TimestampTzGetDatum(now));
	JobIdemArgText(&args, run->reason);
	JobIdemArgNullable(&args, run->scheduled_at.value, run->scheduled_at.isnull);
	JobIdemArgNullable(&args, Int64GetDatum(run->waits_for), run->waits_for == 0);
	JobIdemArgNullable(&args, TimestampTzGetDatum(now), !over);
	if (JobIdemRun(&insert_run, &args, 0) == 0)
		return false;
	*run_id = JobIdemInt64(0, 1);
	JobIdemArg(&tally, Int64GetDatum(*run_id));
	(void) JobIdemRun(&insert_tally, &tally, 0);
	JobIdemEvent(OpeningVerb(run->state), job->job_id, *run_id, NULL, NULL, run->reason);
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
