/*
 * dead_letter.c - what a failed or lost try leads to: a retry with back-off, or a dead letter.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "clock.h"
#include "dead_letter.h"
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

static void
Record(const JobIdemFailure *failure, bool dead, TimestampTz now, TimestampTz retry_at)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(failure->run_id));
	JobIdemArgText(&args, failure->item_key);
	JobIdemArg(&args, Int64GetDatum(failure->token));
	JobIdemArg(&args, Int16GetDatum(failure->attempts));
	JobIdemArg(&args, TimestampTzGetDatum(now));
	JobIdemArgText(&args, JobIdemFailureKindName(failure->kind));
	JobIdemArgText(&args, failure->sqlstate);
	JobIdemArgText(&args, failure->error_class);
	JobIdemArgText(&args, failure->message);
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
	JobIdemArgText(&letter, reason);
	JobIdemArgText(&letter, JobIdemFailureKindName(failure->kind));
	JobIdemArgText(&letter, failure->sqlstate);
	JobIdemArgText(&letter, failure->error_class);
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
