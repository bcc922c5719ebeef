/*
 * holder.c - end_holder and lease_holders: the transactions that hold a claim, and their end.
 *
 * Whoever works under a claim locks its lease row, so the row itself names the transactions, by
 * the xmax of its newest committed version: one id or several, of transactions or of their
 * subtransactions. The backend recorded with the claim is never asked: behind a pooler it may serve
 * another client by now. A transaction is looked for again just before its backend is ended, for
 * the same reason.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/subtrans.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "backend.h"
#include "clock.h"
#include "event.h"
#include "holder.h"
#include "job_idem.h"
#include "lease.h"
#include "spi.h"

/* milliseconds that end_holder waits for a backend to end */
#define PATIENCE 5000

JOB_IDEM_STATEMENT(find_row, "SELECT tableoid, ctid FROM job_idem.lease WHERE token = $1", 1,
				   INT8OID);
JOB_IDEM_STATEMENT(find_prepared,
				   "SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE transaction = $1",
				   1, XIDOID);
#define PAST_MAX JOB_IDEM_OPEN_LEASES("l.token, l.hard_deadline", "l.hard_deadline <= $2")
JOB_IDEM_STATEMENT(past_max, PAST_MAX, 2, INT8OID, TIMESTAMPTZOID);

typedef struct Holder
{
	TransactionId xid; /* of the transaction, not of a subtransaction */
	int pid;		   /* 0: it is prepared */
	char *gid;		   /* if it is prepared */
} Holder;

/* What the header of a row says of its lockers. */
typedef struct RowLock
{
	TransactionId xmax;
	uint16 infomask;
} RowLock;

/* False: that version is not the newest committed one any more. */
static bool
ReadRowLock(Oid table, ItemPointer place, RowLock *lock)
{
	Relation relation = table_open(table, AccessShareLock);
	Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
	HeapTupleData row = {.t_self = *place};
	Buffer buffer;
	bool found = heap_fetch(relation, latest, &row, &buffer, false);

	if (found)
	{
		/* lockers write both together */
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		lock->xmax = HeapTupleHeaderGetRawXmax(row.t_data);
		lock->infomask = row.t_data->t_infomask;
		UnlockReleaseBuffer(buffer);
	}
	UnregisterSnapshot(latest);
	table_close(relation, AccessShareLock);
	return found;
}

/* False: there is no such claim. */
static bool
FindRowLock(int64 token, RowLock *lock)
{
	JobIdemArgs args = {.n = 0};
	ItemPointerData place;
	bool is_null;
	Oid table;

	JobIdemArg(&args, Int64GetDatum(token));
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (JobIdemRunLatest(&find_row, &args, 1) == 0)
			return false;
		table = JobIdemOid(0, 1);
		ItemPointerCopy((ItemPointer) DatumGetPointer(JobIdemColumn(0, 2, &is_null)), &place);
	} while (!ReadRowLock(table, &place, lock));
	return true;
}

/* The ids in an xmax, in progress or not. */
static TransactionId *
Lockers(const RowLock *lock, int *n)
{
	TransactionId *xids;
	MultiXactMember *members;
	bool upgraded;
	bool locked_only;
	int i;

	*n = 0;
	if (lock->infomask & HEAP_XMAX_INVALID)
		return NULL;
	if (!(lock->infomask & HEAP_XMAX_IS_MULTI))
	{
		*n = 1;
		xids = palloc(sizeof(TransactionId));
		xids[0] = lock->xmax;
		return xids;
	}
	upgraded = HEAP_LOCKED_UPGRADED(lock->infomask);
	locked_only = HEAP_XMAX_IS_LOCKED_ONLY(lock->infomask);
	*n = Max(0, GetMultiXactIdMembers(lock->xmax, &members, upgraded, locked_only));
	xids = palloc(Max(*n, 1) * sizeof(TransactionId));
	for (i = 0; i < *n; i++)
		xids[i] = members[i].xid;
	return xids;
}

static bool
IsAmong(const Holder *holders, int n, TransactionId xid)
{
	int i;

	for (i = 0; i < n; i++)
		if (TransactionIdEquals(holders[i].xid, xid))
			return true;
	return false;
}

/* Finds the backend of a transaction, or its name if it is prepared; false: it has just ended. */
static bool
Identify(Holder *holder)
{
	JobIdemArgs args = {.n = 0};

	holder->gid = NULL;
	holder->pid = BackendXidGetPid(holder->xid);
	if (holder->pid != 0)
		return true;
	JobIdemArg(&args, TransactionIdGetDatum(holder->xid));
	if (JobIdemRun(&find_prepared, &args, 1) == 0)
		return false;
	holder->gid = JobIdemText(0, 1, CurrentMemoryContext);
	return true;
}

/* The transactions in progress that lock the lease; each is there once. */
static Holder *
FindHolders(int64 token, int *n)
{
	RowLock lock;
	TransactionId *xids;
	Holder *holders;
	int n_xids;
	int i;

	*n = 0;
	if (!FindRowLock(token, &lock))
		return NULL;
	xids = Lockers(&lock, &n_xids);
	holders = palloc(Max(n_xids, 1) * sizeof(Holder));
	for (i = 0; i < n_xids; i++)
	{
		Holder *holder = &holders[*n];

		if (!TransactionIdIsInProgress(xids[i]))
			continue;
		holder->xid = SubTransGetTopmostTransaction(xids[i]);
		if (!IsAmong(holders, *n, holder->xid) && Identify(holder))
			(*n)++;
	}
	return holders;
}

