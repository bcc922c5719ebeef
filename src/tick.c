/*
 * tick.c - CALL tick(): planning, loading and release of runs; expiry, sealing of keyed runs past
 * close_after, finish, retry budgets and breakers. Bounded, and safe from any number of callers at
 * once: what another tick has is skipped, what another transaction holds is met again next time.
 * Where the job says so, a transaction that holds a claim past max_lease is ended.
 *
 * Commits by itself after each run and after each JOB_IDEM_EXPIRE_AT_ONCE leases, so that no
 * transaction is long and none has more subtransactions than a backend can cache. Everything it
 * does on behalf of others only tries.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "cron.h"
#include "expire.h"
#include "finish.h"
#include "guarded.h"
#include "holder.h"
#include "job_idem.h"
#include "load.h"
#include "lock_tag.h"
#include "lookup.h"
#include "planner.h"
#include "release.h"
#include "source.h"
#include "spi.h"
#include "tally.h"
#include "watch.h"
#include "zone.h"

/* leases that one tick expires, and a few in every run; the next tick goes on */
#define MAX_EXPIRED 10000
/* milliseconds that it waits for a lock on a table */
#define MAX_WAIT 1000
#define JOBS_AT_ONCE 1000
#define RUNS_AT_ONCE 256

JOB_IDEM_STATEMENT(unfinished_runs,
				   "SELECT run_id FROM job_idem.run WHERE run_id > $1"
				   " AND (finished_at IS NULL OR (state = 'cancelled' AND purged_at IS NULL))"
				   " ORDER BY run_id",
				   1, INT8OID);

