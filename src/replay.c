/*
 * replay.c - replay, replay_run and discard: what an operator does with dead letters.
 *
 * Lock order: run, items (by item_no), dead letters. All three update the run row first, so that
 * they take turns, and they and a finish of the same run can never both believe the other away.
 * What they do next is decided by rows read after that.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "access.h"
#include "classify.h"
#include "clock.h"
#include "event.h"
#include "fault.h"
#include "job_idem.h"
#include "lookup.h"
#include "release.h"
#include "spi.h"
#include "watch.h"

/* letters that one statement moves */
#define CHUNK 1000

JOB_IDEM_STATEMENT(find_dead_letter,
				   "SELECT d.run_id, d.item_key, r.job_id FROM job_idem.dead_letter d JOIN"
				   " job_idem.run r USING (run_id)"
				   " WHERE dead_letter_id = $1",
				   1, INT8OID);
/* writes the row, so that a finish that began before meets a change */
JOB_IDEM_STATEMENT(touch_run, "UPDATE job_idem.run SET state = state WHERE run_id = $1", 1,
				   INT8OID);
JOB_IDEM_STATEMENT(lock_dead_letter,
				   "SELECT status FROM job_idem.dead_letter WHERE dead_letter_id = $1 FOR UPDATE",
				   1, INT8OID);
JOB_IDEM_STATEMENT(lock_dead_item,
				   "SELECT item_no FROM job_idem.item WHERE run_id = $1 AND item_key = $2 FOR"
				   " UPDATE",
				   2, INT8OID, TEXTOID);
JOB_IDEM_STATEMENT(revive_item,
				   "WITH resolved AS (UPDATE job_idem.dead_letter SET status = 'replayed',"
				   " resolved_at = $3,"
				   "  resolved_by = $4::name, note = $5 WHERE dead_letter_id = $1 AND status ="
				   " 'open' RETURNING item_key)"
				   " UPDATE job_idem.item i SET state = 'waiting', due_at = $3, attempts = 0,"
				   " lost = 0, token = NULL,  payload = coalesce($6, i.payload)"
				   " FROM resolved WHERE i.run_id = $2 AND i.item_key = resolved.item_key AND"
				   " i.state = 'dead'",
				   6, INT8OID, INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, JSONBOID);
JOB_IDEM_STATEMENT(run_again,
				   "UPDATE job_idem.run SET state = 'running', finished_at = NULL WHERE run_id ="
				   " $1 AND state = 'partial'",
				   1, INT8OID);
JOB_IDEM_STATEMENT(discard_letter,
				   "UPDATE job_idem.dead_letter SET status = 'discarded', resolved_at = $2,"
				   " resolved_by = $3::name,"
				   " note = $4 WHERE dead_letter_id = $1 AND status = 'open'",
				   4, INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID);
JOB_IDEM_STATEMENT(end_partial,
				   "UPDATE job_idem.run r SET n_dead = d.n, state = CASE WHEN d.n = 0 THEN"
				   " 'done' ELSE 'partial' END"
				   " FROM (SELECT count(*) AS n FROM job_idem.dead_letter WHERE run_id = $1 AND"
				   " status = 'open') d"
				   " WHERE r.run_id = $1 AND r.state = 'partial' RETURNING r.state",
				   1, INT8OID);

/* The open letters of a run; 0 stands for the number of an item that is not there. */
JOB_IDEM_STATEMENT(open_letters,
				   "SELECT d.dead_letter_id, coalesce(i.item_no, 0), d.error_class"
				   " FROM job_idem.dead_letter d LEFT JOIN LATERAL (SELECT i.item_no"
				   "  FROM job_idem.item i WHERE i.run_id = $1 AND i.item_key = d.item_key"
				   "  OFFSET 0) i ON true"
				   " WHERE d.run_id = $1 AND d.status = 'open'"
				   " AND ($2 IS NULL OR starts_with(d.sqlstate, $2)) ORDER BY i.item_no",
				   2, INT8OID, TEXTOID);
/*
 * Many rows are locked by lookups in the order of a list, which the planner cannot turn into
 * anything else, and are then moved by where they are, which nobody can change while they are
 * locked.
 */
