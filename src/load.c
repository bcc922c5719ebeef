/*
 * load.c - puts items into a run and seals it.
 *
 * Under the run lock (shared) and the run's row lock, in this order, so that loaders take turns, a
 * seal waits for them, and no finish believes a late item away. Items are numbered onward from
 * n_items without holes: disk order is claim order. A chunk is inserted as it is, ON CONFLICT DO
 * NOTHING; only when that leaves something out are the known and repeated keys sorted out first.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "compat.h"
#include "event.h"
#include "job_idem.h"
#include "load.h"
#include "lock_tag.h"
#include "spi.h"

#define CHUNK 10000

#define SOURCE "unnest($2, $3) WITH ORDINALITY AS u (item_key, payload, n)"
JOB_IDEM_STATEMENT(insert_items,
				   "INSERT INTO job_idem.item (run_id, item_no, item_key, payload)"
				   " SELECT $1, $4 + n, item_key, payload FROM " SOURCE
				   " ON CONFLICT (run_id, item_key) DO NOTHING",
				   4, INT8OID, TEXTARRAYOID, JSONBARRAYOID, INT8OID);
JOB_IDEM_STATEMENT(remove_items,
				   "DELETE FROM job_idem.item WHERE run_id = $1 AND item_no > $2 AND item_no <= $3",
				   3, INT8OID, INT8OID, INT8OID);
JOB_IDEM_STATEMENT(insert_new_items,
				   "INSERT INTO job_idem.item (run_id, item_no, item_key, payload)"
				   " SELECT $1, $4 + row_number() OVER (ORDER BY n), item_key, payload FROM ("
				   "  SELECT DISTINCT ON (u.item_key) u.item_key, u.payload, u.n FROM " SOURCE
				   "  WHERE NOT EXISTS (SELECT FROM job_idem.item i WHERE i.run_id = $1 AND"
				   " i.item_key = u.item_key)"
				   "  ORDER BY u.item_key, u.n) AS fresh",
				   4, INT8OID, TEXTARRAYOID, JSONBARRAYOID, INT8OID);
JOB_IDEM_STATEMENT(insert_late_items,
				   "INSERT INTO job_idem.item (run_id, item_no, item_key, payload, state, due_at)"
				   " SELECT $1, - nextval('job_idem.late_item_seq'), item_key, payload,"
				   " 'waiting', $4 FROM " SOURCE
				   " ON CONFLICT (run_id, item_key) DO NOTHING",
				   4, INT8OID, TEXTARRAYOID, JSONBARRAYOID, TIMESTAMPTZOID);
/* by lookups that the planner cannot turn into anything else, whatever it believes of the table */
JOB_IDEM_STATEMENT(find_mismatch,
				   "SELECT u.item_key FROM " SOURCE " CROSS JOIN LATERAL (SELECT i.payload"
				   "  FROM job_idem.item i WHERE i.run_id = $1 AND i.item_key = u.item_key"
				   "  OFFSET 0) i"
				   " WHERE i.payload IS DISTINCT FROM u.payload ORDER BY u.n LIMIT 1",
				   3, INT8OID, TEXTARRAYOID, JSONBARRAYOID);
JOB_IDEM_STATEMENT(count_items,
				   "UPDATE job_idem.run SET n_items = n_items + $2, n_late = n_late + $3 WHERE"
				   " run_id = $1",
				   3, INT8OID, INT8OID, INT8OID);
JOB_IDEM_STATEMENT(seal,
				   "UPDATE job_idem.run SET sealed_at = $2, state = 'running', batch_size = $3,"
				   " n_slices = $4, version = $5 WHERE run_id = $1",
				   5, INT8OID, TIMESTAMPTZOID, INT4OID, INT4OID, INT4OID);

