/*
 * planner.c - plans what is due of a job: every fire gets its row, run, skipped or expired.
 *
 * The plan is the schedule minus the runs there are; planned_to is only a hint that saves looking,
 * and one from the future is no hint. The job's row is locked, by trying, FOR NO KEY UPDATE: an
 * edit is either before or after all of it, and the clock is read after the lock. UNIQUE (job_id,
 * run_key) decides if somebody opens the same run by hand.
 *
 * Fires are looked at oldest first, in windows of time, each business date as a whole. Where the
 * policy may give up late fires, the newest one comes first, so that a long backlog of rows to
 * write does not hold it up; but not where late ones run and must be over before it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "fault.h"
#include "job_idem.h"
#include "open.h"
#include "planner.h"
#include "schedule.h"
#include "spi.h"
#include "upstream.h"

/* fires that one tick looks at, at most, for one job */
#define MAX_FIRES 200000

JOB_IDEM_STATEMENT(lock_job,
				   "SELECT FROM job_idem.job WHERE job_id = $1 FOR NO KEY UPDATE SKIP LOCKED",
				   1, INT8OID);
JOB_IDEM_STATEMENT(read_policy,
				   "SELECT misfire, misfire_grace, coalesce(valid_for, '0'), catch_up_limit,"
				   "  overlap = 'wait', overlap = 'skip', calendar,"
				   "  CASE WHEN planned_to > plan_from AND planned_to <= $2 THEN planned_to"
				   "   ELSE plan_from END,"
				   "  changed_at > CASE WHEN planned_to > plan_from AND planned_to <= $2"
				   "   THEN planned_to ELSE plan_from END"
				   " FROM job_idem.job WHERE job_id = $1",
				   2, INT8OID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(known_keys,
				   "SELECT k.place FROM unnest($2) WITH ORDINALITY AS k (run_key, place)"
				   " WHERE EXISTS (SELECT FROM job_idem.run r"
				   "  WHERE r.job_id = $1 AND r.run_key = k.run_key)",
				   2, INT8OID, TEXTARRAYOID);
JOB_IDEM_STATEMENT(unfinished_run,
				   "SELECT run_id FROM job_idem.run WHERE job_id = $1"
				   " AND state IN ('loading', 'blocked', 'running', 'partial')"
				   " AND (state <> 'partial' OR $2)"
				   " ORDER BY run_id DESC LIMIT 1",
				   2, INT8OID, BOOLOID);
JOB_IDEM_STATEMENT(move_hint, "UPDATE job_idem.job SET planned_to = $2 WHERE job_id = $1", 2,
				   INT8OID, TIMESTAMPTZOID);

static JobIdemMisfire
MisfireOf(const char *word)
{
	if (strcmp(word, "catch_up") == 0)
		return MISFIRE_CATCH_UP;
	if (strcmp(word, "latest") == 0)
		return MISFIRE_LATEST;
	return strcmp(word, "skip") == 0 ? MISFIRE_SKIP : MISFIRE_EXPIRE;
}

void
JobIdemReadPolicy(int64 job_id, TimestampTz now, JobIdemPolicy *policy)
{
	JobIdemArgs args = {.n = 0};
	bool is_null;

	JobIdemArg(&args, Int64GetDatum(job_id));
	JobIdemArg(&args, TimestampTzGetDatum(now));
	(void) JobIdemRunLatest(&read_policy, &args, 1);
	policy->misfire = MisfireOf(JobIdemText(0, 1, CurrentMemoryContext));
	policy->grace = JobIdemIntervalMicros(DatumGetIntervalP(JobIdemColumn(0, 2, &is_null)));
	policy->valid_for = JobIdemIntervalMicros(DatumGetIntervalP(JobIdemColumn(0, 3, &is_null)));
	policy->limit = JobIdemInt32(0, 4);
	policy->overlap_waits = JobIdemBool(0, 5);
	policy->overlap_skips = JobIdemBool(0, 6);
	policy->calendar = JobIdemText(0, 7, CurrentMemoryContext);
	policy->from = DatumGetTimestampTz(JobIdemColumn(0, 8, &is_null));
	policy->edited = JobIdemBool(0, 9);
}

/* The newest fire in (after, upto] that takes place; looks back in ever larger steps. */
bool
JobIdemNewestFire(const JobIdemSchedule *schedule, TimestampTz after, TimestampTz upto,
				  JobIdemFire *newest)
{
	int64 step = USECS_PER_HOUR;
	TimestampTz from = upto;
	JobIdemFires fires;

	while (from > after)
	{
		TimestampTz to = from;
		int i;

		from = to - after > step ? to - step : after;
		JobIdemFiresBetween(schedule, from, to, &fires);
		for (i = fires.n - 1; i >= 0; i--)
			if (!fires.fires[i].closed)
			{
				*newest = fires.fires[i];
				pfree(fires.fires);
				return true;
			}
		pfree(fires.fires);
		step *= 2;
	}
	return false;
}

static JobIdemRunState
Late(const char *what, const char **reason)
{
	*reason = what;
	return RUN_SKIPPED;
}

/* What becomes of a fire that is due: RUN_RUNNING for a run, or RUN_SKIPPED or RUN_EXPIRED. */
JobIdemRunState
JobIdemDecide(const JobIdemPolicy *policy, const JobIdemFire *fire, TimestampTz newest,
			  TimestampTz now, const char **reason)
{
	bool is_newest = fire->at >= newest;
	bool on_time = is_newest && now - fire->at <= policy->grace;

	*reason = NULL;
	if (fire->closed)
		return Late(psprintf("closed day of calendar \"%s\"",
							 policy->calendar ? policy->calendar : ""),
					reason);
	if (on_time)
		return RUN_RUNNING;
	switch (policy->misfire)
	{
		case MISFIRE_CATCH_UP:
			return RUN_RUNNING;
		case MISFIRE_LATEST:
			return is_newest ? RUN_RUNNING : Late("missed; a later one counts", reason);
		case MISFIRE_SKIP:
			return Late("missed", reason);
		case MISFIRE_EXPIRE:
			if (now - fire->at <= policy->valid_for)
				return RUN_RUNNING;
			*reason = "found too late to be of use";
			return RUN_EXPIRED;
	}
	return RUN_RUNNING;
}

/*
 * The unfinished run of the job that was opened last, whatever its date: who waits for that one
 * stands at the end of the line, so that no two ever wait for the same run. 0 if there is none.
 */
static int64
Unfinished(const JobIdemJob *job, bool partial_too)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job->job_id));
	JobIdemArg(&args, BoolGetDatum(partial_too));
	return JobIdemRunLatest(&unfinished_run, &args, 1) == 1 ? JobIdemInt64(0, 1) : 0;
}