JOB_IDEM_STATEMENT(lock_dead_items,
				   "SELECT coalesce(array_agg(x.place), '{}'), count(*)"
				   " FROM unnest($2) AS u (item_no)"
				   " CROSS JOIN LATERAL (SELECT i.ctid AS place FROM job_idem.item i"
				   "  WHERE i.run_id = $1 AND i.item_no = u.item_no AND i.state = 'dead'"
				   "  FOR UPDATE) x",
				   2, INT8OID, INT8ARRAYOID);
JOB_IDEM_STATEMENT(revive_items,
				   "UPDATE job_idem.item SET state = 'waiting', due_at = $2, attempts = 0,"
				   " lost = 0, token = NULL WHERE ctid = ANY ($1)",
				   2, TIDARRAYOID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(lock_letters,
				   "SELECT coalesce(array_agg(x.place), '{}'), count(*) FILTER (WHERE x.status ="
				   " 'open')"
				   " FROM unnest($1) AS u (id)"
				   " CROSS JOIN LATERAL (SELECT d.ctid AS place, d.status"
				   "  FROM job_idem.dead_letter d WHERE d.dead_letter_id = u.id FOR UPDATE) x",
				   1, INT8ARRAYOID);
JOB_IDEM_STATEMENT(resolve_letters,
				   "UPDATE job_idem.dead_letter SET status = 'replayed', resolved_at = $2,"
				   " resolved_by = $3::name, note = $4 WHERE ctid = ANY ($1)",
				   4, TIDARRAYOID, TIMESTAMPTZOID, TEXTOID, TEXTOID);
JOB_IDEM_STATEMENT(find_living,
				   "SELECT d.item_key, d.dead_letter_id FROM unnest($2) AS u (id)"
				   " CROSS JOIN LATERAL (SELECT d.* FROM job_idem.dead_letter d"
				   "  WHERE d.dead_letter_id = u.id OFFSET 0) d"
				   " LEFT JOIN LATERAL (SELECT i.state FROM job_idem.item i"
				   "  WHERE i.run_id = $1 AND i.item_key = d.item_key OFFSET 0) i ON true"
				   " WHERE i.state IS DISTINCT FROM 'dead' LIMIT 1",
				   2, INT8OID, INT8ARRAYOID);
JOB_IDEM_STATEMENT(replay_detail,
				   "SELECT jsonb_strip_nulls(jsonb_build_object('count', $1, 'error_class', $2,"
				   " 'sqlstate', $3))::text",
				   3, INT8OID, TEXTOID, TEXTOID);

/* 40001 above READ COMMITTED if the run has changed since the snapshot. */
static void
TouchRun(int64 run_id, JobIdemRunRow *run)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	(void) JobIdemRun(&touch_run, &args, 0);
	JobIdemGetRun(run_id, RUN_READ, run);
}

static void
RequireReplayable(const char *verb, const JobIdemRunRow *run)
{
	if (run->state != RUN_RUNNING && !JobIdemRunMay(verb, run->state, RUN_RUNNING))
		JobIdemRunNotOpen(run, "Only dead letters of a running or partial run are replayed.");
}

static void
RefuseLiving(const char *item_key, int64 dead_letter_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_JI_ILLEGAL_TRANSITION),
			 errmsg("item \"%s\" is not dead", item_key),
			 errdetail("Dead letter " INT64_FORMAT " is open all the same.", dead_letter_id),
			 errhint("Ask job_idem.audit(run_id) what else is wrong with the run.")));
}

/* Something of the run is to be done again: a partial run runs, and may spend retries again. */
static void
GoOn(const JobIdemRunRow *run)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run->run_id));
	if (JobIdemRunLatest(&run_again, &args, 0) == 1)
		JobIdemEvent("run_again", run->job_id, run->run_id, NULL, NULL, NULL);
	JobIdemReopenRetries(run);
}

typedef struct DeadLetter
{
	int64 id;
	int64 run_id;
	char *item_key;
	JobIdemJob *job;
	JobIdemRunRow run;
} DeadLetter;

static void
NoSuchLetter(int64 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("dead letter " INT64_FORMAT " does not exist", id),
			 errhint("job_idem.dead_letters lists those that exist.")));
}

