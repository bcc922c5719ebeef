/*
 * plan.c - plan, backfill and unblock_run: what the planner would do, what it is told to do, and
 * blocked runs that an operator lets go.
 *
 * Business dates are asked for, but fires have instants: the fires of a stretch of time are looked
 * at that is longer at both ends, by as much as a business date may be away from its instant. Dates
 * before the job was defined are planned by its first version.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "compat.h"
#include "job_idem.h"
#include "lookup.h"
#include "open.h"
#include "planner.h"
#include "release.h"
#include "schedule.h"
#include "spi.h"

/* days that one call may ask for */
#define MAX_DAYS 3660
/* how far a calendar may put a business date from its instant */
#define CALENDAR_DAYS 400

JOB_IDEM_STATEMENT(find_run,
				   "SELECT run_id, state, reason FROM job_idem.run"
				   " WHERE job_id = $1 AND run_key = $2",
				   2, INT8OID, TEXTOID);

/* The fires whose business dates are asked for. */
typedef struct Range
{
	JobIdemJob *job;
	JobIdemPolicy policy;
	JobIdemSchedule schedule;
	TimestampTz now;
	TimestampTz defined; /* from when on the planner plans */
	DateADT from;
	DateADT to;
	JobIdemFires fires;
	MemoryContext turn; /* of one row */
} Range;

static int64
Margin(const JobIdemSchedule *schedule)
{
	int64 margin = 0;
	int i;

	for (i = 0; i < schedule->n; i++)
	{
		const JobIdemScheduleVersion *version = &schedule->versions[i];
		int64 days = abs(version->offset) * (version->calendar ? 3 : 1) + 3 +
			(version->calendar ? CALENDAR_DAYS : 0);

		margin = Max(margin, days);
	}
	return margin;
}

static void
CheckRange(DateADT from, DateADT to)
{
	if (to < from)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("to_date must not be before from_date"),
				 errhint("Give the earlier date first.")));
	if (to - from > MAX_DAYS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("from_date and to_date must be at most %d days apart", MAX_DAYS),
				 errhint("Ask for fewer dates at a time.")));
}

static void
ReadRange(FunctionCallInfo fcinfo, Range *range)
{
	range->from = JobIdemDateArgument(fcinfo, 1, "from_date");
	range->to = JobIdemDateArgument(fcinfo, 2, "to_date");
	CheckRange(range->from, range->to);
}

/* Of the fires found, those whose business dates are in the range. */
static void
KeepDates(Range *range)
{
	JobIdemFires *fires = &range->fires;
	int kept = 0;
	int i;

	for (i = 0; i < fires->n; i++)
		if (fires->fires[i].business_date >= range->from &&
			fires->fires[i].business_date <= range->to)
			fires->fires[kept++] = fires->fires[i];
	fires->n = kept;
}

static void
FindFires(Range *range)
{
	int64 margin;
	TimestampTz after;
	TimestampTz upto;

	range->now = JobIdemNow();
	range->turn = AllocSetContextCreate(CurrentMemoryContext, "job_idem plan row",
										ALLOCSET_DEFAULT_SIZES);
	JobIdemReadPolicy(range->job->job_id, range->now, &range->policy);
	JobIdemReadSchedule(range->job->job_id, &range->schedule);
	if (range->schedule.n > 0)
	{
		range->defined = range->schedule.versions[0].from;
		range->schedule.versions[0].from = DT_NOBEGIN;
	}
	margin = Margin(&range->schedule);
	after = (range->from - margin) * USECS_PER_DAY;
	upto = (range->to + margin) * USECS_PER_DAY;
	JobIdemFiresBetween(&range->schedule, Max(after, MIN_TIMESTAMP), Min(upto, END_TIMESTAMP - 1),
						&range->fires);
	KeepDates(range);
}

/* The run of a fire; false if there is none. */
static bool
FindRun(const Range *range, const JobIdemFire *fire, int64 *run_id, char **state, char **reason)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(range->job->job_id));
	JobIdemArg(&args, CStringGetTextDatum(JobIdemFireKey(fire)));
	if (JobIdemRunLatest(&find_run, &args, 1) == 0)
	{
		JobIdemFreeRows();
		return false;
	}
	*run_id = JobIdemInt64(0, 1);
	*state = JobIdemText(0, 2, CurrentMemoryContext);
	*reason = JobIdemText(0, 3, CurrentMemoryContext);
	JobIdemFreeRows();
	return true;
}

