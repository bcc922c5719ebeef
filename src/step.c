/*
 * step.c - step_done and steps: what a rerun of an item need not do again.
 *
 * A step is recorded in the transaction of its effect, by whoever holds the item at that time, and
 * once: the item's row is locked first, so that of two threads the second waits and then finds the
 * step of the first. What is recorded belongs to the item, not to the claim: it outlives tries,
 * claims and a replay.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/tstoreReceiver.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "fault.h"
#include "job_idem.h"
#include "lease.h"
#include "lookup.h"
#include "spi.h"

JOB_IDEM_STATEMENT(insert_step,
				   "INSERT INTO job_idem.item_step (run_id, item_key, step, result, done_at, token)"
				   " VALUES ($1, $2, $3, $4, $5, $6)"
				   " ON CONFLICT (run_id, item_key, step) DO NOTHING",
				   6, INT8OID, TEXTOID, TEXTOID, JSONBOID, TIMESTAMPTZOID, INT8OID);
JOB_IDEM_STATEMENT(find_step,
				   "SELECT token, done_at FROM job_idem.item_step"
				   " WHERE run_id = $1 AND item_key = $2 AND step = $3",
				   3, INT8OID, TEXTOID, TEXTOID);
/* tokens grow from holder to holder, also where a clock was set back */
JOB_IDEM_STATEMENT(list_steps,
				   "SELECT step, result, done_at, token FROM job_idem.item_step"
				   " WHERE run_id = $1 AND item_key = $2 ORDER BY token, done_at, step",
				   2, INT8OID, TEXTOID);

static void
StepArgs(JobIdemArgs *args, const JobIdemLease *lease, const char *key, const char *step)
{
	args->n = 0;
	JobIdemArg(args, Int64GetDatum(lease->run_id));
	JobIdemArg(args, CStringGetTextDatum(key));
	JobIdemArg(args, CStringGetTextDatum(step));
}

static void
RefuseStep(const JobIdemLease *lease, const char *key, const char *step)
{
	JobIdemArgs args;
	int64 token;
	bool is_null;

	StepArgs(&args, lease, key, step);
	if (JobIdemRunLatest(&find_step, &args, 1) == 0)
		elog(ERROR, "step \"%s\" is neither there nor to be inserted", step);
	token = JobIdemInt64(0, 1);
	ereport(ERROR,
			(errcode(ERRCODE_JI_ALREADY_DONE),
			 errmsg("step \"%s\" of item \"%s\" is done already", JobIdemShown(step),
					JobIdemShown(key)),
			 errdetail("It was done under claim " INT64_FORMAT ", at %s.", token,
					   timestamptz_to_str(DatumGetTimestampTz(JobIdemColumn(0, 2, &is_null)))),
			 errhint("Roll back: the writes of this transaction would be a second effect."
					 " job_idem.steps(token, item_key) has the result of the first.")));
}

PG_FUNCTION_INFO_V1(job_idem_step_done);
Datum
job_idem_step_done(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	char *key = JobIdemTextArgument(fcinfo, 1, "item_key");
	char *step = JobIdemKeyArgument(fcinfo, 2, "step");
	NullableDatum result = {.value = PG_GETARG_DATUM(3), .isnull = PG_ARGISNULL(3)};
	JobIdemScope scope;
	JobIdemLease lease;
	JobIdemArgs args;

	if (!result.isnull)
		JobIdemCheckPayload(result.value, "result");
	JobIdemEnter(&scope);
	JobIdemLeaseHold(token, key, &lease);
	StepArgs(&args, &lease, key, step);
	JobIdemArgNullable(&args, result.value, result.isnull);
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&args, Int64GetDatum(token));
	if (JobIdemRunLatest(&insert_step, &args, 0) == 0)
		RefuseStep(&lease, key, step);
	JobIdemFaultPoint("step_done");
	JobIdemLeave(&scope);
	PG_RETURN_VOID();
}

/* Any claim of the run will do, open or closed: it says which run is meant. */
PG_FUNCTION_INFO_V1(job_idem_steps);
Datum
job_idem_steps(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	char *key = JobIdemTextArgument(fcinfo, 1, "item_key");
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DestReceiver *receiver = CreateDestReceiver(DestTuplestore);
	JobIdemScope scope;
	JobIdemLease lease;
	JobIdemArgs args = {.n = 0};

	InitMaterializedSRF(fcinfo, 0);
	SetTuplestoreDestReceiverParams(receiver, result->setResult, CurrentMemoryContext, true, NULL,
									NULL);
	JobIdemEnter(&scope);
	if (!JobIdemLeaseGet(token, LEASE_READ, &lease))
		JobIdemNoSuchClaim(token);
	JobIdemLeaseContext(&lease);
	JobIdemRequire(lease.job_id, lease.job_owner, lease.job, RIGHT_WORK);
	JobIdemArg(&args, Int64GetDatum(lease.run_id));
	JobIdemArg(&args, CStringGetTextDatum(key));
	(void) JobIdemRunInto(&list_steps, &args, receiver);
	JobIdemLeave(&scope);
	receiver->rDestroy(receiver);
	return (Datum) 0;
}
