/*
 * complete.c - mark_done, mark_done_many and mark_all_done: the effect and its completion in one
 * transaction, once.
 *
 * Completion is a compare-and-swap on the item's row, or, for a whole slice, on the lease's. It
 * succeeds once: a repeated transaction (lost answer to COMMIT) raises JI010, a stale one JI001,
 * so that their business writes roll back.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "current.h"
#include "fault.h"
#include "job_idem.h"
#include "lease.h"
#include "spi.h"

/* Item i is lease $2's to finish; $4 to $5 is the slice's range, empty for picks. */
#define STILL_OURS \
	"((i.state = 'pending' AND i.item_no BETWEEN $4 AND $5)" \
	" OR (i.state = 'claimed' AND i.token = $2))"

/*
 * Marks one item under a lease that is locked and open. A forced cancel of the run voids the claim
 * at any time.
 */
JOB_IDEM_STATEMENT(mark_one,
				   "UPDATE job_idem.item i SET state = 'done', token = $2, done_at = $6,"
				   " result = $7 FROM job_idem.run r WHERE r.run_id = $1 AND NOT r.cancel_forced"
				   " AND i.run_id = $1 AND i.item_key = $3"
				   " AND " CAS(STILL_OURS) " RETURNING i.item_no",
				   7, INT8OID, INT8OID, TEXTOID, INT8OID, INT8OID, TIMESTAMPTZOID, JSONBOID);

/*
 * The items of some keys, by lookups that the planner cannot turn into anything else, whatever it
 * believes of the table; in order of item_no, in which they are then locked, so that two calls with
 * the same keys cannot deadlock.
 */
JOB_IDEM_STATEMENT(find_many,
				   "SELECT k.item_key, k.result"
				   " FROM (SELECT DISTINCT ON (item_key) item_key, result"
				   "  FROM unnest($2, $3) AS u (item_key, result)) k"
				   " CROSS JOIN LATERAL (SELECT i.item_no FROM job_idem.item i"
				   "  WHERE i.run_id = $1 AND i.item_key = k.item_key OFFSET 0) x"
				   " ORDER BY x.item_no",
				   3, INT8OID, TEXTARRAYOID, JSONBARRAYOID);
/*
 * Of the keys left out of a whole completion: how many belong to the lease, and how many of those
 * are unfinished.
 */
JOB_IDEM_STATEMENT(excepted,
				   "SELECT count(*), count(*) FILTER (WHERE (i.state = 'pending' AND l.slice_no"
				   " IS NOT NULL)  OR (i.state = 'claimed' AND i.token = $1))"
				   " FROM job_idem.lease l JOIN job_idem.item i ON i.run_id = l.run_id AND"
				   " i.item_key = ANY ($2) WHERE l.token = $1 AND (i.item_no = ANY (l.picks)"
				   "  OR (l.picks IS NULL AND i.item_no BETWEEN $3 AND $4))",
				   4, INT8OID, TEXTARRAYOID, INT8OID, INT8OID);

JOB_IDEM_STATEMENT(finish_picks,
				   "UPDATE job_idem.item i SET state = 'done', done_at = $2 FROM job_idem.lease l"
				   " WHERE l.token = $1 AND i.run_id = l.run_id AND i.item_no = ANY (l.picks)"
				   " AND " CAS("i.state = 'claimed' AND i.token = $1"),
				   2, INT8OID, TIMESTAMPTZOID);

static void
ItemArgs(JobIdemArgs *args, const JobIdemFenced *fenced, Datum keys)
{
	args->n = 0;
	JobIdemArg(args, Int64GetDatum(fenced->run_id));
	JobIdemArg(args, Int64GetDatum(fenced->token));
	JobIdemArg(args, keys);
	JobIdemArg(args, Int64GetDatum(fenced->first));
	JobIdemArg(args, Int64GetDatum(fenced->last));
	JobIdemArg(args, TimestampTzGetDatum(JobIdemNow()));
}

/* The number of the item, if it was this lease's to finish; 0 if not. */
static int64
MarkOne(const JobIdemFenced *fenced, Datum key, NullableDatum result)
{
	JobIdemArgs args;

	ItemArgs(&args, fenced, key);
	JobIdemArgNullable(&args, result.value, result.isnull);
	return JobIdemRunLatest(&mark_one, &args, 0) == 1 ? JobIdemInt64(0, 1) : 0;
}

