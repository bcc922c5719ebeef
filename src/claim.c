/*
 * claim.c - claim_items: due items, a fresh slice, a gap, or nothing.
 *
 * Runs are tried by priority, then business date. Nothing here waits: items are taken SKIP LOCKED,
 * a slice under its try-lock; what another claim has open is passed over. Candidates are read once
 * per run; the INSERT of the lease and the row locks decide. The frontier of a run is the largest
 * slice that has a lease: one backward index step.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/tstoreReceiver.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "compat.h"
#include "fault.h"
#include "heal.h"
#include "job_idem.h"
#include "lease.h"
#include "lock_tag.h"
#include "lookup.h"
#include "spi.h"
#include "take.h"

/*
 * Running runs after ($3, $4, $5) in claim order, and what there is to take; `lost` is NULL where
 * nothing is due.
 */
JOB_IDEM_STATEMENT(candidates,
				   "SELECT - r.priority::bigint, r.business_date, r.run_id, r.run_key,"
				   " r.batch_size, r.n_items, r.n_slices,"
				   " coalesce((SELECT l.slice_no FROM job_idem.lease l WHERE l.run_id = r.run_id"
				   " AND l.slice_no IS NOT NULL"
				   "  ORDER BY l.slice_no DESC LIMIT 1), -1),"
				   " (SELECT i.lost FROM job_idem.item i WHERE i.run_id = r.run_id AND i.due_at"
				   " <= $2  ORDER BY i.due_at LIMIT 1), t.folded, t.behind, r.version"
				   " FROM job_idem.run r JOIN job_idem.tally t USING (run_id)"
				   " WHERE r.job_id = $1 AND r.state = 'running' AND r.paused_at IS NULL"
				   " AND (- r.priority::bigint, r.business_date, r.run_id) > ($3, $4, $5)"
				   " AND ($6 IS NULL OR r.business_date = $6) AND ($7 IS NULL OR r.run_key = $7)"
				   " AND ($8 IS NULL OR r.version = $8)"
				   " ORDER BY - r.priority::bigint, r.business_date, r.run_id",
				   8, INT8OID, TIMESTAMPTZOID, INT8OID, DATEOID, INT8OID, DATEOID, TEXTOID,
				   INT4OID);

/*
 * Items lost once are claimed in small company, items lost twice alone: $3 is the class, $4 its
 * largest company.
 */
JOB_IDEM_STATEMENT(lock_due,
				   "SELECT item_no FROM job_idem.item WHERE run_id = $1 AND due_at <= $2 AND"
				   " least(lost, 2) = $3 ORDER BY due_at LIMIT $4 FOR UPDATE SKIP LOCKED",
				   4, INT8OID, TIMESTAMPTZOID, INT4OID, INT8OID);
JOB_IDEM_STATEMENT(claim_due,
				   "UPDATE job_idem.item SET state = 'claimed', token = $3, due_at = NULL"
				   " WHERE run_id = $1 AND item_no = ANY ($2)",
				   3, INT8OID, INT8ARRAYOID, INT8OID);

#define CLAIMED_COLUMNS \
	"SELECT $1, $2, $3, $4, item_key, payload, attempts + 1, $5 FROM job_idem.item" \
	" WHERE run_id = $2"
JOB_IDEM_STATEMENT(slice_rows,
				   CLAIMED_COLUMNS " AND item_no BETWEEN $6 AND $7 AND state = 'pending'"
								   " ORDER BY item_no",
				   7, INT8OID, INT8OID, DATEOID, TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID);
JOB_IDEM_STATEMENT(pick_rows,
				   CLAIMED_COLUMNS " AND item_no = ANY ($6)",
				   6, INT8OID, INT8OID, DATEOID, TEXTOID, TIMESTAMPTZOID, INT8ARRAYOID);
JOB_IDEM_STATEMENT(correct_count, "UPDATE job_idem.lease SET n_items = $2 WHERE token = $1", 2,
				   INT8OID, INT4OID);

JOB_IDEM_STATEMENT(largest_leased,
				   "SELECT slice_no FROM job_idem.lease WHERE run_id = $1 AND slice_no IS NOT NULL"
				   " ORDER BY slice_no DESC LIMIT 1",
				   1, INT8OID);
