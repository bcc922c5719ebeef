/*
 * source.c - runs a job's item_source for a run, and seals it: at open_run, or later by tick.
 *
 * In a subtransaction: where the source fails the run stays loading and says why, and tick tries
 * again after a back-off.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "backoff.h"
#include "clock.h"
#include "guarded.h"
#include "load.h"
#include "lookup.h"
#include "source.h"
#include "spi.h"

JOB_IDEM_STATEMENT(run_params, "SELECT params FROM job_idem.run WHERE run_id = $1", 1, INT8OID);
JOB_IDEM_STATEMENT(note_success,
				   "UPDATE job_idem.run SET reason = NULL, load_at = NULL WHERE run_id = $1", 1,
				   INT8OID);
JOB_IDEM_STATEMENT(note_failure,
				   "UPDATE job_idem.run SET reason = $2, load_tries = load_tries + 1"
				   " WHERE run_id = $1 RETURNING load_tries",
				   2, INT8OID, TEXTOID);
JOB_IDEM_STATEMENT(note_next_try, "UPDATE job_idem.run SET load_at = $2 WHERE run_id = $1", 2,
				   INT8OID, TIMESTAMPTZOID);

typedef struct SourceLoad
{
	const JobIdemJob *job;
	int64 run_id;
} SourceLoad;

static void
LoadAndSeal(void *argument)
{
	const JobIdemJob *job = ((SourceLoad *) argument)->job;
	int64 run_id = ((SourceLoad *) argument)->run_id;
	JobIdemScope scope;
	JobIdemLoad load;
	JobIdemArgs args = {.n = 0};
	JobIdemSource source = {
		.query = job->item_source,
		.owner = job->owner,
		.n_args = 2,
		.types = {DATEOID, JSONBOID},
	};
	bool is_null;

	JobIdemEnterConnected(&scope);
	JobIdemLoadBegin(&load, job, run_id);
	JobIdemArg(&args, Int64GetDatum(run_id));
	(void) JobIdemRun(&run_params, &args, 1);
	source.values[0] = DateADTGetDatum(load.run.business_date);
	source.nulls[0] = ' ';
	source.values[1] = JobIdemColumn(0, 1, &is_null);
	source.nulls[1] = is_null ? 'n' : ' ';
	JobIdemLeaveConnected(&scope);
	if (load.run.state != RUN_LOADING)
		return;
	JobIdemLoadSource(&load, &source);
	JobIdemEnterConnected(&scope);
	JobIdemLoadEnd(&load);
	JobIdemSeal(job, &load.run);
	args.n = 0;
	JobIdemArg(&args, Int64GetDatum(run_id));
	(void) JobIdemRun(&note_success, &args, 0);
	JobIdemLeaveConnected(&scope);
}

/* When tick runs a source again that has failed so many times. */
static TimestampTz
NextTry(const JobIdemJob *job, int64 run_id, int tries)
{
	int64 delay = JobIdemBackoff(tries, JobIdemIntervalMicros(&job->backoff_base),
								 job->backoff_factor, JobIdemIntervalMicros(&job->backoff_max),
								 psprintf(INT64_FORMAT, run_id));

	return JobIdemPlus(JobIdemNow(), JobIdemMicrosInterval(delay));
}

/* The run stays loading and says why. */
static void
NoteFailure(const JobIdemJob *job, int64 run_id, const ErrorData *error)
{
	char *reason = psprintf("item_source failed: %s (SQLSTATE %s)", JobIdemShown(error->message),
							unpack_sql_state(error->sqlerrcode));
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	JobIdemArgs next = {.n = 0};

	JobIdemEnterConnected(&scope);
	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, CStringGetTextDatum(reason));
	(void) JobIdemRun(&note_failure, &args, 0);
	JobIdemArg(&next, Int64GetDatum(run_id));
	JobIdemArg(&next, TimestampTzGetDatum(NextTry(job, run_id, JobIdemInt32(0, 1))));
	(void) JobIdemRun(&note_next_try, &next, 0);
	JobIdemLeaveConnected(&scope);
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("item_source failed: %s", error->message),
			 errdetail("Run " INT64_FORMAT " stays loading.", run_id),
			 errhint("Mend the source or the job. tick tries again by and by;"
					 " job_idem.open_run tries at once.")));
}

/*
 * Runs the job's item_source and seals the run, in a subtransaction. A source that opens its own
 * run finds it loading. To be called outside any scope of its caller's, connected to SPI.
 */
void
JobIdemLoadFromSource(const JobIdemJob *job, int64 run_id)
{
	static int64 loading = 0;
	SourceLoad load = {.job = job, .run_id = run_id};
	int64 outer = loading;
	ErrorData *error;

	if (run_id == loading)
		return;
	loading = run_id;
	PG_TRY();
	{
		error = JobIdemTry(LoadAndSeal, &load);
	}
	PG_FINALLY();
	{
		loading = outer;
	}
	PG_END_TRY();
	if (error != NULL)
		NoteFailure(job, run_id, error);
}
