/*
 * upstream.c - what a run of a date waits for: the runs of the jobs that its own depends on.
 *
 * Levels, not edges: whoever asks looks at what is committed now, so that no message can be lost.
 * An upstream is done with when it has a run of the date in question and every such run is done,
 * or skipped where the dependency lets that count. Cancelled, expired, partial and missing ones
 * keep what depends on them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/date.h"

#include "calendar.h"
#include "open.h"
#include "spi.h"
#include "upstream.h"

JOB_IDEM_STATEMENT(find_upstreams,
				   "SELECT d.upstream_job_id, u.name, d.date_offset,"
				   "  d.offset_unit = 'open_day', d.on_skipped = 'release', j.calendar"
				   " FROM job_idem.dependency d JOIN job_idem.job u ON u.job_id ="
				   "  d.upstream_job_id JOIN job_idem.job j ON j.job_id = d.job_id"
				   " WHERE d.job_id = $1 ORDER BY d.upstream_job_id, d.date_offset",
				   1, INT8OID);
/* a run that holds things up, or NULL; nothing if there is no run of that date */
JOB_IDEM_STATEMENT(find_state,
				   "SELECT min(state) FILTER (WHERE state <> 'done'"
				   "  AND NOT ($3 AND state = 'skipped'))"
				   " FROM job_idem.run WHERE job_id = $1 AND business_date = $2"
				   " HAVING count(*) > 0",
				   3, INT8OID, DATEOID, BOOLOID);

typedef struct Upstream
{
	int64 job_id;
	char *name;
	int32 offset;
	bool open_days;
	bool skipped_will_do;
	char *calendar;
} Upstream;

static DateADT
UpstreamDate(const Upstream *upstream, DateADT date)
{
	if (upstream->open_days && upstream->calendar != NULL)
		return JobIdemCalendarShift(upstream->calendar, date, upstream->offset);
	return date + upstream->offset;
}

/* NULL, or what is the matter with an upstream. */
static const char *
Holds(const Upstream *upstream, DateADT date)
{
	JobIdemArgs args = {.n = 0};
	DateADT day = UpstreamDate(upstream, date);
	const char *state = "not there yet";

	JobIdemArg(&args, Int64GetDatum(upstream->job_id));
	JobIdemArg(&args, DateADTGetDatum(day));
	JobIdemArg(&args, BoolGetDatum(upstream->skipped_will_do));
	if (JobIdemRunLatest(&find_state, &args, 1) == 1)
	{
		if (JobIdemIsNull(0, 1))
			return NULL;
		state = JobIdemText(0, 1, CurrentMemoryContext);
	}
	return psprintf("waits for job \"%s\" of %s, which is %s", upstream->name,
					JobIdemRunKeyOf(day), state);
}

/* NULL: nothing of its upstreams holds up the job's run of that date; else why it is blocked. */
const char *
JobIdemUpstreamReason(const JobIdemJob *job, DateADT business_date)
{
	JobIdemArgs args = {.n = 0};
	const char *reason = NULL;
	Upstream *upstreams;
	int n;
	int i;

	JobIdemArg(&args, Int64GetDatum(job->job_id));
	n = (int) JobIdemRunLatest(&find_upstreams, &args, 0);
	if (n == 0)
		return NULL;
	upstreams = palloc(n * sizeof(Upstream));
	for (i = 0; i < n; i++)
	{
		upstreams[i].job_id = JobIdemInt64(i, 1);
		upstreams[i].name = JobIdemText(i, 2, CurrentMemoryContext);
		upstreams[i].offset = JobIdemInt32(i, 3);
		upstreams[i].open_days = JobIdemBool(i, 4);
		upstreams[i].skipped_will_do = JobIdemBool(i, 5);
		upstreams[i].calendar = JobIdemText(i, 6, CurrentMemoryContext);
	}
	for (i = 0; i < n && reason == NULL; i++)
		reason = Holds(&upstreams[i], business_date);
	return reason;
}
