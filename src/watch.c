/*
 * watch.c - retry budget and breaker: too many failures of a run have consequences for all of it.
 *
 * Both are judged by counting, now and then (tick, idle claims), never by a counter that failing
 * items would queue for; so each may be overshot by what fails between two looks. A spent budget is
 * noted in run.retries_closed, which every report of a failure reads; an open breaker is a pause of
 * the run. The run row is locked by trying and read again after that.
 *
 * The breaker compares what is done and failed now with a sample taken a window ago. A sample is
 * written at each look; a base, written where an operator resumes the run, is where the window
 * begins at the earliest.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"
#include "tally.h"
#include "watch.h"

/* a small run is bounded by the tries of its items alone */
#define LEAST_BUDGET 10
/* tries, below which no share means anything */
#define LEAST_TRIES 100

JOB_IDEM_STATEMENT(has_failures,
				   "SELECT 1 FROM job_idem.failure WHERE run_id = $1 LIMIT 1", 1, INT8OID);
/* items that a keyed run has seen so far are those done, dead and waiting */
JOB_IDEM_STATEMENT(keyed_items,
				   "SELECT (SELECT count(*) FROM job_idem.item WHERE run_id = $1 AND due_at IS NOT"
				   "  NULL) + (SELECT count(*) FROM job_idem.dead_letter WHERE run_id = $1"
				   "  AND status <> 'replayed')",
				   1, INT8OID);
JOB_IDEM_STATEMENT(close_retries,
				   "UPDATE job_idem.run SET retries_closed = $2 WHERE run_id = $1", 2, INT8OID,
				   TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(reopen_retries,
				   "UPDATE job_idem.run SET retries_closed = NULL, retries_from = $2"
				   " WHERE run_id = $1",
				   2, INT8OID, INT8OID);
JOB_IDEM_STATEMENT(pause_run,
				   "UPDATE job_idem.run SET paused_at = $2, paused_reason = $3"
				   " WHERE run_id = $1 AND paused_at IS NULL",
				   3, INT8OID, TIMESTAMPTZOID, TEXTOID);
JOB_IDEM_STATEMENT(notify, "SELECT pg_notify('job_idem', $1)", 1, TEXTOID);
JOB_IDEM_STATEMENT(put_sample,
				   "INSERT INTO job_idem.run_sample (run_id, at, is_base, n_done, n_failed)"
				   " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (run_id, at) DO UPDATE"
				   " SET is_base = run_sample.is_base OR excluded.is_base,"
				   "  n_done = excluded.n_done, n_failed = excluded.n_failed",
				   5, INT8OID, TIMESTAMPTZOID, BOOLOID, INT8OID, INT8OID);
/* where the window begins: the newest sample that is old enough, or a newer base */
JOB_IDEM_STATEMENT(find_start,
				   "SELECT at, n_done, n_failed FROM job_idem.run_sample"
				   " WHERE run_id = $1 AND (is_base OR at <= $2) ORDER BY at DESC LIMIT 1",
				   2, INT8OID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(forget_samples,
				   "DELETE FROM job_idem.run_sample WHERE run_id = $1 AND at < $2", 2, INT8OID,
				   TIMESTAMPTZOID);

static bool
HasFailures(int64 run_id)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	return JobIdemRunLatest(&has_failures, &args, 1) == 1;
}

/* How many items the run has, of which the budget is a share. */
static int64
CountItems(const JobIdemJob *job, const JobIdemRunRow *run, const JobIdemCounts *counts)
{
	JobIdemArgs args = {.n = 0};

	if (!job->keyed)
		return run->n_items + run->n_late;
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	(void) JobIdemRunLatest(&keyed_items, &args, 1);
	return counts->n_done + JobIdemInt64(0, 1);
}

static double
Budget(const JobIdemJob *job, int64 n_items)
{
	return job->retry_budget == 0 ? 0 : Max(LEAST_BUDGET, floor(job->retry_budget * n_items));
}

static void
CloseRetries(const JobIdemJob *job, int64 run_id, int64 n_retried)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	(void) JobIdemRunLatest(&close_retries, &args, 0);
	JobIdemEvent("retries_closed", job->job_id, run_id, NULL,
				 psprintf("{\"n_retried\": " INT64_FORMAT "}", n_retried), NULL);
}

/* True if the retries of the run are to be closed now. */
static bool
IsSpent(const JobIdemJob *job, const JobIdemRunRow *run, const JobIdemCounts *counts)
{
	if (job->retry_budget < 0 || run->retries_closed)
		return false;
	return counts->n_retried - run->retries_from >= Budget(job, CountItems(job, run, counts));
}

