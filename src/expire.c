/*
 * expire.c - takes back what overdue leases hold.
 *
 * A lease is taken FOR UPDATE SKIP LOCKED: one under which a transaction is completing items is in
 * use and is met again at the next pass. It is read again after the lock, its unfinished items are
 * moved and it is closed, all in one subtransaction, so that an error in one lease stops no other.
 *
 * A loss counts as an attempt only when the lease held that one item; otherwise only `lost` grows,
 * and the item is next claimed in smaller company (claim.c). So an item that kills its worker ends
 * up dead by itself.
 *
 * A bound claim is overdue as soon as its backend is gone; that is for good, so it is asked once,
 * and before the lock. What it held is due at once when it is lost for the first time.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "access.h"
#include "backend.h"
#include "clock.h"
#include "dead_letter.h"
#include "expire.h"
#include "fault.h"
#include "guarded.h"
#include "job_idem.h"
#include "lease.h"
#include "spi.h"

/* Whether the backend of a bound claim is there, no statement can tell: those come along. */
#define OVERDUE "$3 OR l.deadline <= $2"
#define FIND_OVERDUE \
	JOB_IDEM_OPEN_LEASES("l.token, " OVERDUE ", l.backend, l.bound_start", \
						 OVERDUE " OR l.bound_start IS NOT NULL")
JOB_IDEM_STATEMENT(find_overdue, FIND_OVERDUE, 3, INT8OID, TIMESTAMPTZOID, BOOLOID);

JOB_IDEM_STATEMENT(slice_left,
				   "SELECT item_no, item_key, attempts, lost FROM job_idem.item"
				   " WHERE run_id = $1 AND item_no BETWEEN $2 AND $3 AND state = 'pending' ORDER"
				   " BY item_no",
				   3, INT8OID, INT8OID, INT8OID);
JOB_IDEM_STATEMENT(pick_left,
				   "SELECT i.item_no, i.item_key, i.attempts, i.lost FROM job_idem.lease l JOIN"
				   " job_idem.item i ON i.run_id = l.run_id AND i.item_no = ANY (l.picks)"
				   " WHERE l.token = $1 AND i.state = 'claimed' AND i.token = $1 ORDER BY"
				   " i.item_no",
				   1, INT8OID);

typedef struct LostItem
{
	int64 item_no;
	char *item_key;
	int16 attempts;
	int16 lost;
} LostItem;

static LostItem *
ReadLost(const JobIdemLease *lease, int *n)
{
	JobIdemArgs args = {.n = 0};
	LostItem *items;
	int i;

	if (lease->is_slice)
	{
		JobIdemArg(&args, Int64GetDatum(lease->run_id));
		JobIdemArg(&args, Int64GetDatum(lease->first));
		JobIdemArg(&args, Int64GetDatum(lease->last));
	}
	else
		JobIdemArg(&args, Int64GetDatum(lease->token));
	*n = (int) JobIdemRunLatest(lease->is_slice ? &slice_left : &pick_left, &args, 0);
	items = palloc(Max(*n, 1) * sizeof(LostItem));
	for (i = 0; i < *n; i++)
	{
		items[i].item_no = JobIdemInt64(i, 1);
		items[i].item_key = JobIdemText(i, 2, CurrentMemoryContext);
		items[i].attempts = JobIdemInt16(i, 3);
		items[i].lost = JobIdemInt16(i, 4);
	}
	return items;
}

static void
LoseItem(const JobIdemJob *job, const JobIdemLease *lease, const LostItem *item)
{
	bool alone = lease->n_items == 1;
	bool gone = lease->backend_gone;
	JobIdemFailure failure = {
		.run_id = lease->run_id,
		.item_no = item->item_no,
		.item_key = item->item_key,
		.token = lease->token,
		.attempts = Min(item->attempts + (alone ? 1 : 0), PG_INT16_MAX),
		.lost = Min(item->lost + 1, PG_INT16_MAX),
		.kind = FAILURE_LOST,
		.retry = true,
		.at_once = gone && item->lost == 0,
		.message = gone ? "the claim's backend ended before the item was finished"
						: "the lease ended before the item was finished",
	};
	TimestampTz retry_at;

	(void) JobIdemFail(job, &failure, &retry_at);
}

/*
 * Moves the unfinished items of an open lease that the caller holds FOR UPDATE, with its context
 * read, and closes it. Returns how many items were moved.
 */
