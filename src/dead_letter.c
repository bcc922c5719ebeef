/*
 * dead_letter.c - what a failed try leads to: a retry with back-off or a dead letter; and replay
 * and discard of those.
 *
 * Lock order: run, item, dead letter. replay and discard update the run row first, so that they
 * and a finish of the same run can never both believe the other away.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "backoff.h"
#include "clock.h"
#include "dead_letter.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

JOB_IDEM_STATEMENT(item_waits,
				   "UPDATE job_idem.item SET state = 'waiting', due_at = $3, attempts = $4, lost"
				   " = $5, token = NULL WHERE run_id = $1 AND item_no = $2",
				   5, INT8OID, INT8OID, TIMESTAMPTZOID, INT2OID, INT2OID);
JOB_IDEM_STATEMENT(item_dies,
				   "UPDATE job_idem.item SET state = 'dead', attempts = $3, lost = $4"
				   " WHERE run_id = $1 AND item_no = $2",
				   4, INT8OID, INT8OID, INT2OID, INT2OID);
JOB_IDEM_STATEMENT(put_failure,
				   "INSERT INTO job_idem.failure (run_id, item_key, token, attempt, failed_at,"
				   " kind, sqlstate,"
				   " error_class, message, retry_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,"
				   " $10)",
				   10, INT8OID, TEXTOID, INT8OID, INT2OID, TIMESTAMPTZOID, TEXTOID, TEXTOID,
				   TEXTOID, TEXTOID,
				   TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(put_dead_letter,
				   "INSERT INTO job_idem.dead_letter (run_id, item_key, reason, kind, sqlstate,"
				   " error_class, attempts,"
				   " payload, dead_at) SELECT $1, item_key, $3, $4, $5, $6, $7, payload, $8"
				   " FROM job_idem.item WHERE run_id = $1 AND item_no = $2",
				   8, INT8OID, INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT2OID,
				   TIMESTAMPTZOID);

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

static void
Record(const JobIdemFailure *failure, bool dead, TimestampTz now, TimestampTz retry_at)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(failure->run_id));
	TextArg(&args, failure->item_key);
	JobIdemArg(&args, Int64GetDatum(failure->token));
	JobIdemArg(&args, Int16GetDatum(failure->attempts));
	JobIdemArg(&args, TimestampTzGetDatum(now));
	TextArg(&args, JobIdemFailureKindName(failure->kind));
	TextArg(&args, failure->sqlstate);
	TextArg(&args, failure->error_class);
	TextArg(&args, failure->message);
	JobIdemArgNullable(&args, TimestampTzGetDatum(retry_at), dead);
	(void) JobIdemRunLatest(&put_failure, &args, 0);
}

static void
Bury(const JobIdemFailure *failure, const char *reason, TimestampTz now)
{
	JobIdemArgs item = {.n = 0};
	JobIdemArgs letter = {.n = 0};

	JobIdemArg(&item, Int64GetDatum(failure->run_id));
	JobIdemArg(&item, Int64GetDatum(failure->item_no));
	JobIdemArg(&item, Int16GetDatum(failure->attempts));
	JobIdemArg(&item, Int16GetDatum(failure->lost));
	(void) JobIdemRunLatest(&item_dies, &item, 0);

	JobIdemArg(&letter, Int64GetDatum(failure->run_id));
	JobIdemArg(&letter, Int64GetDatum(failure->item_no));
	TextArg(&letter, reason);
	TextArg(&letter, JobIdemFailureKindName(failure->kind));
	TextArg(&letter, failure->sqlstate);
	TextArg(&letter, failure->error_class);
	JobIdemArg(&letter, Int16GetDatum(failure->attempts));
	JobIdemArg(&letter, TimestampTzGetDatum(now));
	(void) JobIdemRunLatest(&put_dead_letter, &letter, 0);
}

static TimestampTz
RetryAt(const JobIdemJob *job, const JobIdemFailure *failure, TimestampTz now)
{
	int64 delay = JobIdemBackoff(Max(1, failure->attempts),
								 JobIdemIntervalMicros(&job->backoff_base), job->backoff_factor,
								 JobIdemIntervalMicros(&job->backoff_max), failure->item_key);

	return JobIdemPlus(now, JobIdemMicrosInterval(delay));
}

/* NULL: the item is to be tried again. */
static const char *
WhyDead(const JobIdemJob *job, const JobIdemFailure *failure)
{
	if (!failure->retry)
		return "not to be tried again";
	if (failure->attempts >= job->max_attempts)
		return "all tries are used up";
	if (failure->budget_spent || (job->retry_budget == 0 && failure->kind != FAILURE_LOST))
		return "the retry budget of the run is spent";
	return NULL;
}