static void
FindDeadLetter(int64 id, DeadLetter *letter)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(id));
	if (JobIdemRunLatest(&find_dead_letter, &args, 1) == 0)
		NoSuchLetter(id);
	letter->id = id;
	letter->run_id = JobIdemInt64(0, 1);
	letter->item_key = JobIdemText(0, 2, CurrentMemoryContext);
	letter->job = JobIdemJobById(JobIdemInt64(0, 3));
	JobIdemRequire(letter->job->job_id, letter->job->owner, letter->job->name, RIGHT_OPERATE);
}

/* Locks run, item and dead letter, in that order; false, saying so, if it is resolved already. */
static bool
LockDeadLetter(DeadLetter *letter)
{
	JobIdemArgs item = {.n = 0};
	JobIdemArgs id = {.n = 0};
	const char *status;

	TouchRun(letter->run_id, &letter->run);
	JobIdemArg(&item, Int64GetDatum(letter->run_id));
	JobIdemArg(&item, CStringGetTextDatum(letter->item_key));
	(void) JobIdemRunLatest(&lock_dead_item, &item, 0);
	JobIdemArg(&id, Int64GetDatum(letter->id));
	if (JobIdemRunLatest(&lock_dead_letter, &id, 0) == 0)
		NoSuchLetter(letter->id);
	status = JobIdemText(0, 1, CurrentMemoryContext);
	if (strcmp(status, "open") == 0)
		return true;
	ereport(NOTICE,
			(errmsg("dead letter " INT64_FORMAT " was %s already, nothing is changed",
					letter->id, status)));
	return false;
}

static void
Replay(const DeadLetter *letter, const char *note, NullableDatum payload)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(letter->id));
	JobIdemArg(&args, Int64GetDatum(letter->run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArgText(&args, JobIdemCallerName());
	JobIdemArgText(&args, note);
	JobIdemArgNullable(&args, payload.value, payload.isnull);
	if (JobIdemRunLatest(&revive_item, &args, 0) != 1)
		RefuseLiving(letter->item_key, letter->id);
	GoOn(&letter->run);
	JobIdemEvent("replay", letter->job->job_id, letter->run_id, letter->item_key,
				 psprintf("{\"dead_letter_id\": " INT64_FORMAT "}", letter->id), note);
}

PG_FUNCTION_INFO_V1(job_idem_replay);
Datum
job_idem_replay(PG_FUNCTION_ARGS)
{
	int64 id = JobIdemInt64Argument(fcinfo, 0, "dead_letter_id");
	char *note = JobIdemReasonArgument(fcinfo, 1, false);
	NullableDatum payload = {.value = PG_GETARG_DATUM(2), .isnull = PG_ARGISNULL(2)};
	JobIdemScope scope;
	DeadLetter letter;
	bool open;

	if (!payload.isnull)
		JobIdemCheckPayload(payload.value, "payload");
	JobIdemEnter(&scope);
	FindDeadLetter(id, &letter);
	open = LockDeadLetter(&letter);
	if (open)
	{
		RequireReplayable("replay", &letter.run);
		Replay(&letter, note, payload);
	}
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(open);
}

/* The letters to be replayed, by item_no; the receiver puts them there as they are read. */
typedef struct Letters
{
	DestReceiver receiver; /* first: it is what the executor sees */
	const char *error_class;
	int64 *ids;
	int64 *item_nos;
	uint64 n;
	uint64 room;
} Letters;

static void
Collect(Letters *letters, int64 id, int64 item_no)
{
	if (letters->n == letters->room)
	{
		Size size = 2 * letters->room * sizeof(int64);

		letters->ids = repalloc_huge(letters->ids, size);
		letters->item_nos = repalloc_huge(letters->item_nos, size);
		letters->room *= 2;
	}
	letters->ids[letters->n] = id;
	letters->item_nos[letters->n++] = item_no;
}

static bool
IsOfClass(const char *pattern, TupleTableSlot *slot, int column)
{
	bool is_null;
	Datum value = slot_getattr(slot, column, &is_null);
	char *error_class;
	bool matches;

	if (pattern == NULL)
		return true;
	if (is_null)
		return false;
	error_class = TextDatumGetCString(value);
	matches = JobIdemGlobMatch(pattern, error_class);
	pfree(error_class);
	return matches;
}

static bool
ReceiveLetter(TupleTableSlot *slot, DestReceiver *self)
{
	Letters *letters = (Letters *) self;
	bool is_null;

	if (IsOfClass(letters->error_class, slot, 3))
		Collect(letters, DatumGetInt64(slot_getattr(slot, 1, &is_null)),
				DatumGetInt64(slot_getattr(slot, 2, &is_null)));
	return true;
}

static void
StartLetters(DestReceiver *self, int operation, TupleDesc columns)
{
}

static void
EndLetters(DestReceiver *self)
{
}

/* All that are open and match, as of now; two numbers are kept of each. */
static void
ReadLetters(Letters *letters, int64 run_id, const char *error_class, const char *sqlstate)
{
	JobIdemArgs args = {.n = 0};

	memset(letters, 0, sizeof(*letters));
	letters->receiver.receiveSlot = ReceiveLetter;
	letters->receiver.rStartup = StartLetters;
	letters->receiver.rShutdown = EndLetters;
	letters->receiver.rDestroy = EndLetters;
	letters->receiver.mydest = DestNone;
	letters->error_class = error_class;
	letters->room = CHUNK;
	letters->ids = palloc(CHUNK * sizeof(int64));
	letters->item_nos = palloc(CHUNK * sizeof(int64));
	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArgText(&args, sqlstate);
	(void) JobIdemRunInto(&open_letters, &args, &letters->receiver);
}

/* A part of a list, as an array. */
static Datum
Part(const int64 *list, uint64 from, int n)
{
	Datum *values = palloc(n * sizeof(Datum));
	int i;

	for (i = 0; i < n; i++)
		values[i] = Int64GetDatum(list[from + i]);
	return PointerGetDatum(construct_array(values, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
										   TYPALIGN_DOUBLE));
}

/* Where the rows are that a lock statement has just locked. */
static Datum
LockedPlaces(void)
{
	bool is_null;
	Datum places = datumCopy(JobIdemColumn(0, 1, &is_null), false, -1);

	JobIdemFreeRows();
	return places;
}

static void
FindLiving(int64 run_id, Datum ids)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, ids);
	if (JobIdemRunLatest(&find_living, &args, 1) == 0)
		elog(ERROR, "an item of run " INT64_FORMAT " was not found", run_id);
	RefuseLiving(JobIdemText(0, 1, CurrentMemoryContext), JobIdemInt64(0, 2));
}