/* A row of plan or backfill; reason may be NULL, and run_id 0. */
static void
PutRow(ReturnSetInfo *rows, const JobIdemFire *fire, const char *outcome, const char *reason,
	   int64 run_id)
{
	Datum values[6];
	bool nulls[6] = {false, false, false, false, reason == NULL, run_id == 0};

	values[0] = DateADTGetDatum(fire->business_date);
	values[1] = CStringGetTextDatum(JobIdemFireKey(fire));
	values[2] = TimestampTzGetDatum(fire->at);
	values[3] = CStringGetTextDatum(outcome);
	values[4] = reason ? CStringGetTextDatum(reason) : (Datum) 0;
	values[5] = Int64GetDatum(run_id);
	tuplestore_putvalues(rows->setResult, rows->setDesc, values, nulls);
}

/* The later fires of a date add nothing. */
static bool
IsRepeated(const JobIdemFires *fires, int i)
{
	return i > 0 && !fires->fires[i].per_fire && !fires->fires[i - 1].per_fire &&
		fires->fires[i].business_date == fires->fires[i - 1].business_date;
}

/* What will become, or has become, of a fire, in a word. */
static const char *
Outlook(const Range *range, const JobIdemFire *fire, TimestampTz newest, const char **reason)
{
	JobIdemRunState state;

	if (fire->at <= range->defined)
	{
		*reason = "before the job was defined; backfill opens it";
		return "not planned";
	}
	/* one that is still to come will be found on time */
	state = JobIdemDecide(&range->policy, fire, newest, Max(range->now, fire->at), reason);
	if (state == RUN_SKIPPED)
		return "will be skipped";
	if (state == RUN_EXPIRED)
		return "will expire";
	return fire->at > range->now ? "will run" : "is due";
}

static void
PlanRow(const Range *range, const JobIdemFire *fire, TimestampTz newest, ReturnSetInfo *rows)
{
	MemoryContext old = MemoryContextSwitchTo(range->turn);
	char *outcome;
	char *reason = NULL;
	int64 run_id = 0;

	CHECK_FOR_INTERRUPTS();
	if (!FindRun(range, fire, &run_id, &outcome, &reason))
		outcome = (char *) Outlook(range, fire, newest, (const char **) &reason);
	PutRow(rows, fire, outcome, reason, run_id);
	MemoryContextSwitchTo(old);
	MemoryContextReset(range->turn);
}

PG_FUNCTION_INFO_V1(job_idem_plan);
Datum
job_idem_plan(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	Range range = {0};
	JobIdemFire newest = {.at = DT_NOBEGIN};
	JobIdemScope scope;
	int i;

	ReadRange(fcinfo, &range);
	InitMaterializedSRF(fcinfo, 0);
	JobIdemEnter(&scope);
	range.job = JobIdemJobByName(name);
	JobIdemRequire(range.job->job_id, range.job->owner, range.job->name, RIGHT_VIEW);
	FindFires(&range);
	(void) JobIdemNewestFire(&range.schedule, range.policy.from, range.now, &newest);
	for (i = 0; i < range.fires.n; i++)
		if (!IsRepeated(&range.fires, i))
			PlanRow(&range, &range.fires.fires[i], newest.at,
					(ReturnSetInfo *) fcinfo->resultinfo);
	JobIdemLeave(&scope);
	return (Datum) 0;
}

/* A backfill under way: the runs it has opened, of which only so many are to be at work at once. */
typedef struct Backfill
{
	Range range;
	bool dry_run;
	int parallel; /* 0: any number */
	int64 *opened;
	int n_opened;
} Backfill;

