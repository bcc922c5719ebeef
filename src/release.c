/*
 * release.c - blocked runs go on when what they wait for is over: upstreams, and the run before
 * where the job's runs must not overlap.
 *
 * Asked again and again, by tick, idle claims and finish, and always after the run's row is locked,
 * by trying: two upstreams that finish in overlapping transactions each miss the other, and the
 * next look finds both.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "event.h"
#include "lookup.h"
#include "open.h"
#include "release.h"
#include "spi.h"
#include "upstream.h"

/* blocked runs that one call looks at; tick meets the others */
#define AT_ONCE 100

/* the run before this one; what was cancelled while it waited has left the line, which closes up */
JOB_IDEM_STATEMENT(predecessor,
				   "WITH RECURSIVE line AS ("
				   "  SELECT waits_for FROM job_idem.run WHERE run_id = $1"
				   "  UNION ALL"
				   "  SELECT r.waits_for FROM line JOIN job_idem.run r ON r.run_id ="
				   "   line.waits_for WHERE r.state = 'cancelled')"
				   " SELECT p.state FROM line JOIN job_idem.run p ON p.run_id = line.waits_for"
				   " WHERE p.state <> 'cancelled'",
				   1, INT8OID);
JOB_IDEM_STATEMENT(go_on,
				   "UPDATE job_idem.run SET state = $2, reason = NULL, waits_for = NULL"
				   " WHERE run_id = $1 AND state = 'blocked'",
				   2, INT8OID, TEXTOID);
JOB_IDEM_STATEMENT(find_waiting,
				   "SELECT run_id FROM job_idem.run WHERE state = 'blocked'"
				   " AND job_id = ANY (ARRAY(SELECT $1 UNION ALL SELECT job_id"
				   "  FROM job_idem.dependency WHERE upstream_job_id = $1)) ORDER BY run_id",
				   1, INT8OID);

/* Is the run before this one over? Partial is not: what must advance in order would have a hole. */
static bool
MayFollow(int64 run_id)
{
	JobIdemArgs args = {.n = 0};
	JobIdemRunState state;

	JobIdemArg(&args, Int64GetDatum(run_id));
	if (JobIdemRunLatest(&predecessor, &args, 1) == 0)
		return true;
	state = JobIdemRunStateOf(JobIdemText(0, 1, CurrentMemoryContext));
	return JobIdemRunStateEnded(state) && state != RUN_PARTIAL;
}

/* Lets a blocked run, which the caller has locked, go on. */
void
JobIdemUnblock(const JobIdemJob *job, int64 run_id, const char *verb, const char *reason)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, CStringGetTextDatum(JobIdemRunStateName(JobIdemFirstState(job))));
	if (JobIdemRunLatest(&go_on, &args, 0) == 1)
		JobIdemEvent(verb, job->job_id, run_id, NULL, NULL, reason);
}

/* True if the run was blocked, could be had, and goes on now. */
bool
JobIdemRelease(int64 run_id)
{
	JobIdemRunRow run;
	JobIdemJob *job;

	if (!JobIdemFindRun(run_id, RUN_TRY_UPDATE, &run) || run.state != RUN_BLOCKED)
		return false;
	job = JobIdemJobById(run.job_id);
	if (!MayFollow(run_id) || JobIdemUpstreamReason(job, run.business_date) != NULL)
		return false;
	JobIdemUnblock(job, run_id, "release", NULL);
	return true;
}

/* The blocked runs of a job, and of those that depend on it. */
void
JobIdemReleaseWaiting(int64 job_id)
{
	JobIdemArgs args = {.n = 0};
	int64 runs[AT_ONCE];
	int n;
	int i;

	JobIdemArg(&args, Int64GetDatum(job_id));
	n = (int) JobIdemRunLatest(&find_waiting, &args, AT_ONCE);
	for (i = 0; i < n; i++)
		runs[i] = JobIdemInt64(i, 1);
	for (i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) JobIdemRelease(runs[i]);
	}
}