/* Locks the run and decides how its items are to be numbered; JI004 if it takes no more. */
void
JobIdemLoadBegin(JobIdemLoad *load, const JobIdemJob *job, int64 run_id)
{
	TimestampTz closes;

	memset(load, 0, sizeof(*load));
	load->keyed = job->keyed;
	JobIdemLock(LOCK_RUN, JobIdemFold(run_id), 0, false);
	JobIdemGetRun(run_id, RUN_FOR_UPDATE, &load->run);
	if (load->run.state == RUN_LOADING)
		return;
	if (load->run.state != RUN_RUNNING)
		JobIdemRunNotOpen(&load->run, "It takes no more items; a lawful redo has a run key of"
									  " its own.");
	if (load->keyed && load->run.sealed)
		JobIdemRunNotOpen(&load->run, "A sealed run of a keyed job takes no new keys.");
	closes = JobIdemPlus((TimestampTz) load->run.business_date * USECS_PER_DAY, &job->close_after);
	if (JobIdemNow() > closes)
		JobIdemRunNotOpen(&load->run, "It is past the job's close_after; use a run of its own"
									  " for what came too late.");
	JobIdemRequireReadCommitted();
	load->late = true;
}

static void
CheckRow(const bool *key_nulls, const Datum *keys, const bool *payload_nulls,
		 const Datum *payloads, int i,
		 int64 row)
{
	char *name = psprintf("item_key of row " INT64_FORMAT, row);

	if (key_nulls[i])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s is null", name),
				 errhint("A key names one unit of work; filter such rows out or name them.")));
	JobIdemCheckKey(VARDATA_ANY(DatumGetPointer(keys[i])),
					VARSIZE_ANY_EXHDR(DatumGetPointer(keys[i])), name);
	if (payloads != NULL && !payload_nulls[i])
		JobIdemCheckPayload(payloads[i], psprintf("payload of row " INT64_FORMAT, row));
	pfree(name);
}

static Datum
PayloadArray(Datum *payloads, const bool *nulls, int n)
{
	int dims[1] = {n};
	int lower[1] = {1};

	if (payloads == NULL)
		return PointerGetDatum(construct_empty_array(JSONBOID));
	return PointerGetDatum(construct_md_array(payloads, (bool *) nulls, 1, dims, lower,
											  JSONBOID, -1, false,
											  TYPALIGN_INT));
}

static void
SourceArgs(JobIdemArgs *args, const JobIdemLoad *load, Datum keys, Datum payloads)
{
	args->n = 0;
	JobIdemArg(args, Int64GetDatum(load->run.run_id));
	JobIdemArg(args, keys);
	JobIdemArg(args, payloads);
}

static int64
InsertNumbered(JobIdemLoad *load, Datum keys, Datum payloads, int n)
{
	int64 base = load->run.n_items + load->n_new;
	JobIdemArgs args;
	JobIdemArgs numbers = {.n = 0};

	SourceArgs(&args, load, keys, payloads);
	JobIdemArg(&args, Int64GetDatum(base));
	if (JobIdemRun(&insert_items, &args, 0) == (uint64) n)
		return n;
	/* some were known: their numbers would be holes */
	JobIdemArg(&numbers, Int64GetDatum(load->run.run_id));
	JobIdemArg(&numbers, Int64GetDatum(base));
	JobIdemArg(&numbers, Int64GetDatum(base + n));
	(void) JobIdemRun(&remove_items, &numbers, 0);
	return (int64) JobIdemRun(&insert_new_items, &args, 0);
}

static int64
InsertLate(JobIdemLoad *load, Datum keys, Datum payloads)
{
	JobIdemArgs args;

	SourceArgs(&args, load, keys, payloads);
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	return (int64) JobIdemRun(&insert_late_items, &args, 0);
}

/* A key that is there already must have the payload given, if any is given. */
static void
RefuseMismatch(const JobIdemLoad *load, Datum keys, Datum payloads)
{
	char *key;
	JobIdemArgs args;

	SourceArgs(&args, load, keys, payloads);
	if (JobIdemRun(&find_mismatch, &args, 1) == 0)
		return;
	key = JobIdemText(0, 1, CurrentMemoryContext);
	ereport(ERROR,
			(errcode(ERRCODE_JI_KEY_CONFLICT),
			 errmsg("item \"%s\" is known with another payload", JobIdemShown(key)),
			 errdetail("Run " INT64_FORMAT ", run key \"%s\".", load->run.run_id,
					   load->run.run_key),
			 errhint("One key names one unit of work: use another key, or the payload that is"
					 " stored.")));
}

