/*
 * hold.c - hold, heartbeat and claim_status: keeping a claim, and asking about it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "job_idem.h"
#include "lease.h"
#include "lookup.h"
#include "spi.h"

JOB_IDEM_STATEMENT(move_deadline,
				   "UPDATE job_idem.lease SET deadline = $2 WHERE token = $1 AND outcome = 'open'",
				   2, INT8OID, TIMESTAMPTZOID);

PG_FUNCTION_INFO_V1(job_idem_hold);
Datum
job_idem_hold(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	char *key = JobIdemTextArgumentOrNull(fcinfo, 1);
	JobIdemScope scope;
	JobIdemLease lease;

	JobIdemEnter(&scope);
	JobIdemLeaseHold(token, key, &lease);
	JobIdemLeave(&scope);
	PG_RETURN_VOID();
}

static TimestampTz
Beat(const JobIdemLease *lease, const Interval *span)
{
	TimestampTz deadline = JobIdemLeaseEnd(JobIdemNow(), span, lease->hard_deadline);
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(lease->token));
	JobIdemArg(&args, TimestampTzGetDatum(deadline));
	(void) JobIdemRunLatest(&move_deadline, &args, 0);
	return deadline;
}

/*
 * Takes the row SKIP LOCKED, in a mode that passes KEY SHARE: it goes by long business
 * transactions, and whoever is just completing or expiring the lease is not waited for, so that
 * one thread that beats for many claims lets none lapse.
 */
PG_FUNCTION_INFO_V1(job_idem_heartbeat);
Datum
job_idem_heartbeat(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	Interval *span = JobIdemLeaseArgument(fcinfo, 1);
	JobIdemScope scope;
	JobIdemLease lease;
	bool locked;

	JobIdemEnter(&scope);
	locked = JobIdemLeaseGet(token, LEASE_TRY_NO_KEY, &lease);
	JobIdemLeaseFence(token, LEASE_READ, &lease);
	if (lease.outcome != OUTCOME_COMPLETED)
		JobIdemLeaseRequireOpen(&lease);
	if (locked && lease.outcome == OUTCOME_OPEN && !JobIdemLeaseCloseIfFinished(&lease))
		lease.deadline = Beat(&lease, span ? span : &JobIdemJobById(lease.job_id)->lease);
	JobIdemLeave(&scope);
	PG_RETURN_TIMESTAMPTZ(lease.deadline);
}

PG_FUNCTION_INFO_V1(job_idem_claim_status);
Datum
job_idem_claim_status(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	JobIdemScope scope;
	JobIdemLease lease;
	int64 n_left;
	int64 n_done;
	Datum values[5];
	bool nulls[5] = {false, false, false, false, false};

	JobIdemEnter(&scope);
	if (!JobIdemLeaseGet(token, LEASE_READ, &lease))
		JobIdemNoSuchClaim(token);
	JobIdemLeaseContext(&lease);
	JobIdemRequire(lease.job_id, lease.job_owner, lease.job, RIGHT_VIEW);
	JobIdemLeaseCensus(&lease, &n_left, &n_done);
	/* pending items of a completed slice are done by it */
	if (lease.outcome == OUTCOME_COMPLETED)
	{
		n_done += n_left;
		n_left = 0;
	}
	JobIdemLeave(&scope);
	values[0] = CStringGetTextDatum(JobIdemOutcomeName(lease.outcome));
	values[1] = Int64GetDatum(lease.n_items);
	values[2] = Int64GetDatum(n_done);
	values[3] = Int64GetDatum(n_left);
	values[4] = TimestampTzGetDatum(lease.deadline);
	PG_RETURN_DATUM(JobIdemRow(fcinfo, values, nulls));
}