JOB_IDEM_STATEMENT(gaps_behind,
				   "SELECT b FROM unnest($2) AS b WHERE b < $3"
				   " AND NOT EXISTS (SELECT FROM job_idem.lease WHERE run_id = $1 AND slice_no ="
				   " b) ORDER BY b",
				   3, INT8OID, INT4ARRAYOID, INT4OID);
JOB_IDEM_STATEMENT(gaps_above,
				   "SELECT previous + 1, slice_no - 1 FROM (SELECT slice_no, lag(slice_no, 1,"
				   " $2) OVER (ORDER BY slice_no)"
				   "  AS previous FROM job_idem.lease WHERE run_id = $1 AND slice_no > $2 ORDER"
				   " BY slice_no LIMIT 20000) s"
				   " WHERE slice_no > previous + 1 ORDER BY 1 LIMIT 64",
				   2, INT8OID, INT4OID);

/* What a claim is looking for, and where it has got to. */
typedef struct Search
{
	JobIdemClaim claim;
	NullableDatum business_date;
	NullableDatum run_key;
	NullableDatum version;
	Tuplestorestate *rows;
	/* the last run looked at */
	int64 priority;
	DateADT date;
	int64 run_id;
} Search;

typedef struct Candidate
{
	int64 priority;
	DateADT business_date;
	int64 run_id;
	Datum run_key;
	int32 batch_size;
	int64 n_items;
	int32 n_slices;
	int32 frontier;
	bool has_due;
	int16 lost; /* of the item due longest */
	int32 folded;
	Datum behind;
	int n_behind;
	int32 version;
} Candidate;