/* What the job's other runs say to a new one: it is skipped, or waits. */
static void
HeedOthers(const JobIdemJob *job, const JobIdemPolicy *policy, JobIdemNewRun *run)
{
	int64 other;

	if (policy->overlap_skips)
	{
		other = Unfinished(job, false);
		if (other == 0)
			return;
		run->state = RUN_SKIPPED;
		run->reason = psprintf("run " INT64_FORMAT " was not finished", other);
	}
	else if (policy->overlap_waits && run->waits_for == 0)
		run->waits_for = Unfinished(job, true);
}

/* Writes the row of a fire, and returns its run; 0 if that is there already. */
int64
JobIdemPlanOne(const JobIdemJob *job, const JobIdemPolicy *policy, const JobIdemFire *fire,
			   JobIdemRunState state, const char *reason, int64 waits_for)
{
	JobIdemNewRun run = {
		.run_key = JobIdemFireKey(fire),
		.business_date = fire->business_date,
		.params = {.isnull = true},
		.version = fire->version,
		.state = state,
		.reason = reason,
		.scheduled_at = {.value = TimestampTzGetDatum(fire->at), .isnull = false},
		.waits_for = waits_for,
	};
	int64 run_id;

	if (state == RUN_RUNNING)
	{
		run.state = JobIdemFirstState(job);
		HeedOthers(job, policy, &run);
	}
	if (run.state == JobIdemFirstState(job))
	{
		run.reason = JobIdemUpstreamReason(job, fire->business_date);
		if (run.reason == NULL && run.waits_for != 0)
			run.reason = psprintf("waits for run " INT64_FORMAT, run.waits_for);
		if (run.reason != NULL)
			run.state = RUN_BLOCKED;
	}
	if (!JobIdemInsertRun(job, &run, &run_id))
		return 0;
	if (run.state != RUN_SKIPPED && run.state != RUN_EXPIRED)
		JobIdemCountTrigger(run_id);
	JobIdemFaultPoint("plan");
	return run_id;
}