static bool
End(const Holder *holder, int64 patience)
{
	if (BackendXidGetPid(holder->xid) != holder->pid)
		return false;
	return DatumGetBool(DirectFunctionCall2(pg_terminate_backend, Int32GetDatum(holder->pid),
											Int64GetDatum(patience)));
}

static void
RecordEnd(int64 job_id, int64 run_id, int64 token, int n, const char *reason)
{
	JobIdemEvent("end_holder", job_id, run_id, NULL,
				 psprintf("{\"token\": " INT64_FORMAT ", \"pids\": %d}", token, n), reason);
}

/*
 * For tick: ends the transactions that hold a claim of the run since before its hard deadline. A
 * younger one is let be: it completes something, or takes the claim back, and is soon over.
 */
static void
EndPastMax(const JobIdemJob *job, int64 run_id, int64 token, TimestampTz hard_deadline)
{
	int n;
	Holder *holders = FindHolders(token, &n);
	int ended = 0;
	int i;

	JobIdemBackendsLook();
	for (i = 0; i < n; i++)
	{
		TimestampTz began = JobIdemBackendXactStart(holders[i].pid);

		if (holders[i].gid == NULL && holders[i].pid != MyProcPid && began != 0 &&
			began <= hard_deadline && End(&holders[i], 0))
			ended++;
	}
	if (ended > 0)
		RecordEnd(job->job_id, run_id, token, ended, "at_max_lease");
}

void
JobIdemEndHoldersPastMax(const JobIdemJob *job, int64 run_id)
{
	JobIdemArgs args = {.n = 0};
	TimestampTz past = JobIdemNow() - JobIdemIntervalMicros(&job->takeover_delay);
	int64 *tokens;
	TimestampTz *deadlines;
	uint64 n;
	uint64 i;
	bool is_null;

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(past));
	n = JobIdemRun(&past_max, &args, 0);
	tokens = palloc(Max(n, 1) * sizeof(int64));
	deadlines = palloc(Max(n, 1) * sizeof(TimestampTz));
	for (i = 0; i < n; i++)
	{
		tokens[i] = JobIdemInt64(i, 1);
		deadlines[i] = DatumGetTimestampTz(JobIdemColumn(i, 2, &is_null));
	}
	for (i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		EndPastMax(job, run_id, tokens[i], deadlines[i]);
	}
}

static ArrayType *
PidArray(const int *pids, int n)
{
	Datum *values = palloc(Max(n, 1) * sizeof(Datum));
	int i;

	for (i = 0; i < n; i++)
		values[i] = Int32GetDatum(pids[i]);
	return construct_array(values, n, INT4OID, sizeof(int32), true, TYPALIGN_INT);
}

static void
RequireOn(int64 token, JobIdemLease *lease, JobIdemRight right)
{
	if (!JobIdemLeaseGet(token, LEASE_READ, lease))
		JobIdemNoSuchClaim(token);
	JobIdemLeaseContext(lease);
	JobIdemRequire(lease->job_id, lease->job_owner, lease->job, right);
}

static void
RefuseOwn(const Holder *holders, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (holders[i].pid == MyProcPid)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("this transaction holds the claim itself"),
					 errhint("Roll it back.")));
}

static void
WarnOfPrepared(int64 token, const Holder *holder)
{
	const char *gid = quote_literal_cstr(holder->gid);

	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("prepared transaction %s holds claim " INT64_FORMAT, gid, token),
			 errhint("It has no backend to end. ROLLBACK PREPARED %s undoes its work.", gid)));
}

/* Ends the holders one by one; returns how many have gone, into `pids`. */
static int
EndAll(int64 token, const Holder *holders, int n, int *pids)
{
	int ended = 0;
	int i;

	for (i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (holders[i].gid != NULL)
			WarnOfPrepared(token, &holders[i]);
		else if (End(&holders[i], PATIENCE))
			pids[ended++] = holders[i].pid;
	}
	return ended;
}

PG_FUNCTION_INFO_V1(job_idem_end_holder);
Datum
job_idem_end_holder(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	MemoryContext context = CurrentMemoryContext;
	JobIdemScope scope;
	JobIdemLease lease;
	Holder *holders;
	int *pids;
	int n;
	int ended;

	JobIdemEnter(&scope);
	RequireOn(token, &lease, RIGHT_OPERATE);
	holders = FindHolders(token, &n);
	RefuseOwn(holders, n);
	pids = MemoryContextAlloc(context, Max(n, 1) * sizeof(int));
	ended = EndAll(token, holders, n, pids);
	if (ended > 0)
		RecordEnd(lease.job_id, lease.run_id, token, ended, NULL);
	JobIdemLeave(&scope);
	PG_RETURN_ARRAYTYPE_P(PidArray(pids, ended));
}

/* For the view stuck. As in pg_blocking_pids, 0 stands for a prepared transaction. */
PG_FUNCTION_INFO_V1(job_idem_lease_holders);
Datum
job_idem_lease_holders(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	MemoryContext context = CurrentMemoryContext;
	JobIdemScope scope;
	JobIdemLease lease;
	Holder *holders;
	int *pids;
	int n;
	int i;

	JobIdemEnter(&scope);
	RequireOn(token, &lease, RIGHT_VIEW);
	holders = FindHolders(token, &n);
	pids = MemoryContextAlloc(context, Max(n, 1) * sizeof(int));
	for (i = 0; i < n; i++)
		pids[i] = holders[i].pid;
	JobIdemLeave(&scope);
	PG_RETURN_ARRAYTYPE_P(PidArray(pids, n));
}