PG_FUNCTION_INFO_V1(job_idem_mark_done);
Datum
job_idem_mark_done(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	const char *key = JobIdemTextArgument(fcinfo, 1, "item_key");
	NullableDatum result = {.value = PG_GETARG_DATUM(2), .isnull = PG_ARGISNULL(2)};
	JobIdemScope scope;
	JobIdemLease lease;
	JobIdemFenced *fenced;
	int64 marked = 0;

	if (!result.isnull)
		JobIdemCheckPayload(result.value, "result");
	JobIdemEnter(&scope);
	fenced = JobIdemCurrentFenced(token, JobIdemCaller());
	if (fenced != NULL)
		marked = MarkOne(fenced, PG_GETARG_DATUM(1), result);
	if (marked == 0)
	{
		fenced = JobIdemLeaseFenceItem(token, &lease);
		marked = lease.outcome == OUTCOME_OPEN ? MarkOne(fenced, PG_GETARG_DATUM(1), result) : 0;
	}
	if (marked == 0)
		JobIdemLeaseRefuse(token, &key, 1);
	JobIdemFaultPoint("mark_done");
	JobIdemLeaseLazyClose(fenced, marked);
	JobIdemLeave(&scope);
	PG_RETURN_INT64(1);
}

/* The distinct keys of a text array, as C strings. */
static const char **
DistinctKeys(ArrayType *array, int *n_distinct)
{
	Datum *values;
	bool *nulls;
	int n;
	int i;
	const char **keys;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &n);
	keys = palloc(Max(n, 1) * sizeof(char *));
	for (i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("item keys must not be null"),
					 errdetail("Key number %d is null.", i + 1),
					 errhint("Pass the keys that the claim returned.")));
		keys[i] = TextDatumGetCString(values[i]);
	}
	qsort(keys, n, sizeof(char *), pg_qsort_strcmp);
	*n_distinct = n == 0 ? 0 : qunique(keys, n, sizeof(char *), pg_qsort_strcmp);
	return keys;
}

/*
 * The results argument: one for each key, or an empty array, whose elements unnest() reads as
 * NULL.
 */
static Datum
Results(FunctionCallInfo fcinfo, int i, int n_keys)
{
	ArrayType *results;
	Datum *values;
	bool *nulls;
	int n;

	if (PG_ARGISNULL(i))
		return PointerGetDatum(construct_empty_array(JSONBOID));
	results = PG_GETARG_ARRAYTYPE_P(i);
	deconstruct_array(results, JSONBOID, -1, false, TYPALIGN_INT, &values, &nulls, &n);
	if (n != n_keys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("results must be as many as item_keys"),
				 errdetail("There are %d keys and %d results.", n_keys, n),
				 errhint("Pass one result for each key, or none at all.")));
	while (n-- > 0)
		if (!nulls[n])
			JobIdemCheckPayload(values[n], "result");
	return PointerGetDatum(results);
}

/*
 * One statement an item: the cheapest that no statistics can turn into a scan of the whole run.
 * Returns how many were marked.
 */
static int
MarkMany(const JobIdemFenced *fenced, Datum keys, Datum results)
{
	JobIdemArgs args = {.n = 0};
	SPITupleTable *found;
	uint64 n;
	uint64 i;
	int marked = 0;

	JobIdemArg(&args, Int64GetDatum(fenced->run_id));
	JobIdemArg(&args, keys);
	JobIdemArg(&args, results);
	n = JobIdemRunLatest(&find_many, &args, 0);
	found = SPI_tuptable;
	for (i = 0; i < n; i++)
	{
		NullableDatum result;
		bool is_null;
		Datum key = SPI_getbinval(found->vals[i], found->tupdesc, 1, &is_null);

		CHECK_FOR_INTERRUPTS();
		result.value = SPI_getbinval(found->vals[i], found->tupdesc, 2, &result.isnull);
		marked += MarkOne(fenced, key, result) != 0 ? 1 : 0;
		JobIdemFreeRows();
	}
	return marked;
}