/* A budget that begins anew; the caller has locked the run row. */
void
JobIdemReopenRetries(const JobIdemRunRow *run)
{
	JobIdemCounts counts;
	JobIdemArgs args = {.n = 0};

	if (!run->retries_closed)
		return;
	JobIdemTallyCount(run->run_id, &counts);
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	JobIdemArg(&args, Int64GetDatum(counts.n_retried));
	(void) JobIdemRunLatest(&reopen_retries, &args, 0);
}

static void
PutSample(int64 run_id, const JobIdemCounts *counts, bool is_base)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&args, BoolGetDatum(is_base));
	JobIdemArg(&args, Int64GetDatum(counts->n_done));
	JobIdemArg(&args, Int64GetDatum(counts->n_failed));
	(void) JobIdemRunLatest(&put_sample, &args, 0);
}

/* From here on the breaker looks at what follows only. */
void
JobIdemRestartWindow(int64 run_id)
{
	JobIdemCounts counts;

	JobIdemTallyCount(run_id, &counts);
	PutSample(run_id, &counts, true);
}

/* What the run had done and failed where the window begins; older samples are forgotten. */
static void
WindowStart(const JobIdemJob *job, int64 run_id, JobIdemCounts *start)
{
	TimestampTz begin = JobIdemNow() - JobIdemIntervalMicros(&job->failure_window);
	JobIdemArgs args = {.n = 0};
	JobIdemArgs forget = {.n = 0};
	bool is_null;

	memset(start, 0, sizeof(*start));
	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(begin));
	if (JobIdemRunLatest(&find_start, &args, 1) == 0)
		return;
	start->n_done = JobIdemInt64(0, 2);
	start->n_failed = JobIdemInt64(0, 3);
	JobIdemArg(&forget, Int64GetDatum(run_id));
	JobIdemArg(&forget, JobIdemColumn(0, 1, &is_null));
	(void) JobIdemRunLatest(&forget_samples, &forget, 0);
}

/* Notes the pause and its reason; false if the run is paused already. Ids only are notified. */
bool
JobIdemPauseRun(const JobIdemJob *job, int64 run_id, const char *verb, const char *reason)
{
	JobIdemArgs args = {.n = 0};
	JobIdemArgs word = {.n = 0};
	char *payload;

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&args, CStringGetTextDatum(reason));
	if (JobIdemRunLatest(&pause_run, &args, 0) == 0)
		return false;
	JobIdemEvent(verb, job->job_id, run_id, NULL, NULL, reason);
	payload = psprintf("{\"verb\": \"%s\", \"job_id\": " INT64_FORMAT ", \"run_id\": " INT64_FORMAT
					   "}",
					   verb, job->job_id, run_id);
	JobIdemArg(&word, CStringGetTextDatum(payload));
	(void) JobIdemRunLatest(&notify, &word, 1);
	return true;
}

/* NULL, or why the breaker is to open. */
static const char *
BreakerReason(const JobIdemJob *job, const JobIdemRunRow *run, const JobIdemCounts *counts)
{
	JobIdemCounts start;
	int64 failed;
	int64 tries;

	if (job->failure_threshold == 0 || run->paused)
		return NULL;
	WindowStart(job, run->run_id, &start);
	PutSample(run->run_id, counts, false);
	failed = counts->n_failed - start.n_failed;
	tries = counts->n_done - start.n_done + failed;
	if (tries < LEAST_TRIES || (double) failed / tries < job->failure_threshold)
		return NULL;
	return psprintf("breaker: " INT64_FORMAT " of the last " INT64_FORMAT " tries failed", failed,
					tries);
}

/* Looks at a running run, and acts if it can have the row now. */
void
JobIdemWatch(const JobIdemJob *job, int64 run_id)
{
	JobIdemRunRow run;
	JobIdemCounts counts;
	const char *reason;

	if ((job->retry_budget < 0 && job->failure_threshold == 0) || !HasFailures(run_id))
		return;
	if (!JobIdemFindRun(run_id, RUN_TRY_UPDATE, &run) || run.state != RUN_RUNNING)
		return;
	JobIdemTallyCount(run_id, &counts);
	if (IsSpent(job, &run, &counts))
		CloseRetries(job, run_id, counts.n_retried);
	reason = BreakerReason(job, &run, &counts);
	if (reason != NULL)
		(void) JobIdemPauseRun(job, run_id, "breaker", reason);
}
