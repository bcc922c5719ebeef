/*
 * pause_run.c - pause_run and resume_run: nothing of a paused run is claimed; what is held may be
 * finished. The breaker (watch.c) pauses in the same way.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "access.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"
#include "watch.h"

JOB_IDEM_STATEMENT(resume_run,
				   "UPDATE job_idem.run SET paused_at = NULL, paused_reason = NULL"
				   " WHERE run_id = $1 AND paused_at IS NOT NULL",
				   1, INT8OID);

/* The run, locked, for a caller who may operate it; JI004 if it has ended. */
static JobIdemJob *
LockRun(int64 run_id, JobIdemRunRow *run)
{
	JobIdemJob *job = JobIdemJobOfRun(run_id, RIGHT_OPERATE);

	JobIdemGetRun(run_id, RUN_FOR_UPDATE, run);
	if (run->finished && run->state != RUN_PARTIAL)
		JobIdemRunNotOpen(run, "Only a run that can still be worked is paused or resumed.");
	return job;
}

PG_FUNCTION_INFO_V1(job_idem_pause_run);
Datum
job_idem_pause_run(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	char *reason = JobIdemReasonArgument(fcinfo, 1, true);
	JobIdemScope scope;
	JobIdemRunRow run;
	JobIdemJob *job;
	bool paused;

	JobIdemEnter(&scope);
	job = LockRun(run_id, &run);
	paused = JobIdemPauseRun(job, run_id, "pause_run", reason);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(paused);
}

/* An operator has looked: the budget of retries and the breaker's window begin anew. */
PG_FUNCTION_INFO_V1(job_idem_resume_run);
Datum
job_idem_resume_run(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	char *note = JobIdemReasonArgument(fcinfo, 1, false);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	JobIdemRunRow run;
	JobIdemJob *job;
	bool resumed;

	JobIdemEnter(&scope);
	job = LockRun(run_id, &run);
	JobIdemArg(&args, Int64GetDatum(run_id));
	resumed = JobIdemRunLatest(&resume_run, &args, 0) == 1;
	if (resumed)
	{
		JobIdemReopenRetries(&run);
		JobIdemRestartWindow(run_id);
		JobIdemEvent("resume_run", job->job_id, run_id, NULL, NULL, note);
	}
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(resumed);
}
