/*
 * tally.c - adds closed leases up, so that nobody ever counts items.
 *
 * The fold goes through a run's slices in order. What is closed is counted and left behind for
 * good; what is open or has no lease yet is noted in tally.behind and looked at again each time.
 * Steps are bounded. The tally row is locked SKIP LOCKED and read only then, in a new statement,
 * and written only if something moved; so each lease is counted once, whoever folds, and a fold
 * waits for nobody.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "spi.h"
#include "tally.h"

/* slices looked at in one step */
#define FOLD_STEP 20000
#define MAX_BEHIND 64

JOB_IDEM_STATEMENT(is_movable,
				   "SELECT 1 FROM job_idem.tally t WHERE run_id = $1 AND ("
				   " EXISTS (SELECT FROM job_idem.lease WHERE run_id = $1 AND slice_no > t.folded"
				   "  AND (cardinality(t.behind) < 64 OR (slice_no = t.folded + 1 AND outcome <>"
				   " 'open')))"
				   " OR EXISTS (SELECT FROM job_idem.lease WHERE run_id = $1 AND slice_no = ANY"
				   " (t.behind)  AND outcome <> 'open')"
				   " OR EXISTS (SELECT FROM job_idem.lease WHERE run_id = $1 AND pick_open IS"
				   " NOT NULL  AND NOT pick_open))",
				   1, INT8OID);
JOB_IDEM_STATEMENT(lock_tally,
				   "SELECT folded FROM job_idem.tally WHERE run_id = $1 FOR UPDATE SKIP LOCKED",
				   1, INT8OID);
JOB_IDEM_STATEMENT(read_tally, "SELECT folded, behind FROM job_idem.tally WHERE run_id = $1", 1,
				   INT8OID);
JOB_IDEM_STATEMENT(next_leases,
				   "SELECT slice_no, outcome, n_done, n_failed, n_lost, n_retried"
				   " FROM job_idem.lease WHERE run_id = $1 AND slice_no > $2 ORDER BY slice_no",
				   2, INT8OID, INT4OID);
JOB_IDEM_STATEMENT(behind_leases,
				   "SELECT slice_no, outcome, n_done, n_failed, n_lost, n_retried"
				   " FROM job_idem.lease WHERE run_id = $1 AND slice_no = ANY ($2)"
				   " AND outcome <> 'open'",
				   2, INT8OID, INT4ARRAYOID);
JOB_IDEM_STATEMENT(count_picks,
				   "WITH closed AS (UPDATE job_idem.lease SET pick_open = NULL WHERE token IN ("
				   "  SELECT token FROM job_idem.lease WHERE run_id = $1 AND pick_open IS NOT"
				   " NULL AND NOT pick_open  ORDER BY token LIMIT 20000 FOR UPDATE SKIP LOCKED)"
				   " RETURNING n_done, n_failed, n_lost, n_retried)"
				   " SELECT count(*), coalesce(sum(n_done), 0)::bigint, coalesce(sum(n_failed),"
				   " 0)::bigint, coalesce(sum(n_lost), 0)::bigint,"
				   " coalesce(sum(n_retried), 0)::bigint FROM closed",
				   1, INT8OID);
JOB_IDEM_STATEMENT(write_tally,
				   "UPDATE job_idem.tally SET folded = $2, behind = $3, n_done = n_done + $4,"
				   " n_failed = n_failed + $5, n_lost = n_lost + $6,"
				   " n_retried = n_retried + $7 WHERE run_id = $1",
				   7, INT8OID, INT4OID, INT4ARRAYOID, INT8OID, INT8OID, INT8OID, INT8OID);

/*
 * The tally and what is not in it yet: of a closed lease what it says of itself, of an open one
 * what has been marked under it so far.
 */
#define UNCOUNTED(condition) \
	"SELECT token, slice_no, picks, outcome, n_done, n_failed, n_retried" \
	" FROM job_idem.lease WHERE run_id = t.run_id AND " condition
