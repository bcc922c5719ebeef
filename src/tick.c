/*
 * tick.c - CALL tick(): expiry, sealing of keyed runs past close_after, finish, retry budgets and
 * breakers. Bounded, and safe from any number of callers at once: what another tick has is
 * skipped, what another transaction holds is met again next time. Where the job says so, a
 * transaction that holds a claim past max_lease is ended.
 *
 * Commits by itself after each run and after each JOB_IDEM_EXPIRE_AT_ONCE leases, so that no
 * transaction is long and none has more subtransactions than a backend can cache. Everything it
 * does on behalf of others only tries.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "expire.h"
#include "finish.h"
#include "guarded.h"
#include "holder.h"
#include "job_idem.h"
#include "load.h"
#include "lock_tag.h"
#include "lookup.h"
#include "spi.h"
#include "tally.h"
#include "watch.h"

/* leases that one tick expires in one run, at most; the next tick goes on */
#define MAX_EXPIRED 10000
#define RUNS_AT_ONCE 256

JOB_IDEM_STATEMENT(unfinished_runs,
				   "SELECT run_id FROM job_idem.run WHERE run_id > $1"
				   " AND (finished_at IS NULL OR (state = 'cancelled' AND purged_at IS NULL))"
				   " ORDER BY run_id",
				   1, INT8OID);

static void
RefuseElsewhere(FunctionCallInfo fcinfo)
{
	CallContext *call = (CallContext *) fcinfo->context;

	if (call == NULL || !IsA(call, CallContext) || call->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("tick cannot run inside a transaction block"),
				 errhint("CALL it as a statement of its own: it commits by itself.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("tick needs READ COMMITTED"),
				 errhint("Set default_transaction_isolation to read committed for the role that"
						 " ticks.")));
}

static void
CloseKeyedRun(const JobIdemJob *job, int64 run_id)
{
	JobIdemRunRow run;
	TimestampTz closes;

	if (!job->keyed || !JobIdemFindRun(run_id, RUN_READ, &run) || run.sealed)
		return;
	closes = JobIdemPlus((TimestampTz) run.business_date * USECS_PER_DAY, &job->close_after);
	if (JobIdemNow() <= closes)
		return;
	if (JobIdemFindRun(run_id, RUN_TRY_UPDATE, &run) && run.state == RUN_RUNNING && !run.sealed)
		JobIdemSeal(job, &run);
}

typedef struct Work
{
	int64 run_id;
	int expired; /* leases, by this tick */
	bool more;
} Work;

/* One transaction's worth of work on a run. Skips a run that another tick is at. */
static void
WorkOnRun(void *argument)
{
	Work *work = argument;
	JobIdemRunRow run;
	JobIdemJob *job;

	work->more = false;
	if (!JobIdemTryLock(LOCK_TICK, JobIdemFold(work->run_id), (uint32) work->run_id, true) ||
		!JobIdemFindRun(work->run_id, RUN_READ, &run))
		return;
	job = JobIdemJobById(run.job_id);
	if (!JobIdemHasRight(job->job_id, job->owner, RIGHT_OPERATE))
		return;
	work->expired += JobIdemExpireOverdue(job, work->run_id, run.forced,
										  JOB_IDEM_EXPIRE_AT_ONCE, &work->more);
	work->more = work->more && work->expired < MAX_EXPIRED;
	if (work->more)
		return;
	if (job->terminate_at_max)
		JobIdemEndHoldersPastMax(job, work->run_id);
	CloseKeyedRun(job, work->run_id);
	if (run.state == RUN_RUNNING)
	{
		if (!JobIdemFinish(work->run_id, job->job_id))
			JobIdemWatch(job, work->run_id);
	}
	else
		JobIdemTallyFold(work->run_id);
}

static void
CommitAndGoOn(JobIdemScope *scope)
{
	JobIdemLeaveConnected(scope);
	SPI_commit();
	JobIdemEnterConnected(scope);
}

/* An error in one run is a WARNING that names it; the others go on. */
static void
TickRun(JobIdemScope *scope, int64 run_id)
{
	Work work = {.run_id = run_id};
	ErrorData *error;

	do
	{
		CHECK_FOR_INTERRUPTS();
		error = JobIdemTry(WorkOnRun, &work);
		if (error != NULL)
			ereport(WARNING,
					(errcode(error->sqlerrcode),
					 errmsg("tick could not work on run " INT64_FORMAT ": %s", run_id,
							error->message),
					 errhint("The other runs go on; this one is met again at the next tick.")));
		CommitAndGoOn(scope);
	} while (error == NULL && work.more);
}

/* Reads the next runs after `last` into `runs`. */
static uint64
NextRuns(int64 last, int64 *runs)
{
	JobIdemArgs args = {.n = 0};
	uint64 n;
	uint64 i;

	JobIdemArg(&args, Int64GetDatum(last));
	n = JobIdemRun(&unfinished_runs, &args, RUNS_AT_ONCE);
	for (i = 0; i < n; i++)
		runs[i] = JobIdemInt64(i, 1);
	return n;
}

PG_FUNCTION_INFO_V1(job_idem_tick);
Datum
job_idem_tick(PG_FUNCTION_ARGS)
{
	JobIdemScope scope;
	int64 runs[RUNS_AT_ONCE];
	int64 last = 0;
	uint64 n;
	uint64 i;

	RefuseElsewhere(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	JobIdemEnterConnected(&scope);
	while ((n = NextRuns(last, runs)) > 0)
	{
		for (i = 0; i < n; i++)
			TickRun(&scope, runs[i]);
		last = runs[n - 1];
	}
	JobIdemLeaveConnected(&scope);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not disconnect from SPI");
	return (Datum) 0;
}
