/*
 * heal.c - what an idle claim does for others, so that a fleet of workers heals itself even when
 * nothing calls tick.
 *
 * Only at READ COMMITTED and in a transaction that has written nothing yet: it must not hold
 * others up longer than the claim itself would. It expires one overdue lease, or else folds and
 * tries to finish the job's running runs and looks at their failures (watch.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"

#include "access.h"
#include "expire.h"
#include "finish.h"
#include "guarded.h"
#include "heal.h"
#include "release.h"
#include "spi.h"
#include "watch.h"

/* milliseconds that it may wait for a lock on a table */
#define MAX_WAIT 100
/* runs looked at by one idle claim */
#define MAX_RUNS 1000

JOB_IDEM_STATEMENT(running_runs,
				   "SELECT run_id FROM job_idem.run WHERE job_id = $1 AND state = 'running'"
				   " ORDER BY (- priority::bigint), business_date, run_id",
				   1, INT8OID);

/* True if it has expired a lease: that is enough for one claim. */
static bool
HealRun(const JobIdemJob *job, int64 run_id)
{
	bool more;
	bool expired;

	/* what its statements have read goes with the connection */
	JobIdemConnect();
	expired = JobIdemExpireOverdue(job, run_id, false, 1, &more) > 0;
	if (!expired && !JobIdemFinish(run_id, job->job_id))
		JobIdemWatch(job, run_id);
	JobIdemDisconnect();
	return expired;
}

static void
Heal(void *argument)
{
	const JobIdemJob *job = argument;
	JobIdemArgs args = {.n = 0};
	int64 *runs;
	uint64 n;
	uint64 i;

	JobIdemReleaseWaiting(job->job_id);
	JobIdemArg(&args, Int64GetDatum(job->job_id));
	n = JobIdemRun(&running_runs, &args, MAX_RUNS);
	runs = palloc(Max(n, 1) * sizeof(int64));
	for (i = 0; i < n; i++)
		runs[i] = JobIdemInt64(i, 1);
	for (i = 0; i < n && !HealRun(job, runs[i]); i++)
		CHECK_FOR_INTERRUPTS();
}

/* Where a whole table is locked it gives up soon: a claim waits for nobody. */
void
JobIdemHeal(JobIdemJob *job)
{
	ErrorData *error;

	if (IsolationUsesXactSnapshot() || TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	JobIdemPinLockTimeout(MAX_WAIT);
	error = JobIdemTry(Heal, job);
	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
}