PG_FUNCTION_INFO_V1(job_idem_mark_done_many);
Datum
job_idem_mark_done_many(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	ArrayType *keys;
	const char **distinct;
	int n_distinct;
	Datum results;
	JobIdemScope scope;
	JobIdemLease lease;
	const JobIdemFenced *fenced;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("item_keys must not be null"),
				 errhint("Pass the keys that are done, or use job_idem.mark_all_done.")));
	keys = PG_GETARG_ARRAYTYPE_P(1);
	distinct = DistinctKeys(keys, &n_distinct);
	results = Results(fcinfo, 2, ArrayGetNItems(ARR_NDIM(keys), ARR_DIMS(keys)));
	JobIdemEnter(&scope);
	fenced = JobIdemLeaseFenceItem(token, &lease);
	if (n_distinct > 0)
	{
		if (lease.outcome != OUTCOME_OPEN ||
			MarkMany(fenced, PointerGetDatum(keys), results) != n_distinct)
			JobIdemLeaseRefuse(token, distinct, n_distinct);
		JobIdemFaultPoint("mark_done");
		(void) JobIdemLeaseCloseIfFinished(&lease);
	}
	JobIdemLeave(&scope);
	PG_RETURN_INT64(n_distinct);
}

/*
 * The numbers must be those of the claim: items + excepted is what it returned, none of the
 * excepted is unfinished, and exactly `items` are. They catch the caller who read only part of the
 * claim, and threads that each think that the whole is theirs.
 */
static void
CheckNumbers(const JobIdemLease *lease, int64 items, Datum except_keys, int n_excepted,
			 int64 n_left,
			 int64 n_done)
{
	JobIdemArgs args = {.n = 0};
	bool right = items == n_left && items + n_excepted == lease->n_items;
	const char *detail;

	if (right && n_excepted > 0)
	{
		JobIdemArg(&args, Int64GetDatum(lease->token));
		JobIdemArg(&args, except_keys);
		JobIdemArg(&args, Int64GetDatum(lease->first));
		JobIdemArg(&args, Int64GetDatum(lease->last));
		(void) JobIdemRunLatest(&excepted, &args, 1);
		right = JobIdemInt64(0, 1) == n_excepted && JobIdemInt64(0, 2) == 0;
	}
	if (right)
		return;
	detail = psprintf("The claim has %d items: " INT64_FORMAT " are done under it, " INT64_FORMAT
					  " are left; the call says " INT64_FORMAT " and excepts %d.",
					  lease->n_items, n_done, n_left, items, n_excepted);
	if (n_done > 0)
		JobIdemAlreadyDone(lease->token, detail);
	JobIdemNotHeld(lease->token, detail);
}

/* Items of a slice keep their pending rows: the completed lease says that they are done. */
static void
CompleteWhole(const JobIdemLease *lease, int64 items, int64 n_done)
{
	JobIdemArgs args = {.n = 0};

	if (!lease->is_slice)
	{
		JobIdemArg(&args, Int64GetDatum(lease->token));
		JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
		if (JobIdemRunLatest(&finish_picks, &args, 0) != (uint64) items)
			JobIdemStaleToken(lease->token, "An item was taken from the claim.");
	}
	if (!JobIdemLeaseClose(lease, OUTCOME_COMPLETED, n_done + items, 0))
		JobIdemStaleToken(lease->token, "The lease was closed meanwhile.");
}

PG_FUNCTION_INFO_V1(job_idem_mark_all_done);
Datum
job_idem_mark_all_done(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	int64 items = JobIdemInt64Argument(fcinfo, 1, "items");
	ArrayType *except_keys = PG_ARGISNULL(2) ? construct_empty_array(
												   TEXTOID)
											 : PG_GETARG_ARRAYTYPE_P(2);
	int n_excepted;
	int64 n_left;
	int64 n_done;
	JobIdemScope scope;
	JobIdemLease lease;

	(void) DistinctKeys(except_keys, &n_excepted);
	JobIdemEnter(&scope);
	JobIdemLeaseFence(token, LEASE_UPDATE, &lease);
	JobIdemLeaseRequireOpen(&lease);
	JobIdemLeaseCensus(&lease, &n_left, &n_done);
	CheckNumbers(&lease, items, PointerGetDatum(except_keys), n_excepted, n_left, n_done);
	CompleteWhole(&lease, items, n_done);
	JobIdemCurrentAdd(token, CURRENT_MARK);
	JobIdemFaultPoint("mark_all_done");
	JobIdemLeave(&scope);
	PG_RETURN_INT64(items);
}
