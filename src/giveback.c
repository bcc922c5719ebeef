/*
 * giveback.c - postpone, release and expire_lease: work given back, or taken back, before it is
 * finished.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "event.h"
#include "expire.h"
#include "fault.h"
#include "job_idem.h"
#include "lease.h"
#include "lookup.h"
#include "spi.h"

JOB_IDEM_STATEMENT(postpone_item,
				   "UPDATE job_idem.item SET state = 'waiting', due_at = $3, token = NULL"
				   " WHERE run_id = $1 AND item_no = $2",
				   3, INT8OID, INT8OID, TIMESTAMPTZOID);

static Interval *
DelayArgument(FunctionCallInfo fcinfo, int i)
{
	if (PG_ARGISNULL(i) || JobIdemIntervalMicros(PG_GETARG_INTERVAL_P(i)) < 0 ||
		JobIdemIntervalMicros(PG_GETARG_INTERVAL_P(i)) == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay must be a finite interval of zero or more"),
				 errhint("To give the item back at once, pass '0' or call job_idem.release.")));
	return PG_GETARG_INTERVAL_P(i);
}

PG_FUNCTION_INFO_V1(job_idem_postpone);
Datum
job_idem_postpone(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	char *key = JobIdemTextArgument(fcinfo, 1, "item_key");
	Interval *delay = DelayArgument(fcinfo, 2);
	TimestampTz due_at = JobIdemPlus(JobIdemNow(), delay);
	JobIdemScope scope;
	JobIdemLease lease;
	JobIdemItem item;
	JobIdemFenced *fenced;
	JobIdemArgs args = {.n = 0};

	JobIdemEnter(&scope);
	fenced = JobIdemLeaseFenceItem(token, &lease);
	JobIdemLeaseLockItem(&lease, key, &item);
	JobIdemArg(&args, Int64GetDatum(lease.run_id));
	JobIdemArg(&args, Int64GetDatum(item.item_no));
	JobIdemArg(&args, TimestampTzGetDatum(due_at));
	(void) JobIdemRunLatest(&postpone_item, &args, 0);
	JobIdemLeaseLazyClose(fenced, item.item_no);
	JobIdemLeave(&scope);
	PG_RETURN_TIMESTAMPTZ(due_at);
}

/* Gives back what is unfinished of an open lease that is locked FOR UPDATE. */
static int64
Release(const JobIdemLease *lease)
{
	int64 n_left;
	int64 n_done;

	JobIdemLeaseCensus(lease, &n_left, &n_done);
	if (n_left > 0)
		(void) JobIdemLeaseGiveBack(lease);
	(void) JobIdemLeaseClose(lease, n_left == 0 ? OUTCOME_COMPLETED : OUTCOME_RELEASED, n_done,
							 n_left);
	return n_left;
}

PG_FUNCTION_INFO_V1(job_idem_release);
Datum
job_idem_release(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	JobIdemScope scope;
	JobIdemLease lease;
	int64 given_back = 0;

	JobIdemEnter(&scope);
	JobIdemLeaseFence(token, LEASE_UPDATE, &lease);
	if (lease.outcome != OUTCOME_COMPLETED)
	{
		JobIdemLeaseRequireOpen(&lease);
		given_back = Release(&lease);
		JobIdemFaultPoint("release");
	}
	JobIdemLeave(&scope);
	PG_RETURN_INT64(given_back);
}

/* Not locked now: is it there at all? */
static void
RefuseInUse(int64 token)
{
	JobIdemLease lease;

	if (!JobIdemLeaseGet(token, LEASE_READ, &lease))
		JobIdemNoSuchClaim(token);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("a transaction is at work under claim " INT64_FORMAT, token),
			 errdetail("Its work would be lost or done twice."),
			 errhint("Wait for it, or end its backend with job_idem.end_holder, and call again.")));
}

PG_FUNCTION_INFO_V1(job_idem_expire_lease);
Datum
job_idem_expire_lease(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	char *reason = JobIdemReasonArgument(fcinfo, 1, true);
	JobIdemScope scope;
	JobIdemLease lease;
	JobIdemJob *job;
	int64 moved = 0;

	JobIdemEnter(&scope);
	if (!JobIdemLeaseGet(token, LEASE_TRY_UPDATE, &lease))
		RefuseInUse(token);
	JobIdemLeaseContext(&lease);
	job = JobIdemJobById(lease.job_id);
	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_OPERATE);
	if (lease.outcome == OUTCOME_OPEN)
	{
		moved = JobIdemExpireHeld(job, &lease);
		JobIdemEvent("expire_lease", job->job_id, lease.run_id, NULL,
					 psprintf("{\"token\": " INT64_FORMAT ", \"items\": " INT64_FORMAT "}",
							  token, moved),
					 reason);
	}
	JobIdemLeave(&scope);
	PG_RETURN_INT64(moved);
}
