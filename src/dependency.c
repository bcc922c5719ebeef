/*
 * dependency.c - which job waits for which: add_dependency, drop_dependency.
 *
 * The graph has no cycles, but for jobs that wait for earlier dates of themselves. Two dependencies
 * may close a cycle and have no job in common, so no locks on jobs would keep two transactions from
 * adding one each: whoever adds takes one lock for the whole graph, to the end of his transaction,
 * and looks at the latest committed rows after that. To drop one takes no such lock: it closes
 * nothing, and whoever does not see yet that it is gone only refuses more.
 *
 * Lock order: jobs (by job_id), graph, run lock.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "access.h"
#include "event.h"
#include "job_idem.h"
#include "lock_tag.h"
#include "lookup.h"
#include "open.h"
#include "spi.h"

/* as in the CHECK of the table: ten years */
#define MAX_OFFSET 3660

/* Pairs of a job and one that waits for it, from the upstream job on up; nearest first. */
JOB_IDEM_STATEMENT(find_above,
				   "WITH RECURSIVE above (job_id, below) AS ("
				   "  SELECT $1::bigint, NULL::bigint"
				   "  UNION"
				   "  SELECT d.upstream_job_id, d.job_id"
				   "  FROM above JOIN job_idem.dependency d ON d.job_id = above.job_id"
				   "  WHERE d.upstream_job_id <> d.job_id)"
				   " SELECT job_id, below FROM above",
				   1, INT8OID);
JOB_IDEM_STATEMENT(upsert_dependency,
				   "INSERT INTO job_idem.dependency AS d"
				   "  (job_id, upstream_job_id, date_offset, offset_unit, on_skipped)"
				   " VALUES ($1, $2, $3, $4, $5)"
				   " ON CONFLICT (job_id, upstream_job_id, date_offset) DO UPDATE"
				   "  SET offset_unit = excluded.offset_unit, on_skipped = excluded.on_skipped"
				   "  WHERE d.offset_unit <> excluded.offset_unit"
				   "   OR d.on_skipped <> excluded.on_skipped",
				   5, INT8OID, INT8OID, INT4OID, TEXTOID, TEXTOID);
JOB_IDEM_STATEMENT(delete_dependency,
				   "DELETE FROM job_idem.dependency"
				   " WHERE job_id = $1 AND upstream_job_id = $2 AND date_offset = $3",
				   3, INT8OID, INT8OID, INT4OID);

/* What a caller asks for. */
typedef struct Dependency
{
	JobIdemJob *job;
	JobIdemJob *upstream;
	int32 offset;
	char *unit;
	char *on_skipped;
} Dependency;

static char *
ChoiceArgument(FunctionCallInfo fcinfo, int i, const char *name, const char *one,
			   const char *other)
{
	char *choice = JobIdemTextArgument(fcinfo, i, name);

	if (strcmp(choice, one) != 0 && strcmp(choice, other) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_JI_INVALID_DEFINITION),
				 errmsg("%s must be %s or %s", name, one, other),
				 errdetail("It is \"%s\".", JobIdemShown(choice)),
				 errhint("Give one of the two, or leave it out.")));
	return choice;
}

static int32
OffsetArgument(FunctionCallInfo fcinfo, int i)
{
	int32 offset = JobIdemInt32Argument(fcinfo, i, "date_offset");

	if (offset < -MAX_OFFSET || offset > MAX_OFFSET)
		ereport(ERROR,
				(errcode(ERRCODE_JI_INVALID_DEFINITION),
				 errmsg("date_offset is out of range"),
				 errdetail("It is %d, and must be from %d to %d.", offset, -MAX_OFFSET,
						   MAX_OFFSET),
				 errhint("Give the days between the two business dates.")));
	return offset;
}

/* Finds both jobs, for a caller who may make the one depend on the other. */
static void
FindJobs(Dependency *dep, const char *job, const char *upstream)
{
	dep->job = JobIdemJobByName(job);
	JobIdemRequire(dep->job->job_id, dep->job->owner, dep->job->name, RIGHT_OPERATE);
	dep->upstream = JobIdemJobByName(upstream);
	JobIdemRequire(dep->upstream->job_id, dep->upstream->owner, dep->upstream->name, RIGHT_VIEW);
}

static void
KeepJob(const JobIdemJob *job)
{
	if (JobIdemShareJob(job->job_id, true)->dropped)
		ereport(ERROR,
				(errcode(ERRCODE_JI_JOB_NOT_FOUND),
				 errmsg("job \"%s\" is dropped", job->name),
				 errhint("Define it again with job_idem.define_job.")));
}

/* Keeps both jobs from being dropped until the transaction's end. */
static void
KeepJobs(const Dependency *dep)
{
	bool in_order = dep->job->job_id <= dep->upstream->job_id;

	KeepJob(in_order ? dep->job : dep->upstream);
	KeepJob(in_order ? dep->upstream : dep->job);
}

/* The name of a job on a cycle, as the caller may see it. */
static const char *
NameOnCycle(int64 job_id)
{
	JobIdemJob *job = JobIdemJobById(job_id);

	if (!JobIdemHasRight(job_id, job->owner, RIGHT_VIEW))
		return "(a job of others)";
	return job->name;
}