int64
JobIdemExpireHeld(const JobIdemJob *job, JobIdemLease *lease)
{
	MemoryContext turn = AllocSetContextCreate(CurrentMemoryContext, "job_idem expiry",
											   ALLOCSET_SMALL_SIZES);
	LostItem *items;
	int64 n_left;
	int64 n_done;
	int n;
	int i;

	items = ReadLost(lease, &n);
	JobIdemLeaseCensus(lease, &n_left, &n_done);
	JobIdemFaultPoint("expire");
	for (i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(turn);

		CHECK_FOR_INTERRUPTS();
		LoseItem(job, lease, &items[i]);
		MemoryContextSwitchTo(old);
		MemoryContextReset(turn);
	}
	MemoryContextDelete(turn);
	(void) JobIdemLeaseClose(lease, n == 0 ? OUTCOME_COMPLETED : OUTCOME_EXPIRED, n_done, n);
	return n;
}

/* A lease that is overdue as far as was seen without a lock. */
typedef struct Candidate
{
	int64 token;
	bool backend_gone;
} Candidate;

typedef struct Expiry
{
	const JobIdemJob *job;
	TimestampTz overdue;
	bool all;
	Candidate lease;
	bool expired;
} Expiry;

/* Takes one lease if it can be had and is overdue still. */
static void
ExpireOne(void *argument)
{
	Expiry *expiry = argument;
	JobIdemLease lease;

	if (!JobIdemLeaseGet(expiry->lease.token, LEASE_TRY_UPDATE, &lease))
		return;
	lease.backend_gone = expiry->lease.backend_gone;
	if (lease.outcome != OUTCOME_OPEN ||
		(!expiry->all && !lease.backend_gone && lease.deadline > expiry->overdue))
		return;
	JobIdemLeaseContext(&lease);
	(void) JobIdemExpireHeld(expiry->job, &lease);
	expiry->expired = true;
}

/*
 * The same in a subtransaction; an error becomes a WARNING that names the lease. A lock timeout is
 * raised again.
 */
static bool
ExpireGuarded(Expiry *expiry, const Candidate *lease)
{
	ErrorData *error;

	expiry->lease = *lease;
	expiry->expired = false;
	error = JobIdemTry(ExpireOne, expiry);
	if (error == NULL)
		return expiry->expired;
	/* somebody has locked a whole table: the next lease would wait as long */
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not expire claim " INT64_FORMAT ": %s", lease->token, error->message),
			 errhint("The other claims go on; this one is met again at the next tick.")));
	return false;
}

/* Picks those out of the n leases found that are overdue; returns their number. */
static uint64
ReadCandidates(uint64 n, Candidate *leases)
{
	uint64 picked = 0;
	uint64 i;
	bool is_null;

	/* the leases are read: no backend of theirs may be missing from what is read now */
	JobIdemBackendsLook();
	for (i = 0; i < n; i++)
	{
		TimestampTz start = DatumGetTimestampTz(JobIdemColumn(i, 4, &is_null));
		bool gone = !is_null && !JobIdemBackendLives(JobIdemInt32(i, 3), start);

		if (!gone && !JobIdemBool(i, 2))
			continue;
		leases[picked].token = JobIdemInt64(i, 1);
		leases[picked].backend_gone = gone;
		picked++;
	}
	return picked;
}

/*
 * Expires at most `limit` overdue leases of a run, or, with `all`, whatever is open there. What is
 * in use is passed over. `more` tells whether there may be others.
 */
int
JobIdemExpireOverdue(const JobIdemJob *job, int64 run_id, bool all, int limit, bool *more)
{
	Expiry expiry = {.job = job, .all = all};
	JobIdemArgs args = {.n = 0};
	Candidate *leases;
	uint64 page;
	uint64 found;
	uint64 n;
	uint64 i;
	int expired = 0;

	expiry.overdue = JobIdemNow() - JobIdemIntervalMicros(&job->takeover_delay);
	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(expiry.overdue));
	JobIdemArg(&args, BoolGetDatum(all));
	/* what is in use stays in front: where it fills a page, a larger one is read */
	for (page = (uint64) limit * 4 + 16; expired < limit; page *= 8)
	{
		found = JobIdemRun(&find_overdue, &args, page);
		leases = palloc(Max(found, 1) * sizeof(Candidate));
		n = ReadCandidates(found, leases);
		JobIdemFaultPoint("expire_found");
		for (i = 0; i < n && expired < limit; i++)
		{
			CHECK_FOR_INTERRUPTS();
			if (ExpireGuarded(&expiry, &leases[i]))
				expired++;
		}
		pfree(leases);
		if (found < page)
			break;
	}
	*more = expired == limit;
	return expired;
}