/* with where planning stands, and whether it takes more than the schedule to tell what is due */
JOB_IDEM_STATEMENT(planned_jobs,
				   "SELECT job_id, schedule, timezone, x.at, changed_at > x.at"
				   "  OR (calendar IS NOT NULL AND closed_day <> 'skip')"
				   " FROM job_idem.job CROSS JOIN LATERAL (SELECT CASE WHEN planned_to > plan_from"
				   "  AND planned_to <= $2 THEN planned_to ELSE plan_from END AS at) x"
				   " WHERE job_id > $1 AND enabled AND paused_at IS NULL AND dropped_at IS NULL"
				   " AND (schedule IS NOT NULL OR changed_at > x.at) ORDER BY job_id",
				   2, INT8OID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(load_is_due,
				   "SELECT FROM job_idem.run WHERE run_id = $1 AND state = 'loading'"
				   " AND (load_at IS NULL OR load_at <= $2)",
				   2, INT8OID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(lock_tables,
				   "LOCK TABLE job_idem.job, job_idem.job_version, job_idem.run,"
				   " job_idem.run_trigger, job_idem.item, job_idem.lease, job_idem.tally,"
				   " job_idem.event"
				   " IN ROW EXCLUSIVE MODE NOWAIT",
				   0, 0);

static void
RefuseElsewhere(FunctionCallInfo fcinfo)
{
	CallContext *call = (CallContext *) fcinfo->context;

	if (call == NULL || !IsA(call, CallContext) || call->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("tick cannot run inside a transaction block"),
				 errhint("CALL it as a statement of its own: it commits by itself.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("tick needs READ COMMITTED"),
				 errhint("Set default_transaction_isolation to read committed for the role that"
						 " ticks.")));
}

static void
CloseKeyedRun(const JobIdemJob *job, int64 run_id)
{
	JobIdemRunRow run;
	TimestampTz closes;

	if (!job->keyed || !JobIdemFindRun(run_id, RUN_READ, &run) || run.sealed)
		return;
	closes = JobIdemPlus((TimestampTz) run.business_date * USECS_PER_DAY, &job->close_after);
	if (JobIdemNow() <= closes)
		return;
	if (JobIdemFindRun(run_id, RUN_TRY_UPDATE, &run) && run.state == RUN_RUNNING && !run.sealed)
		JobIdemSeal(job, &run);
}

/* A tick under way. */
typedef struct Tick
{
	JobIdemScope scope;
	int expired;  /* leases, by this tick */
	bool give_up; /* somebody has locked a whole table */
} Tick;

typedef struct Work
{
	Tick *tick;
	int64 run_id;
	bool more;
	bool load; /* its item_source is to be run */
} Work;

/* Is a loading run's item_source to be run now? */
static bool
LoadsNow(const JobIdemJob *job, int64 run_id)
{
	JobIdemArgs args = {.n = 0};

	if (job->item_source == NULL || !job->live || job->paused)
		return false;
	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	return JobIdemRunLatest(&load_is_due, &args, 1) == 1;
}

/* What the state of the run asks for. */
static void
MoveRun(Work *work, JobIdemJob *job, JobIdemRunState state)
{
	switch (state)
	{
		case RUN_RUNNING:
			if (!JobIdemFinish(work->run_id, job->job_id))
				JobIdemWatch(job, work->run_id);
			break;
		case RUN_BLOCKED:
			work->load = JobIdemRelease(work->run_id) && LoadsNow(job, work->run_id);
			break;
		case RUN_LOADING:
			work->load = LoadsNow(job, work->run_id);
			break;
		case RUN_DONE:
		case RUN_PARTIAL:
		case RUN_CANCELLED:
		case RUN_SKIPPED:
		case RUN_EXPIRED:
			JobIdemTallyFold(work->run_id);
			break;
	}
}

/* Skips a run that another tick is at. */
static void
WorkOnRun(Work *work)
{
	Tick *tick = work->tick;
	JobIdemRunRow run;
	JobIdemJob *job;

	work->more = false;
	if (!JobIdemTryLock(LOCK_TICK, JobIdemFold(work->run_id), (uint32) work->run_id, true) ||
		!JobIdemFindRun(work->run_id, RUN_READ, &run))
		return;
	job = JobIdemJobById(run.job_id);
	if (!JobIdemHasRight(job->job_id, job->owner, RIGHT_OPERATE))
		return;
	/* what is loading or blocked was never claimed */
	if (run.state != RUN_LOADING && run.state != RUN_BLOCKED)
		tick->expired += JobIdemExpireOverdue(job, work->run_id, run.forced,
											  JOB_IDEM_EXPIRE_AT_ONCE, &work->more);
	work->more = work->more && tick->expired < MAX_EXPIRED;
	if (work->more)
		return;
	if (job->terminate_at_max)
		JobIdemEndHoldersPastMax(job, work->run_id);
	CloseKeyedRun(job, work->run_id);
	MoveRun(work, job, run.state);
}

/*
 * One transaction's worth of work on a run, with a connection to SPI of its own, so that what its
 * statements have read goes with it.
 */
static void
WorkConnected(void *argument)
{
	JobIdemConnect();
	WorkOnRun(argument);
	JobIdemDisconnect();
}

/* For each transaction anew. A lock on a whole table is not waited for long. */
static void
Enter(Tick *tick)
{
	JobIdemEnterConnected(&tick->scope);
	JobIdemPinLockTimeout(MAX_WAIT);
}

static void
CommitAndGoOn(Tick *tick)
{
	JobIdemLeaveConnected(&tick->scope);
	SPI_commit();
	Enter(tick);
}

static void
LockTables(void *unused)
{
	JobIdemArgs args = {.n = 0};

	(void) JobIdemRun(&lock_tables, &args, 0);
}

/*
 * Was it a whole table that the wait was for? One row, such as a run that somebody has opened by
 * hand and not committed, is no reason to leave the others.
 */
static bool
TableIsLocked(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && JobIdemTry(LockTables, NULL) != NULL;
}

/* An error becomes a WARNING that says what could not be done; the others go on. */
static void
Warn(Tick *tick, const char *what, int64 id, const ErrorData *error)
{
	tick->give_up = TableIsLocked(error);
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("tick could not %s " INT64_FORMAT ": %s", what, id, error->message),
			 tick->give_up ? errhint("This tick ends here; see pg_locks for who has locked a table"
									 " of job_idem.")
						   : errhint("The others go on; this one is met again at the next tick.")));
}

static void
LoadFromSource(void *argument)
{
	Work *work = argument;
	JobIdemScope scope;
	JobIdemRunRow run;
	JobIdemJob *job;

	JobIdemConnect();
	JobIdemEnterConnected(&scope);
	JobIdemGetRun(work->run_id, RUN_READ, &run);
	job = JobIdemJobById(run.job_id);
	JobIdemLeaveConnected(&scope);
	JobIdemLoadFromSource(job, work->run_id);
	JobIdemDisconnect();
}

/* Text of the job's owner runs outside our scope; what it waits for must not hold up the others. */
static void
LoadRun(Work *work)
{
	Tick *tick = work->tick;
	ErrorData *error;
	int guc_level;

	JobIdemLeaveConnected(&tick->scope);
	guc_level = NewGUCNestLevel();
	JobIdemPinLockTimeout(MAX_WAIT);
	error = JobIdemTry(LoadFromSource, work);
	AtEOXact_GUC(false, guc_level);
	Enter(tick);
	if (error != NULL)
		Warn(tick, "load run", work->run_id, error);
}