/* The names of jobs of which each waits for the one before it, back to the first one. */
static void
RefuseCycle(const Dependency *dep, const int64 *path, int n)
{
	StringInfoData names;
	int i;

	initStringInfo(&names);
	for (i = 0; i < n; i++)
		appendStringInfo(&names, "%s -> ", NameOnCycle(path[i]));
	appendStringInfoString(&names, dep->job->name);
	ereport(ERROR,
			(errcode(ERRCODE_JI_INVALID_DEFINITION),
			 errmsg("job \"%s\" cannot depend on job \"%s\": it would wait for itself",
					dep->job->name, dep->upstream->name),
			 errdetail("Each would wait for the one before it: %s.", names.data),
			 errhint("Drop one of these dependencies with job_idem.drop_dependency. What a job may"
					 " wait for is an earlier date of itself, by a negative date_offset.")));
}

/*
 * The way from the job that stands in row `at` of the pairs down to the upstream job, which stands
 * in the first. A job's first row comes after that of the one below it, so the way ends.
 */
static int
FollowDown(const int64 *jobs, const int64 *below, int at, int64 *path)
{
	int n = 0;

	path[n++] = jobs[at];
	while (at > 0)
	{
		int64 next = below[at];
		int row = 0;

		CHECK_FOR_INTERRUPTS();
		while (row < at && jobs[row] != next)
			row++;
		if (row >= at)
			elog(ERROR, "the dependencies above job " INT64_FORMAT " are out of order", jobs[0]);
		path[n++] = next;
		at = row;
	}
	return n;
}

/* Raises JI005 if the upstream job waits for the job, over however many others. */
static void
CheckNoCycle(const Dependency *dep)
{
	JobIdemArgs args = {.n = 0};
	int64 *jobs;
	int64 *below;
	int n;
	int row;

	JobIdemArg(&args, Int64GetDatum(dep->upstream->job_id));
	n = (int) JobIdemRunLatest(&find_above, &args, 0);
	jobs = palloc(n * sizeof(int64));
	below = palloc0(n * sizeof(int64));
	for (row = 0; row < n; row++)
	{
		jobs[row] = JobIdemInt64(row, 1);
		if (row > 0)
			below[row] = JobIdemInt64(row, 2);
	}
	for (row = 0; row < n && jobs[row] != dep->job->job_id; row++)
		;
	if (row < n)
	{
		int64 *path = palloc(n * sizeof(int64));

		RefuseCycle(dep, path, FollowDown(jobs, below, row, path));
	}
}

static bool
Add(const Dependency *dep)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(dep->job->job_id));
	JobIdemArg(&args, Int64GetDatum(dep->upstream->job_id));
	JobIdemArg(&args, Int32GetDatum(dep->offset));
	JobIdemArg(&args, CStringGetTextDatum(dep->unit));
	JobIdemArg(&args, CStringGetTextDatum(dep->on_skipped));
	return JobIdemRunLatest(&upsert_dependency, &args, 0) > 0;
}

/* `rest` is more of the detail, as JSON members, or empty. */
static void
DependencyEvent(const char *verb, const Dependency *dep, const char *rest)
{
	StringInfoData detail;

	initStringInfo(&detail);
	appendStringInfoString(&detail, "{\"upstream\": ");
	escape_json(&detail, dep->upstream->name);
	appendStringInfo(&detail, ", \"date_offset\": %d%s}", dep->offset, rest);
	JobIdemEvent(verb, dep->job->job_id, 0, NULL, detail.data, NULL);
}

PG_FUNCTION_INFO_V1(job_idem_add_dependency);
Datum
job_idem_add_dependency(PG_FUNCTION_ARGS)
{
	char *job = JobIdemTextArgument(fcinfo, 0, "job");
	char *upstream = JobIdemTextArgument(fcinfo, 1, "upstream");
	Dependency dep;
	JobIdemScope scope;
	bool added;

	dep.offset = OffsetArgument(fcinfo, 2);
	dep.on_skipped = ChoiceArgument(fcinfo, 3, "on_skipped", "release", "block");
	dep.unit = ChoiceArgument(fcinfo, 4, "offset_unit", "day", "open_day");
	JobIdemEnter(&scope);
	FindJobs(&dep, job, upstream);
	KeepJobs(&dep);
	JobIdemLock(LOCK_GRAPH, 0, 0, true);
	if (dep.job->job_id != dep.upstream->job_id || dep.offset >= 0)
		CheckNoCycle(&dep);
	added = Add(&dep);
	if (added)
		DependencyEvent("add_dependency", &dep,
						psprintf(", \"offset_unit\": \"%s\", \"on_skipped\": \"%s\"", dep.unit,
								 dep.on_skipped));
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(added);
}

PG_FUNCTION_INFO_V1(job_idem_drop_dependency);
Datum
job_idem_drop_dependency(PG_FUNCTION_ARGS)
{
	char *job = JobIdemTextArgument(fcinfo, 0, "job");
	char *upstream = JobIdemTextArgument(fcinfo, 1, "upstream");
	Dependency dep = {.offset = JobIdemInt32Argument(fcinfo, 2, "date_offset")};
	JobIdemArgs args = {.n = 0};
	JobIdemScope scope;
	bool dropped;

	JobIdemEnter(&scope);
	dep.job = JobIdemJobByName(job);
	JobIdemRequire(dep.job->job_id, dep.job->owner, dep.job->name, RIGHT_OPERATE);
	dep.upstream = JobIdemJobByName(upstream);
	JobIdemArg(&args, Int64GetDatum(dep.job->job_id));
	JobIdemArg(&args, Int64GetDatum(dep.upstream->job_id));
	JobIdemArg(&args, Int32GetDatum(dep.offset));
	dropped = JobIdemRunLatest(&delete_dependency, &args, 0) > 0;
	if (dropped)
		DependencyEvent("drop_dependency", &dep, "");
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(dropped);
}
