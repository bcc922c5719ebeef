/*
 * replay.c - replay and discard: what an operator does with dead letters.
 *
 * Lock order: run, item, dead letter. Both update the run row first, so that they take turns, and
 * they and a finish of the same run can never both believe the other away. What they do next is
 * decided by rows read after that.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"
#include "watch.h"

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

static void
TextArg(JobIdemArgs *args, const char *text)
{
	JobIdemArgNullable(args, text == NULL ? (Datum) 0 : CStringGetTextDatum(text), text == NULL);
}

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
	TextArg(&args, JobIdemCallerName());
	TextArg(&args, note);
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

static void
Discard(const DeadLetter *letter, const char *note)
{
	JobIdemArgs args = {.n = 0};
	JobIdemArgs run = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(letter->id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	TextArg(&args, JobIdemCallerName());
	TextArg(&args, note);
	(void) JobIdemRunLatest(&discard_letter, &args, 0);
	JobIdemEvent("discard", letter->job->job_id, letter->run_id, letter->item_key,
				 psprintf("{\"dead_letter_id\": " INT64_FORMAT "}", letter->id), note);
	JobIdemArg(&run, Int64GetDatum(letter->run_id));
	if (JobIdemRunLatest(&end_partial, &run, 0) == 1 &&
		strcmp(JobIdemText(0, 1, CurrentMemoryContext), "done") == 0)
		JobIdemEvent("finish", letter->job->job_id, letter->run_id, NULL,
					 "{\"state\": \"done\"}", NULL);
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