/* One job being planned. */
typedef struct Planning
{
	JobIdemJob *job;
	JobIdemPolicy policy;
	JobIdemSchedule schedule;
	TimestampTz now;
	TimestampTz newest;
	int written;
	int looked_at;
} Planning;

/* Is there anything left that this tick may do for the job? */
static bool
HasRoom(const Planning *plan)
{
	return plan->written < plan->policy.limit && plan->looked_at < MAX_FIRES;
}

/* The fires with the key of fires[first]: [first, result). */
static int
GroupEnd(const JobIdemFires *fires, int first)
{
	const JobIdemFire *fire = &fires->fires[first];
	int i = first + 1;

	if (fire->per_fire)
		return i;
	while (i < fires->n && !fires->fires[i].per_fire &&
		   fires->fires[i].business_date == fire->business_date)
		i++;
	return i;
}

/* Of the fires of one key, the one that decides: a run, if any of them is one. */
static void
PlanGroup(Planning *plan, const JobIdemFire *fires, int n)
{
	const char *reason;
	const char *why = NULL;
	JobIdemRunState state = RUN_SKIPPED;
	int best = -1;
	int i;

	for (i = 0; i < n && state != RUN_RUNNING; i++)
	{
		JobIdemRunState found = JobIdemDecide(&plan->policy, &fires[i], plan->newest, plan->now,
											  &reason);

		if (best < 0 || found == RUN_RUNNING || (found == RUN_EXPIRED && state == RUN_SKIPPED))
		{
			best = i;
			state = found;
			why = reason;
		}
	}
	if (JobIdemPlanOne(plan->job, &plan->policy, &fires[best], state, why, 0) != 0)
		plan->written++;
}

/* The fires of a window, by key. */
typedef struct Groups
{
	const JobIdemFires *fires;
	int *starts; /* with one more, where the last one ends */
	int n;
	bool *known; /* which have their run */
} Groups;

static void
MarkKnown(const Planning *plan, Groups *groups)
{
	JobIdemArgs args = {.n = 0};
	Datum *keys = palloc(Max(groups->n, 1) * sizeof(Datum));
	ArrayType *array;
	uint64 found;
	uint64 i;

	for (i = 0; i < (uint64) groups->n; i++)
		keys[i] = CStringGetTextDatum(JobIdemFireKey(&groups->fires->fires[groups->starts[i]]));
	array = construct_array(keys, groups->n, TEXTOID, -1, false, TYPALIGN_INT);
	JobIdemArg(&args, Int64GetDatum(plan->job->job_id));
	JobIdemArg(&args, PointerGetDatum(array));
	found = JobIdemRunLatest(&known_keys, &args, 0);
	groups->known = palloc0(Max(groups->n, 1) * sizeof(bool));
	for (i = 0; i < found; i++)
		groups->known[JobIdemInt64(i, 1) - 1] = true;
	JobIdemFreeRows();
}

static void
ReadGroups(const Planning *plan, const JobIdemFires *fires, Groups *groups)
{
	int at = 0;

	groups->fires = fires;
	groups->starts = palloc((fires->n + 1) * sizeof(int));
	groups->n = 0;
	while (at < fires->n)
	{
		groups->starts[groups->n++] = at;
		at = GroupEnd(fires, at);
	}
	groups->starts[groups->n] = fires->n;
	MarkKnown(plan, groups);
}

/*
 * Plans the window (from, to], oldest first, while there is room. Returns up to where everything
 * has its row. The last key of a window that ends before now is left for the next, since more of
 * its fires may come there.
 */