/*
 * A keyed run's keys are locked before the first is inserted, in one order, so that a claim_item of
 * one of them answers busy in place of waiting for us while we wait for another that it has.
 * With no keys given: all there can be, since the next chunks are not known yet.
 */
static void
LockKeys(JobIdemLoad *load, const Datum *keys, int n)
{
	bool wanted[JOB_IDEM_KEY_TAGS];
	int i;

	if (!load->keyed || load->all_keys_locked)
		return;
	memset(wanted, keys == NULL, sizeof(wanted));
	for (i = 0; i < n; i++)
		wanted[JobIdemHashKey(TextDatumGetCString(keys[i]))] = true;
	for (i = 0; i < JOB_IDEM_KEY_TAGS; i++)
		if (wanted[i])
			JobIdemLock(LOCK_KEY, JobIdemFold(load->run.run_id), i, true);
	load->all_keys_locked = keys == NULL;
}

/* Adds n rows; payloads may be NULL. */
void
JobIdemLoadChunk(JobIdemLoad *load, Datum *keys, const bool *key_nulls, Datum *payloads,
				 const bool *payload_nulls, int n)
{
	Datum key_array;
	Datum payload_array;
	int64 inserted;
	int i;

	for (i = 0; i < n; i++)
		CheckRow(key_nulls, keys, payload_nulls, payloads, i, load->n_new + load->n_known + i + 1);
	LockKeys(load, keys, n);
	key_array = PointerGetDatum(construct_array(keys, n, TEXTOID, -1, false, TYPALIGN_INT));
	payload_array = PayloadArray(payloads, payload_nulls, n);
	if (load->late)
		inserted = InsertLate(load, key_array, payload_array);
	else
		inserted = InsertNumbered(load, key_array, payload_array, n);
	if (inserted < n && payloads != NULL)
		RefuseMismatch(load, key_array, payload_array);
	load->n_new += inserted;
	load->n_known += n - inserted;
}

/* Keyed runs count nothing: their items come one by one, and the run row is not to be a hot one. */
void
JobIdemLoadEnd(JobIdemLoad *load)
{
	JobIdemArgs args = {.n = 0};

	if (load->n_new == 0 || load->keyed)
		return;
	JobIdemArg(&args, Int64GetDatum(load->run.run_id));
	JobIdemArg(&args, Int64GetDatum(load->late ? 0 : load->n_new));
	JobIdemArg(&args, Int64GetDatum(load->late ? load->n_new : 0));
	(void) JobIdemRun(&count_items, &args, 0);
	load->run.n_items += load->late ? 0 : load->n_new;
}

static Portal
OpenSource(const JobIdemSource *source)
{
	SPIPlanPtr plan = SPI_prepare(source->query, source->n_args, (Oid *) source->types);
	Portal portal;
	TupleDesc columns;

	if (plan == NULL)
		elog(ERROR, "could not prepare the source of items: %s",
			 SPI_result_code_string(SPI_result));
	portal = SPI_cursor_open(NULL, plan, (Datum *) source->values, source->nulls, false);
	columns = portal->tupDesc;
	if (columns == NULL || columns->natts < 1 || columns->natts > 2 ||
		(TupleDescAttr(columns, 0)->atttypid != TEXTOID &&
		 TupleDescAttr(columns, 0)->atttypid != VARCHAROID) ||
		(columns->natts == 2 && TupleDescAttr(columns, 1)->atttypid != JSONBOID))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the query must return item_key text and, if it likes, payload jsonb"),
				 errhint("Cast the columns: SELECT key::text, payload::jsonb ...")));
	return portal;
}

/*
 * One fetch in the source's own environment, so that settings and rights of ours do not reach it.
 */
static uint64
FetchSource(const JobIdemSource *source, Portal *portal)
{
	JobIdemDisguise before;

	if (OidIsValid(source->owner))
		JobIdemBecome(source->owner, &before);
	if (*portal == NULL)
		*portal = OpenSource(source);
	SPI_cursor_fetch(*portal, true, CHUNK);
	if (OidIsValid(source->owner))
		JobIdemUnbecome(&before);
	return SPI_processed;
}