#define UNCOUNTED_ABOVE UNCOUNTED("slice_no > t.folded")
#define UNCOUNTED_BEHIND UNCOUNTED("slice_no = ANY (t.behind)")
#define UNCOUNTED_PICKS UNCOUNTED("pick_open IS NOT NULL")
#define ALL_UNCOUNTED UNCOUNTED_ABOVE " UNION ALL " UNCOUNTED_BEHIND " UNION ALL " UNCOUNTED_PICKS
#define PLUS(so_far, at_close) \
	" + coalesce(sum(CASE l.outcome WHEN 'open' THEN " so_far " ELSE " at_close " END), 0)::bigint"
#define DONE "t.n_done" PLUS("s.n + p.n", "l.n_done")
#define FAILED "t.n_failed" PLUS("f.n", "l.n_failed")
#define RETRIED "t.n_retried" PLUS("f.r", "l.n_retried")
#define COUNT_ALL \
	"SELECT " DONE ", " FAILED ", " RETRIED \
	" FROM job_idem.tally t JOIN job_idem.run r USING (run_id)" \
	" LEFT JOIN LATERAL (" ALL_UNCOUNTED ") l ON true" \
	" LEFT JOIN LATERAL (SELECT count(*) AS n FROM job_idem.item WHERE l.outcome = 'open'" \
	"  AND run_id = r.run_id AND state = 'done' AND token = l.token AND item_no" \
	"  BETWEEN l.slice_no::bigint * r.batch_size + 1 AND (l.slice_no + 1)::bigint * r.batch_size)" \
	" s ON true" \
	" LEFT JOIN LATERAL (SELECT count(*) AS n FROM job_idem.item WHERE l.outcome = 'open'" \
	"  AND run_id = r.run_id AND state = 'done' AND token = l.token AND item_no = ANY (l.picks))" \
	" p ON true" \
	" LEFT JOIN LATERAL (SELECT count(*) AS n, count(retry_at) AS r FROM job_idem.failure" \
	"  WHERE l.outcome = 'open' AND token = l.token AND kind <> 'lost') f ON true" \
	" WHERE t.run_id = $1 GROUP BY t.run_id"
JOB_IDEM_STATEMENT(count_all, COUNT_ALL, 1, INT8OID);

typedef struct Tally
{
	int64 run_id;
	int32 folded;
	int32 behind[MAX_BEHIND];
	int n_behind;
	int64 n_done; /* what this fold adds */
	int64 n_failed;
	int64 n_lost;
	int64 n_retried;
	bool moved;
} Tally;

static bool
IsMovable(int64 run_id)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	return JobIdemRunLatest(&is_movable, &args, 1) == 1;
}

/* Lock first, then read: the snapshot that found the row may be older than the lock. */
static bool
LockAndRead(int64 run_id, Tally *tally)
{
	JobIdemArgs args = {.n = 0};
	bool is_null;
	Datum *behind;
	int i;

	JobIdemArg(&args, Int64GetDatum(run_id));
	if (JobIdemRunLatest(&lock_tally, &args, 1) == 0)
		return false;
	if (JobIdemRunLatest(&read_tally, &args, 1) == 0)
		return false;
	memset(tally, 0, sizeof(*tally));
	tally->run_id = run_id;
	tally->folded = JobIdemInt32(0, 1);
	deconstruct_array(DatumGetArrayTypeP(JobIdemColumn(0, 2, &is_null)), INT4OID,
					  sizeof(int32), true, TYPALIGN_INT, &behind, NULL, &tally->n_behind);
	for (i = 0; i < tally->n_behind; i++)
		tally->behind[i] = DatumGetInt32(behind[i]);
	return true;
}

/* Counts row `row` of a lease statement. */
static void
Count(Tally *tally, uint64 row)
{
	tally->n_done += JobIdemInt32(row, 3);
	tally->n_failed += JobIdemInt32(row, 4);
	tally->n_lost += JobIdemInt32(row, 5);
	tally->n_retried += JobIdemInt32(row, 6);
	tally->moved = true;
}

/* Notes a slice that is open or has no lease; false if there is no room. */
static bool
Note(Tally *tally, int32 slice_no)
{
	if (tally->n_behind == MAX_BEHIND)
		return false;
	tally->behind[tally->n_behind++] = slice_no;
	tally->folded = slice_no;
	tally->moved = true;
	return true;
}

/* Notes the slices without a lease before slice_no. */
static bool
NoteGap(Tally *tally, int32 slice_no)
{
	while (tally->folded + 1 < slice_no)
		if (!Note(tally, tally->folded + 1))
			return false;
	return true;
}