static TimestampTz
PlanWindow(Planning *plan, TimestampTz from, TimestampTz to)
{
	JobIdemFires fires;
	Groups groups;
	int whole;
	int i;

	JobIdemFiresBetween(&plan->schedule, from, to, &fires);
	plan->looked_at += fires.n;
	ReadGroups(plan, &fires, &groups);
	whole = to < plan->now ? groups.n - 1 : groups.n;
	for (i = 0; i < whole; i++)
	{
		const JobIdemFire *first = &fires.fires[groups.starts[i]];

		CHECK_FOR_INTERRUPTS();
		if (!HasRoom(plan) && !groups.known[i])
			return first->at - 1;
		if (!groups.known[i])
			PlanGroup(plan, first, groups.starts[i + 1] - groups.starts[i]);
	}
	return whole < groups.n && groups.n > 0 ? fires.fires[groups.starts[whole]].at - 1 : to;
}

/* May late fires run, and must they do so before the newest one? */
static bool
KeepsOrder(const Planning *plan)
{
	return plan->policy.misfire == MISFIRE_CATCH_UP ||
		(plan->policy.misfire == MISFIRE_EXPIRE && plan->policy.overlap_waits);
}

/* The newest fire first, if it is run: late ones must not hold it up. */
static void
PlanNewest(Planning *plan, const JobIdemFire *newest)
{
	const char *reason;
	int64 run_id;
	JobIdemRunState state = JobIdemDecide(&plan->policy, newest, newest->at, plan->now, &reason);

	if (KeepsOrder(plan) || state != RUN_RUNNING ||
		JobIdemFindRunByKey(plan->job->job_id, JobIdemFireKey(newest), &run_id))
		return;
	if (JobIdemPlanOne(plan->job, &plan->policy, newest, state, reason, 0) != 0)
		plan->written++;
	/* a limit of one row must not leave the late ones for ever */
	plan->policy.limit = Max(plan->policy.limit, 2);
}

/* Windows grow until they have some fires in them, so that neither many nor few cost much. */
static TimestampTz
PlanWindows(Planning *plan)
{
	TimestampTz done = plan->policy.from;
	int64 step = USECS_PER_DAY;
	MemoryContext turn = AllocSetContextCreate(CurrentMemoryContext, "job_idem plan",
											   ALLOCSET_DEFAULT_SIZES);

	while (done < plan->now && HasRoom(plan))
	{
		MemoryContext old = MemoryContextSwitchTo(turn);
		int before = plan->looked_at;
		TimestampTz from = done;

		CHECK_FOR_INTERRUPTS();
		done = PlanWindow(plan, from, plan->now - from > step ? from + step : plan->now);
		if (done <= from || plan->looked_at - before < 1000)
			step *= 2;
		MemoryContextSwitchTo(old);
		MemoryContextReset(turn);
	}
	MemoryContextDelete(turn);
	return done;
}

static void
MoveHint(const Planning *plan, TimestampTz to)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(plan->job->job_id));
	JobIdemArg(&args, TimestampTzGetDatum(to));
	(void) JobIdemRunLatest(&move_hint, &args, 0);
}

/* False: somebody is just changing the job, or it is not to be planned. */
static bool
Begin(Planning *plan, int64 job_id)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(job_id));
	if (JobIdemRunLatest(&lock_job, &args, 1) == 0)
		return false;
	plan->job = JobIdemJobById(job_id);
	if (!plan->job->live || plan->job->paused)
		return false;
	plan->now = JobIdemNow();
	JobIdemReadPolicy(job_id, plan->now, &plan->policy);
	JobIdemReadSchedule(job_id, &plan->schedule);
	return true;
}

/* Plans what is due of a job, and returns how many rows it wrote. */
int
JobIdemPlan(int64 job_id)
{
	Planning plan = {.written = 0};
	JobIdemFire newest;
	TimestampTz done;

	if (!Begin(&plan, job_id))
		return 0;
	if (JobIdemNewestFire(&plan.schedule, plan.policy.from, plan.now, &newest))
	{
		plan.newest = newest.at;
		PlanNewest(&plan, &newest);
	}
	else
		plan.newest = plan.now;
	done = PlanWindows(&plan);
	if (done > plan.policy.from && (plan.looked_at > 0 || plan.policy.edited))
		MoveHint(&plan, done);
	return plan.written;
}