static Candidate *
ReadCandidates(Search *search, uint64 limit, uint64 *n)
{
	JobIdemArgs args = {.n = 0};
	Candidate *found;
	uint64 i;
	bool is_null;

	JobIdemArg(&args, Int64GetDatum(search->claim.job->job_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&args, Int64GetDatum(search->priority));
	JobIdemArg(&args, DateADTGetDatum(search->date));
	JobIdemArg(&args, Int64GetDatum(search->run_id));
	JobIdemArgNullable(&args, search->business_date.value, search->business_date.isnull);
	JobIdemArgNullable(&args, search->run_key.value, search->run_key.isnull);
	JobIdemArgNullable(&args, search->version.value, search->version.isnull);
	*n = JobIdemRunLatest(&candidates, &args, limit);
	found = palloc(Max(*n, 1) * sizeof(Candidate));
	for (i = 0; i < *n; i++)
	{
		Candidate *c = &found[i];

		c->priority = JobIdemInt64(i, 1);
		c->business_date = JobIdemInt32(i, 2);
		c->run_id = JobIdemInt64(i, 3);
		c->run_key = JobIdemColumn(i, 4, &is_null);
		c->batch_size = JobIdemInt32(i, 5);
		c->n_items = JobIdemInt64(i, 6);
		c->n_slices = JobIdemInt32(i, 7);
		c->frontier = JobIdemInt32(i, 8);
		c->has_due = !JobIdemIsNull(i, 9);
		c->lost = c->has_due ? JobIdemInt16(i, 9) : 0;
		c->folded = JobIdemInt32(i, 10);
		c->behind = JobIdemColumn(i, 11, &is_null);
		c->version = JobIdemInt32(i, 12);
		c->n_behind = ArrayGetNItems(ARR_NDIM(DatumGetArrayTypeP(c->behind)),
									 ARR_DIMS(DatumGetArrayTypeP(c->behind)));
	}
	return found;
}

/*
 * Sends the claimed items to the result, straight from the executor; the statement reads what is
 * committed now.
 */
static uint64
Emit(Search *search, const Candidate *run, JobIdemStatement *statement, Datum sixth,
	 NullableDatum seventh)
{
	DestReceiver *receiver = CreateDestReceiver(DestTuplestore);
	JobIdemArgs args = {.n = 0};

	SetTuplestoreDestReceiverParams(receiver, search->rows, CurrentMemoryContext, false, NULL,
									NULL);
	JobIdemArg(&args, Int64GetDatum(search->claim.token));
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	JobIdemArg(&args, DateADTGetDatum(run->business_date));
	JobIdemArg(&args, run->run_key);
	JobIdemArg(&args, TimestampTzGetDatum(search->claim.deadline));
	JobIdemArg(&args, sixth);
	if (!seventh.isnull)
		JobIdemArg(&args, seventh.value);
	return JobIdemRunInto(statement, &args, receiver);
}

/* Takes due items of one class; false if others have them all. */
static bool
TryDueClass(Search *search, const Candidate *run, int class, int64 company)
{
	JobIdemArgs due = {.n = 0};
	JobIdemArgs args = {.n = 0};
	Datum *item_nos;
	Datum picks;
	NullableDatum none = {.isnull = true};
	uint64 n;
	uint64 i;

	JobIdemArg(&due, Int64GetDatum(run->run_id));
	JobIdemArg(&due, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&due, Int32GetDatum(class));
	JobIdemArg(&due, Int64GetDatum(company));
	n = JobIdemRunLatest(&lock_due, &due, 0);
	if (n == 0)
		return false;
	item_nos = palloc(n * sizeof(Datum));
	for (i = 0; i < n; i++)
		item_nos[i] = Int64GetDatum(JobIdemInt64(i, 1));
	JobIdemTakePicks(&search->claim, item_nos, (int) n);
	picks = PointerGetDatum(construct_array(item_nos, (int) n, INT8OID, sizeof(int64),
											FLOAT8PASSBYVAL,
											TYPALIGN_DOUBLE));
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	JobIdemArg(&args, picks);
	JobIdemArg(&args, Int64GetDatum(search->claim.token));
	if (JobIdemRunLatest(&claim_due, &args, 0) != n)
		elog(ERROR, "locked items went away");
	JobIdemFaultPoint("claim");
	(void) Emit(search, run, &pick_rows, picks, none);
	return true;
}

/* The class of the item that is due longest first, so that no class starves. */
static bool
TryDue(Search *search, const Candidate *run)
{
	int64 company[3] = {run->batch_size, Max(1, run->batch_size / 16), 1};
	int first = Min(run->lost, 2);
	int i;

	if (!run->has_due)
		return false;
	for (i = 0; i < 3; i++)
	{
		int class = (first + i) % 3;

		if (TryDueClass(search, run, class, company[class]))
			return true;
	}
	return false;
}

/*
 * Records how many items the claim of a slice really has; an empty slice is closed, and the claim
 * goes on.
 */
static bool
Settle(Search *search, int32 expected, int32 n)
{
	JobIdemArgs args = {.n = 0};
	JobIdemLease lease = {.token = search->claim.token};

	if (n < expected)
	{
		JobIdemArg(&args, Int64GetDatum(search->claim.token));
		JobIdemArg(&args, Int32GetDatum(n));
		(void) JobIdemRunLatest(&correct_count, &args, 0);
	}
	if (n == 0)
		(void) JobIdemLeaseClose(&lease, OUTCOME_COMPLETED, 0, 0);
	return n > 0;
}

typedef enum SliceTry
{
	SLICE_CLAIMED,
	SLICE_BUSY, /* another transaction is just claiming it */
	SLICE_GONE	/* it has a lease, or had nothing to claim */
} SliceTry;

static SliceTry
TrySlice(Search *search, const Candidate *run, int32 slice_no)
{
	int64 first = (int64) slice_no * run->batch_size + 1;
	int64 last = Min(first + run->batch_size - 1, run->n_items);
	NullableDatum end = {.value = Int64GetDatum(last), .isnull = false};
	uint64 n;

	CHECK_FOR_INTERRUPTS();
	if (!JobIdemTryLock(LOCK_SLICE, JobIdemFold(run->run_id), (uint32) slice_no, true))
		return SLICE_BUSY;
	if (!JobIdemTakeSlice(&search->claim, slice_no, (int32) (last - first + 1)))
		return SLICE_GONE;
	JobIdemFaultPoint("claim");
	n = Emit(search, run, &slice_rows, Int64GetDatum(first), end);
	return Settle(search, (int32) (last - first + 1), (int32) n) ? SLICE_CLAIMED : SLICE_GONE;
}

/* The frontier as it is now: others have moved it on since the run was read. */
static int32
Frontier(const Candidate *run)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run->run_id));
	return JobIdemRunLatest(&largest_leased, &args, 1) == 1 ? JobIdemInt32(0, 1) : -1;
}

static bool
TryFresh(Search *search, const Candidate *run)
{
	int32 slice_no = run->frontier + 1;

	while (slice_no < run->n_slices)
	{
		switch (TrySlice(search, run, slice_no))
		{
			case SLICE_CLAIMED:
				return true;
			case SLICE_BUSY:
				slice_no++;
				break;
			case SLICE_GONE:
				slice_no = Max(slice_no, Frontier(run)) + 1;
				break;
		}
	}
	return false;
}