static void
ReviveItems(int64 run_id, const Letters *letters, uint64 from, int n, TimestampTz now)
{
	JobIdemArgs which = {.n = 0};
	JobIdemArgs where = {.n = 0};

	JobIdemArg(&which, Int64GetDatum(run_id));
	JobIdemArg(&which, Part(letters->item_nos, from, n));
	(void) JobIdemRunLatest(&lock_dead_items, &which, 1);
	if (JobIdemInt64(0, 2) != n)
		FindLiving(run_id, Part(letters->ids, from, n));
	JobIdemArg(&where, LockedPlaces());
	JobIdemArg(&where, TimestampTzGetDatum(now));
	(void) JobIdemRunLatest(&revive_items, &where, 0);
}

static void
ResolveLetters(const Letters *letters, uint64 from, int n, TimestampTz now, const char *note)
{
	JobIdemArgs which = {.n = 0};
	JobIdemArgs where = {.n = 0};

	JobIdemArg(&which, Part(letters->ids, from, n));
	(void) JobIdemRunLatest(&lock_letters, &which, 1);
	if (JobIdemInt64(0, 2) != n)
		elog(ERROR, "a dead letter was resolved while its run was locked");
	JobIdemArg(&where, LockedPlaces());
	JobIdemArg(&where, TimestampTzGetDatum(now));
	JobIdemArgText(&where, JobIdemCallerName());
	JobIdemArgText(&where, note);
	(void) JobIdemRunLatest(&resolve_letters, &where, 0);
}

