/*
 * take.c - inserts a lease: on a slice, where UNIQUE (run_id, slice_no) decides, or on single
 * items.
 *
 * The token is drawn last, after every lock of the claim, so that a later holder's is larger.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "current.h"
#include "job_idem.h"
#include "lease.h"
#include "spi.h"
#include "take.h"
#include "token.h"

#ifdef JOB_IDEM_ABLATE_UNIQUE
#define ONE_LEASE_A_SLICE ""
#else
#define ONE_LEASE_A_SLICE " ON CONFLICT (run_id, slice_no) DO NOTHING"
#endif

JOB_IDEM_STATEMENT(insert_slice,
				   "INSERT INTO job_idem.lease (token, run_id, slice_no, n_items, worker, backend,"
				   " claimed_at, deadline, hard_deadline, bound_start, version)"
				   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)" ONE_LEASE_A_SLICE,
				   11, INT8OID, INT8OID, INT4OID, INT4OID, TEXTOID, INT4OID, TIMESTAMPTZOID,
				   TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID);
JOB_IDEM_STATEMENT(insert_picks,
				   "INSERT INTO job_idem.lease (token, run_id, picks, n_items, worker, backend,"
				   " claimed_at, deadline, hard_deadline, bound_start, version, pick_open)"
				   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, true)",
				   11, INT8OID, INT8OID, INT8ARRAYOID, INT4OID, TEXTOID, INT4OID, TIMESTAMPTZOID,
				   TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID);

/* A name for people, cut where too long. */
char *
JobIdemWorkerArgument(FunctionCallInfo fcinfo, int i)
{
	char *worker = JobIdemTextArgumentOrNull(fcinfo, i);

	if (worker != NULL && strlen(worker) > JOB_IDEM_MAX_WORKER)
		worker[pg_mbcliplen(worker, strlen(worker), JOB_IDEM_MAX_WORKER)] = '\0';
	return worker;
}

static bool
Insert(JobIdemClaim *claim, JobIdemStatement *statement, Datum what, int32 n_items)
{
	TimestampTz now = JobIdemNow();
	TimestampTz hard = JobIdemPlus(now, &claim->job->max_lease);
	JobIdemArgs args = {.n = 0};

	claim->token = JobIdemDrawToken();
	claim->deadline = JobIdemLeaseEnd(now, claim->lease ? claim->lease : &claim->job->lease, hard);
	JobIdemArg(&args, Int64GetDatum(claim->token));
	JobIdemArg(&args, Int64GetDatum(claim->run_id));
	JobIdemArg(&args, what);
	JobIdemArg(&args, Int32GetDatum(n_items));
	JobIdemArgText(&args, claim->worker);
	JobIdemArg(&args, Int32GetDatum(MyProcPid));
	JobIdemArg(&args, TimestampTzGetDatum(now));
	JobIdemArg(&args, TimestampTzGetDatum(claim->deadline));
	JobIdemArg(&args, TimestampTzGetDatum(hard));
	JobIdemArgNullable(&args, TimestampTzGetDatum(MyStartTimestamp), !claim->bind);
	JobIdemArg(&args, Int32GetDatum(claim->version));
	if (JobIdemRunLatest(statement, &args, 0) == 0)
		return false;
	JobIdemCurrentAdd(claim->token, CURRENT_HOLD);
	return true;
}

/* False: somebody else has, or had, that slice. */
bool
JobIdemTakeSlice(JobIdemClaim *claim, int32 slice_no, int32 n_items)
{
	return Insert(claim, &insert_slice, Int32GetDatum(slice_no), n_items);
}

/* The caller has locked the items, or is about to insert them. */
void
JobIdemTakePicks(JobIdemClaim *claim, Datum *item_nos, int n)
{
	ArrayType *picks = construct_array(item_nos, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
									   TYPALIGN_DOUBLE);

	(void) Insert(claim, &insert_picks, PointerGetDatum(picks), n);
}