static void
FoldForward(Tally *tally)
{
	JobIdemArgs args = {.n = 0};
	MemoryContext turn = AllocSetContextCreate(CurrentMemoryContext, "job_idem fold",
											   ALLOCSET_SMALL_SIZES);
	uint64 n;
	uint64 i;

	JobIdemArg(&args, Int64GetDatum(tally->run_id));
	JobIdemArg(&args, Int32GetDatum(tally->folded));
	n = JobIdemRunLatest(&next_leases, &args, FOLD_STEP);
	for (i = 0; i < n; i++)
	{
		int32 slice_no = JobIdemInt32(i, 1);
		const char *outcome = JobIdemText(i, 2, turn);

		CHECK_FOR_INTERRUPTS();
		if (!NoteGap(tally, slice_no))
			break;
		if (strcmp(outcome, "open") != 0)
		{
			Count(tally, i);
			tally->folded = slice_no;
		}
		else if (!Note(tally, slice_no))
			break;
		MemoryContextReset(turn);
	}
	MemoryContextDelete(turn);
}

static Datum
BehindArray(const Tally *tally)
{
	Datum values[MAX_BEHIND];
	int i;

	for (i = 0; i < tally->n_behind; i++)
		values[i] = Int32GetDatum(tally->behind[i]);
	return PointerGetDatum(construct_array(values, tally->n_behind, INT4OID, sizeof(int32), true,
										   TYPALIGN_INT));
}

static void
Forget(Tally *tally, int32 slice_no)
{
	int i;

	for (i = 0; i < tally->n_behind; i++)
		if (tally->behind[i] == slice_no)
		{
			tally->behind[i] = tally->behind[--tally->n_behind];
			return;
		}
}

static void
FoldBehind(Tally *tally)
{
	JobIdemArgs args = {.n = 0};
	uint64 n;
	uint64 i;

	if (tally->n_behind == 0)
		return;
	JobIdemArg(&args, Int64GetDatum(tally->run_id));
	JobIdemArg(&args, BehindArray(tally));
	n = JobIdemRunLatest(&behind_leases, &args, 0);
	for (i = 0; i < n; i++)
	{
		Count(tally, i);
		Forget(tally, JobIdemInt32(i, 1));
	}
}

static void
FoldPicks(Tally *tally)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(tally->run_id));
	(void) JobIdemRunLatest(&count_picks, &args, 1);
	if (JobIdemInt64(0, 1) == 0)
		return;
	tally->n_done += JobIdemInt64(0, 2);
	tally->n_failed += JobIdemInt64(0, 3);
	tally->n_lost += JobIdemInt64(0, 4);
	tally->n_retried += JobIdemInt64(0, 5);
	tally->moved = true;
}

/* Moves the tally of a run a step, if there is anything to move and nobody else is at it. */
void
JobIdemTallyFold(int64 run_id)
{
	Tally tally;
	JobIdemArgs args = {.n = 0};

	if (!IsMovable(run_id) || !LockAndRead(run_id, &tally))
		return;
	FoldBehind(&tally);
	FoldForward(&tally);
	FoldPicks(&tally);
	if (!tally.moved)
		return;
	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, Int32GetDatum(tally.folded));
	JobIdemArg(&args, BehindArray(&tally));
	JobIdemArg(&args, Int64GetDatum(tally.n_done));
	JobIdemArg(&args, Int64GetDatum(tally.n_failed));
	JobIdemArg(&args, Int64GetDatum(tally.n_lost));
	JobIdemArg(&args, Int64GetDatum(tally.n_retried));
	(void) JobIdemRunLatest(&write_tally, &args, 0);
}

/* What a run has done and failed up to now. */
void
JobIdemTallyCount(int64 run_id, JobIdemCounts *counts)
{
	JobIdemArgs args = {.n = 0};

	memset(counts, 0, sizeof(*counts));
	JobIdemArg(&args, Int64GetDatum(run_id));
	if (JobIdemRunLatest(&count_all, &args, 1) == 0)
		return;
	counts->n_done = JobIdemInt64(0, 1);
	counts->n_failed = JobIdemInt64(0, 2);
	counts->n_retried = JobIdemInt64(0, 3);
}