/*
 * The query is the caller's code and runs under our own locks: it may have called our verbs on this
 * very run. What we read of the run before would then be wrong.
 */
static void
RefuseChangedRun(const JobIdemLoad *load)
{
	JobIdemRunRow now;

	JobIdemGetRun(load->run.run_id, RUN_READ, &now);
	if (now.state != load->run.state || now.sealed != load->run.sealed ||
		now.n_items != load->run.n_items)
		ereport(ERROR,
				(errcode(ERRCODE_JI_RUN_NOT_OPEN),
				 errmsg("the query changed run " INT64_FORMAT " while loading it",
						load->run.run_id),
				 errhint("A query that lists a run's items must not call job_idem on that run.")));
}

static void
LoadFetched(JobIdemLoad *load, const SPITupleTable *fetched, uint64 n)
{
	bool with_payload = fetched->tupdesc->natts == 2;
	Datum *keys = palloc(n * sizeof(Datum));
	Datum *payloads = with_payload ? palloc(n * sizeof(Datum)) : NULL;
	bool *key_nulls = palloc(n * sizeof(bool));
	bool *payload_nulls = palloc(n * sizeof(bool));
	uint64 i;

	for (i = 0; i < n; i++)
	{
		HeapTuple row = fetched->vals[i];

		keys[i] = SPI_getbinval(row, fetched->tupdesc, 1, &key_nulls[i]);
		if (!key_nulls[i])
			keys[i] = PointerGetDatum(PG_DETOAST_DATUM_PACKED(keys[i]));
		if (with_payload)
			payloads[i] = SPI_getbinval(row, fetched->tupdesc, 2, &payload_nulls[i]);
	}
	JobIdemLoadChunk(load, keys, key_nulls, payloads, payload_nulls, (int) n);
}

/* Loads what a query returns, chunk by chunk. To be called connected, but outside a scope. */
void
JobIdemLoadSource(JobIdemLoad *load, const JobIdemSource *source)
{
	MemoryContext turn = AllocSetContextCreate(CurrentMemoryContext, "job_idem load",
											   ALLOCSET_DEFAULT_SIZES);
	Portal portal = NULL;
	uint64 n;

	do
	{
		SPITupleTable *fetched;
		MemoryContext old;
		JobIdemScope scope;

		CHECK_FOR_INTERRUPTS();
		n = FetchSource(source, &portal);
		fetched = SPI_tuptable;
		old = MemoryContextSwitchTo(turn);
		JobIdemEnterConnected(&scope);
		RefuseChangedRun(load);
		LockKeys(load, NULL, 0);
		if (n > 0)
			LoadFetched(load, fetched, n);
		JobIdemLeaveConnected(&scope);
		MemoryContextSwitchTo(old);
		MemoryContextReset(turn);
		SPI_freetuptable(fetched);
	} while (n > 0);
	SPI_cursor_close(portal);
	MemoryContextDelete(turn);
}

/* Freezes a run that the caller has locked, by the definition in force now. */
void
JobIdemSeal(const JobIdemJob *job, JobIdemRunRow *run)
{
	JobIdemArgs args = {.n = 0};
	int64 n_slices = (run->n_items + job->batch_size - 1) / job->batch_size;

	if (n_slices > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("run " INT64_FORMAT " has too many slices", run->run_id),
				 errdetail(INT64_FORMAT " items in batches of %d.", run->n_items, job->batch_size),
				 errhint("Raise the job's batch_size and seal again.")));
	run->n_slices = (int32) n_slices;
	run->batch_size = job->batch_size;
	run->sealed = true;
	run->state = RUN_RUNNING;
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&args, Int32GetDatum(run->batch_size));
	JobIdemArg(&args, Int32GetDatum(run->n_slices));
	JobIdemArg(&args, Int32GetDatum(job->version));
	(void) JobIdemRun(&seal, &args, 0);
	JobIdemEvent("seal_run", run->job_id, run->run_id, NULL,
				 psprintf("{\"n_items\": " INT64_FORMAT "}", run->n_items), NULL);
}