/* Moves all items, and then all letters, a chunk at a time and in memory for one chunk. */
static void
MoveLetters(int64 run_id, const Letters *letters, const char *note)
{
	TimestampTz now = JobIdemNow();
	MemoryContext turn = AllocSetContextCreate(CurrentMemoryContext, "job_idem replay_run",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(turn);
	uint64 from;

	for (from = 0; from < letters->n; from += CHUNK)
	{
		CHECK_FOR_INTERRUPTS();
		ReviveItems(run_id, letters, from, Min(CHUNK, letters->n - from), now);
		MemoryContextReset(turn);
	}
	JobIdemFaultPoint("replay_run");
	for (from = 0; from < letters->n; from += CHUNK)
	{
		CHECK_FOR_INTERRUPTS();
		ResolveLetters(letters, from, Min(CHUNK, letters->n - from), now, note);
		MemoryContextReset(turn);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(turn);
}

static void
RecordReplayRun(const JobIdemRunRow *run, uint64 n, const char *error_class,
				const char *sqlstate, const char *note)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum((int64) n));
	JobIdemArgText(&args, error_class);
	JobIdemArgText(&args, sqlstate);
	(void) JobIdemRunLatest(&replay_detail, &args, 1);
	JobIdemEvent("replay_run", run->job_id, run->run_id, NULL,
				 JobIdemText(0, 1, CurrentMemoryContext), note);
}

/* NULL: whatever it is. Empty ones are refused: they look like a variable that was not set. */
static char *
FilterArgument(FunctionCallInfo fcinfo, int i, const char *name)
{
	char *filter = JobIdemTextArgumentOrNull(fcinfo, i);

	if (filter != NULL && (filter[0] == '\0' || strlen(filter) > JOB_IDEM_MAX_CLASS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have 1 to %d bytes", name, JOB_IDEM_MAX_CLASS),
				 errhint("Leave it out to replay whatever the failure was.")));
	return filter;
}

PG_FUNCTION_INFO_V1(job_idem_replay_run);
Datum
job_idem_replay_run(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	char *error_class = FilterArgument(fcinfo, 1, "error_class");
	char *sqlstate = FilterArgument(fcinfo, 2, "sqlstate");
	char *note = JobIdemReasonArgument(fcinfo, 3, false);
	JobIdemScope scope;
	JobIdemRunRow run;
	Letters letters;

	JobIdemEnter(&scope);
	(void) JobIdemJobOfRun(run_id, RIGHT_OPERATE);
	TouchRun(run_id, &run);
	/* a run that is done has no letter left to replay, which is no error: it may just be so */
	if (run.state != RUN_DONE)
		RequireReplayable("replay_run", &run);
	ReadLetters(&letters, run_id, error_class, sqlstate);
	if (letters.n > 0)
	{
		MoveLetters(run_id, &letters, note);
		GoOn(&run);
		RecordReplayRun(&run, letters.n, error_class, sqlstate, note);
	}
	JobIdemLeave(&scope);
	PG_RETURN_INT64((int64) letters.n);
}

static void
Discard(const DeadLetter *letter, const char *note)
{
	JobIdemArgs args = {.n = 0};
	JobIdemArgs run = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(letter->id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArgText(&args, JobIdemCallerName());
	JobIdemArgText(&args, note);
	(void) JobIdemRunLatest(&discard_letter, &args, 0);
	JobIdemEvent("discard", letter->job->job_id, letter->run_id, letter->item_key,
				 psprintf("{\"dead_letter_id\": " INT64_FORMAT "}", letter->id), note);
	JobIdemArg(&run, Int64GetDatum(letter->run_id));
	if (JobIdemRunLatest(&end_partial, &run, 0) == 1 &&
		strcmp(JobIdemText(0, 1, CurrentMemoryContext), "done") == 0)
	{
		JobIdemEvent("finish", letter->job->job_id, letter->run_id, NULL,
					 "{\"state\": \"done\"}", NULL);
		JobIdemReleaseWaiting(letter->job->job_id);
	}
}

PG_FUNCTION_INFO_V1(job_idem_discard);
Datum
job_idem_discard(PG_FUNCTION_ARGS)
{
	int64 id = JobIdemInt64Argument(fcinfo, 0, "dead_letter_id");
	char *note = JobIdemReasonArgument(fcinfo, 1, false);
	JobIdemScope scope;
	DeadLetter letter;
	bool open;

	JobIdemEnter(&scope);
	FindDeadLetter(id, &letter);
	open = LockDeadLetter(&letter);
	if (open)
		Discard(&letter, note);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(open);
}