/*
 * Puts a failure on record and moves the item, which the caller holds: to waiting, with back-off,
 * or to dead. Returns whether it is to be tried again.
 */
bool
JobIdemFail(const JobIdemJob *job, const JobIdemFailure *failure, TimestampTz *retry_at)
{
	TimestampTz now = JobIdemNow();
	const char *reason = WhyDead(job, failure);
	bool retry = reason == NULL;
	JobIdemArgs args = {.n = 0};

	*retry_at = failure->at_once ? now : RetryAt(job, failure, now);
	Record(failure, !retry, now, *retry_at);
	if (!retry)
	{
		Bury(failure, reason, now);
		return false;
	}
	JobIdemArg(&args, Int64GetDatum(failure->run_id));
	JobIdemArg(&args, Int64GetDatum(failure->item_no));
	JobIdemArg(&args, TimestampTzGetDatum(*retry_at));
	JobIdemArg(&args, Int16GetDatum(failure->attempts));
	JobIdemArg(&args, Int16GetDatum(failure->lost));
	(void) JobIdemRunLatest(&item_waits, &args, 0);
	return true;
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
FindDeadLetter(int64 id, DeadLetter *letter)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(id));
	if (JobIdemRunLatest(&find_dead_letter, &args, 1) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("dead letter " INT64_FORMAT " does not exist", id),
				 errhint("job_idem.dead_letters lists those that exist.")));
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
	JobIdemArgs run = {.n = 0};
	JobIdemArgs item = {.n = 0};
	JobIdemArgs id = {.n = 0};
	const char *status;

	JobIdemArg(&run, Int64GetDatum(letter->run_id));
	(void) JobIdemRun(&touch_run, &run, 0);
	JobIdemGetRun(letter->run_id, RUN_READ, &letter->run);
	JobIdemArg(&item, Int64GetDatum(letter->run_id));
	JobIdemArg(&item, CStringGetTextDatum(letter->item_key));
	(void) JobIdemRun(&lock_dead_item, &item, 0);
	JobIdemArg(&id, Int64GetDatum(letter->id));
	(void) JobIdemRun(&lock_dead_letter, &id, 0);
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
	JobIdemArgs run = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(letter->id));
	JobIdemArg(&args, Int64GetDatum(letter->run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	TextArg(&args, JobIdemCallerName());
	TextArg(&args, note);
	JobIdemArgNullable(&args, payload.value, payload.isnull);
	if (JobIdemRun(&revive_item, &args, 0) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_JI_ILLEGAL_TRANSITION),
				 errmsg("item \"%s\" is not dead", letter->item_key),
				 errdetail("Dead letter " INT64_FORMAT " is open all the same.", letter->id),
				 errhint("Ask job_idem.audit(run_id) what else is wrong with the run.")));
	JobIdemArg(&run, Int64GetDatum(letter->run_id));
	if (JobIdemRun(&run_again, &run, 0) == 1)
		JobIdemEvent("run_again", letter->job->job_id, letter->run_id, NULL, NULL, NULL);
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
	if (open && letter.run.state != RUN_RUNNING &&
		!JobIdemRunMay("replay", letter.run.state, RUN_RUNNING))
		JobIdemRunNotOpen(&letter.run, "Its dead letters can be discarded, not replayed.");
	if (open)
		Replay(&letter, note, payload);
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
	(void) JobIdemRun(&discard_letter, &args, 0);
	JobIdemEvent("discard", letter->job->job_id, letter->run_id, letter->item_key,
				 psprintf("{\"dead_letter_id\": " INT64_FORMAT "}", letter->id), note);
	JobIdemArg(&run, Int64GetDatum(letter->run_id));
	if (JobIdemRun(&end_partial, &run, 0) == 1 &&
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