static void
BackfillOne(Backfill *backfill, const JobIdemFire *fire, ReturnSetInfo *rows)
{
	int64 waits_for = 0;
	int64 run_id = 0;
	char *state;
	char *reason = NULL;

	if (FindRun(&backfill->range, fire, &run_id, &state, &reason))
	{
		PutRow(rows, fire, "known", psprintf("its run is %s", state), run_id);
		return;
	}
	if (fire->closed)
	{
		PutRow(rows, fire, "closed", "closed day of the calendar", 0);
		return;
	}
	if (backfill->parallel > 0 && backfill->n_opened >= backfill->parallel)
		waits_for = backfill->opened[backfill->n_opened - backfill->parallel];
	if (!backfill->dry_run)
		run_id = JobIdemPlanOne(backfill->range.job, &backfill->range.policy, fire, RUN_RUNNING,
								NULL, waits_for);
	backfill->opened[backfill->n_opened++] = run_id;
	PutRow(rows, fire, "new", NULL, run_id);
}

static void
ReadBackfill(FunctionCallInfo fcinfo, Backfill *backfill)
{
	ReadRange(fcinfo, &backfill->range);
	/* in doubt nothing is written */
	backfill->dry_run = PG_ARGISNULL(3) || PG_GETARG_BOOL(3);
	if (!PG_ARGISNULL(5) && PG_GETARG_INT32(5) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_parallel must be at least 1"),
				 errhint("Leave it out to let all runs go at once.")));
	backfill->parallel = PG_ARGISNULL(5) ? 0 : PG_GETARG_INT32(5);
}

/*
 * Runs of a job that must not overlap go one by one, whatever the caller says; and one that lets
 * others be skipped must not lose the dates that were asked for.
 */
static void
HeedOverlap(Backfill *backfill)
{
	if (backfill->range.policy.overlap_skips || backfill->range.policy.overlap_waits)
		backfill->parallel = 1;
	backfill->range.policy.overlap_skips = false;
}

PG_FUNCTION_INFO_V1(job_idem_backfill);
Datum
job_idem_backfill(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	bool newest_first = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);
	Backfill backfill = {0};
	JobIdemFires *fires = &backfill.range.fires;
	JobIdemScope scope;
	JobIdemJob *job;
	int i;

	ReadBackfill(fcinfo, &backfill);
	InitMaterializedSRF(fcinfo, 0);
	JobIdemEnter(&scope);
	job = JobIdemJobByName(name);
	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_OPERATE);
	if (!backfill.dry_run)
		job = JobIdemShareJob(job->job_id, true);
	backfill.range.job = job;
	if (!job->live)
		ereport(ERROR,
				(errcode(ERRCODE_JI_RUN_NOT_OPEN),
				 errmsg("job \"%s\" is not enabled", job->name),
				 errhint("Define it again, or see job_idem.jobs for what is wrong with it.")));
	FindFires(&backfill.range);
	HeedOverlap(&backfill);
	backfill.opened = palloc(Max(fires->n, 1) * sizeof(int64));
	for (i = 0; i < fires->n; i++)
	{
		int at = newest_first ? fires->n - 1 - i : i;

		CHECK_FOR_INTERRUPTS();
		if (fires->fires[at].at > backfill.range.now || IsRepeated(fires, at))
			continue;
		MemoryContextSwitchTo(backfill.range.turn);
		BackfillOne(&backfill, &fires->fires[at], (ReturnSetInfo *) fcinfo->resultinfo);
		MemoryContextReset(backfill.range.turn);
	}
	JobIdemLeave(&scope);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(job_idem_unblock_run);
Datum
job_idem_unblock_run(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	char *reason = JobIdemReasonArgument(fcinfo, 1, true);
	JobIdemScope scope;
	JobIdemRunRow run;
	JobIdemJob *job;
	bool blocked;

	JobIdemEnter(&scope);
	job = JobIdemJobOfRun(run_id, RIGHT_OPERATE);
	JobIdemGetRun(run_id, RUN_FOR_UPDATE, &run);
	blocked = run.state == RUN_BLOCKED;
	if (JobIdemRunStateEnded(run.state))
		JobIdemRunNotOpen(&run, "Only a blocked run can be unblocked.");
	if (blocked)
		JobIdemUnblock(job, run_id, "unblock_run", reason);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(blocked);
}