static void
TickRun(Tick *tick, int64 run_id)
{
	Work work = {.tick = tick, .run_id = run_id};
	ErrorData *error;

	do
	{
		CHECK_FOR_INTERRUPTS();
		error = JobIdemTry(WorkConnected, &work);
		if (error != NULL)
			Warn(tick, "work on run", run_id, error);
		else if (work.load)
			LoadRun(&work);
		CommitAndGoOn(tick);
	} while (error == NULL && work.more);
}

/* Reads the next runs after `last` into `runs`. */
static uint64
NextRuns(int64 last, int64 *runs)
{
	JobIdemArgs args = {.n = 0};
	uint64 n;
	uint64 i;

	JobIdemArg(&args, Int64GetDatum(last));
	n = JobIdemRun(&unfinished_runs, &args, RUNS_AT_ONCE);
	for (i = 0; i < n; i++)
		runs[i] = JobIdemInt64(i, 1);
	return n;
}

static void
TickRuns(Tick *tick)
{
	int64 runs[RUNS_AT_ONCE];
	int64 last = 0;
	uint64 n;
	uint64 i;

	while (!tick->give_up && (n = NextRuns(last, runs)) > 0)
	{
		for (i = 0; i < n && !tick->give_up; i++)
			TickRun(tick, runs[i]);
		last = runs[n - 1];
	}
}

/* May the job of row `row` have something due? What cannot be told cheaply may. */
static bool
IsDue(uint64 row, TimestampTz now)
{
	const char *schedule = JobIdemText(row, 2, CurrentMemoryContext);
	JobIdemCron cron;
	JobIdemCronError error;
	pg_tz *zone;
	TimestampTz next;
	bool is_null;

	if (JobIdemBool(row, 5) || schedule == NULL)
		return true;
	zone = JobIdemZone(JobIdemText(row, 3, CurrentMemoryContext));
	if (zone == NULL || !JobIdemCronParse(schedule, &cron, &error))
		return true;
	return JobIdemCronNext(&cron, zone, DatumGetTimestampTz(JobIdemColumn(row, 4, &is_null)),
						   &next) &&
		next <= now;
}

/* Reads jobs after `last`, of which those that may be due into `jobs`; returns how many it read. */
static uint64
DueJobs(int64 *last, int64 *jobs, int *n_due)
{
	TimestampTz now = JobIdemNow();
	JobIdemArgs args = {.n = 0};
	uint64 n;
	uint64 i;

	JobIdemArg(&args, Int64GetDatum(*last));
	JobIdemArg(&args, TimestampTzGetDatum(now));
	n = JobIdemRun(&planned_jobs, &args, JOBS_AT_ONCE);
	*n_due = 0;
	for (i = 0; i < n; i++)
	{
		*last = JobIdemInt64(i, 1);
		if (IsDue(i, now))
			jobs[(*n_due)++] = *last;
	}
	JobIdemFreeRows();
	return n;
}

static void
PlanJob(void *argument)
{
	JobIdemJob *job;

	JobIdemConnect();
	job = JobIdemJobById(*(int64 *) argument);
	if (JobIdemHasRight(job->job_id, job->owner, RIGHT_OPERATE))
		(void) JobIdemPlan(job->job_id);
	JobIdemDisconnect();
}

/* A transaction for each job: one that cannot be planned stops no other. */
static void
PlanJobs(Tick *tick)
{
	int64 jobs[JOBS_AT_ONCE];
	int64 last = 0;
	int n;
	int i;

	while (!tick->give_up && DueJobs(&last, jobs, &n) > 0)
	{
		for (i = 0; i < n && !tick->give_up; i++)
		{
			ErrorData *error;

			CHECK_FOR_INTERRUPTS();
			error = JobIdemTry(PlanJob, &jobs[i]);
			if (error != NULL)
				Warn(tick, "plan job number", jobs[i], error);
			CommitAndGoOn(tick);
		}
	}
}

PG_FUNCTION_INFO_V1(job_idem_tick);
Datum
job_idem_tick(PG_FUNCTION_ARGS)
{
	Tick tick = {.expired = 0};

	RefuseElsewhere(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	Enter(&tick);
	PlanJobs(&tick);
	TickRuns(&tick);
	JobIdemLeaveConnected(&tick.scope);
	JobIdemDisconnect();
	return (Datum) 0;
}