/* Slices whose claim rolled back, before the frontier and noted in the tally. */
static bool
TryGapsBehind(Search *search, const Candidate *run)
{
	JobIdemArgs args = {.n = 0};
	int32 *gaps;
	uint64 n;
	uint64 i;

	if (run->n_behind == 0)
		return false;
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	JobIdemArg(&args, run->behind);
	JobIdemArg(&args, Int32GetDatum(run->n_slices));
	n = JobIdemRunLatest(&gaps_behind, &args, 0);
	gaps = palloc(Max(n, 1) * sizeof(int32));
	for (i = 0; i < n; i++)
		gaps[i] = JobIdemInt32(i, 1);
	for (i = 0; i < n; i++)
		if (TrySlice(search, run, gaps[i]) == SLICE_CLAIMED)
			return true;
	return false;
}

/* With the frontier at the end: slices without a lease that the tally has not come to yet. */
static bool
TryGapsAbove(Search *search, const Candidate *run)
{
	JobIdemArgs args = {.n = 0};
	int32 *ends;
	uint64 n;
	uint64 i;
	int32 slice_no;

	if (run->frontier <= run->folded + 1)
		return false;
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	JobIdemArg(&args, Int32GetDatum(run->folded));
	n = JobIdemRunLatest(&gaps_above, &args, 0);
	ends = palloc(Max(n, 1) * 2 * sizeof(int32));
	for (i = 0; i < n; i++)
	{
		ends[2 * i] = JobIdemInt32(i, 1);
		ends[2 * i + 1] = JobIdemInt32(i, 2);
	}
	for (i = 0; i < n; i++)
		for (slice_no = ends[2 * i]; slice_no <= ends[2 * i + 1]; slice_no++)
			if (TrySlice(search, run, slice_no) == SLICE_CLAIMED)
				return true;
	return false;
}

static bool
TryRun(Search *search, const Candidate *run)
{
	search->claim.run_id = run->run_id;
	search->claim.version = run->version;
	return TryDue(search, run) || TryGapsBehind(search, run) || TryFresh(search, run) ||
		TryGapsAbove(search, run);
}

/* The first run mostly has something; only if not are others read, many at a time. */
static bool
TryRuns(Search *search)
{
	uint64 limit = 1;
	uint64 n;
	uint64 i;
	Candidate *runs;

	search->priority = PG_INT64_MIN;
	search->date = DATEVAL_NOBEGIN;
	search->run_id = 0;
	do
	{
		runs = ReadCandidates(search, limit, &n);
		for (i = 0; i < n; i++)
		{
			if (TryRun(search, &runs[i]))
				return true;
			search->priority = runs[i].priority;
			search->date = runs[i].business_date;
			search->run_id = runs[i].run_id;
		}
	} while (n == limit && (limit = 64) > 0);
	return false;
}

static void
ReadArguments(FunctionCallInfo fcinfo, Search *search)
{
	search->claim.worker = JobIdemWorkerArgument(fcinfo, 1);
	search->business_date.isnull = PG_ARGISNULL(2);
	if (!PG_ARGISNULL(2))
		search->business_date.value = DateADTGetDatum(JobIdemDateArgument(fcinfo, 2,
																		  "business_date"));
	search->run_key.isnull = PG_ARGISNULL(3);
	search->run_key.value = PG_GETARG_DATUM(3);
	search->claim.lease = JobIdemLeaseArgument(fcinfo, 4);
	search->version.isnull = PG_ARGISNULL(5);
	search->version.value = PG_GETARG_DATUM(5);
	search->claim.bind = !PG_ARGISNULL(6) && PG_GETARG_BOOL(6);
}

PG_FUNCTION_INFO_V1(job_idem_claim_items);
Datum
job_idem_claim_items(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	Search search = {0};
	JobIdemScope scope;
	JobIdemJob *job;

	ReadArguments(fcinfo, &search);
	InitMaterializedSRF(fcinfo, 0);
	search.rows = ((ReturnSetInfo *) fcinfo->resultinfo)->setResult;
	JobIdemEnter(&scope);
	job = JobIdemJobByName(name);
	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_WORK);
	search.claim.job = job;
	if (job->live && !job->paused && !TryRuns(&search))
		JobIdemHeal(job);
	JobIdemLeave(&scope);
	return (Datum) 0;
}
