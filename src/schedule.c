/*
 * schedule.c - the fires of a job: which instants its schedule plans, and for which business dates.
 *
 * A job's versions each plan the time that they were in force, so that an edit never fires the
 * past, and what the old schedule still owes is owed by the old schedule. A fire on a closed day of
 * the calendar does not take place, or moves, at its time of day, to the next or previous open day.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "calendar.h"
#include "cron.h"
#include "job_idem.h"
#include "open.h"
#include "schedule.h"
#include "spi.h"
#include "zone.h"

/* instants of one look, so that one per second does not fill the memory */
#define MAX_FIRES 1000000

JOB_IDEM_STATEMENT(read_versions,
				   "SELECT v.version, greatest(v.valid_from, j.plan_from),"
				   "  coalesce(lead(v.valid_from) OVER (ORDER BY v.version), 'infinity'),"
				   "  v.definition->>'schedule', v.definition->>'timezone',"
				   "  v.definition->>'calendar', (v.definition->>'business_date_offset')::int4,"
				   "  v.definition->>'run_per' = 'fire', v.definition->>'closed_day'"
				   " FROM job_idem.job_version v JOIN job_idem.job j USING (job_id)"
				   " WHERE v.job_id = $1 ORDER BY v.version",
				   1, INT8OID);

/* Of a version that is in force no more a schedule may be one that is understood no more. */
static void
ReadCron(JobIdemScheduleVersion *version, const char *schedule, const char *zone)
{
	JobIdemCronError error;

	version->has_schedule = schedule != NULL;
	if (schedule == NULL)
		return;
	version->zone = JobIdemZone(zone);
	if (version->zone == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is not known any more", zone),
				 errhint("Define the job again, in a zone that the server has.")));
	if (!JobIdemCronParse(schedule, &version->cron, &error))
		ereport(ERROR,
				(errcode(ERRCODE_JI_INVALID_DEFINITION),
				 errmsg("schedule \"%s\" is not understood", schedule),
				 errdetail("%s, at character %d.", error.message, error.position),
				 errhint("Define the job again.")));
}

static int
ClosedDay(const char *word)
{
	if (strcmp(word, "skip") == 0)
		return 0;
	return strcmp(word, "next") == 0 ? 1 : -1;
}

/* All versions of the job, with what they plan. */
void
JobIdemReadSchedule(int64 job_id, JobIdemSchedule *schedule)
{
	JobIdemArgs args = {.n = 0};
	int i;

	JobIdemArg(&args, Int64GetDatum(job_id));
	schedule->n = (int) JobIdemRunLatest(&read_versions, &args, 0);
	schedule->versions = palloc0(Max(schedule->n, 1) * sizeof(JobIdemScheduleVersion));
	for (i = 0; i < schedule->n; i++)
	{
		JobIdemScheduleVersion *version = &schedule->versions[i];
		bool is_null;

		version->version = JobIdemInt32(i, 1);
		version->from = DatumGetTimestampTz(JobIdemColumn(i, 2, &is_null));
		version->to = DatumGetTimestampTz(JobIdemColumn(i, 3, &is_null));
		version->calendar = JobIdemText(i, 6, CurrentMemoryContext);
		version->offset = JobIdemInt32(i, 7);
		version->per_fire = JobIdemBool(i, 8);
		version->closed_day = ClosedDay(JobIdemText(i, 9, CurrentMemoryContext));
		ReadCron(version, JobIdemText(i, 4, CurrentMemoryContext),
				 JobIdemText(i, 5, CurrentMemoryContext));
	}
}

/* The run key of a fire: its business date, or the instant in UTC. */
char *
JobIdemFireKey(const JobIdemFire *fire)
{
	struct pg_tm tm;
	fsec_t fsec;

	if (!fire->per_fire)
		return JobIdemRunKeyOf(fire->business_date);
	if (timestamp2tm(fire->at, NULL, &tm, &fsec, NULL, NULL) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("planned instant out of range"),
				 errhint("Give the job a schedule of this age.")));
	return psprintf("%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year, tm.tm_mon, tm.tm_mday,
					tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/* What becomes of the fires of a local day. Fires of one day follow each other. */
typedef struct Day
{
	bool known;
	DateADT day;
	DateADT moved; /* the day that its fires take place on */
	bool closed;
	DateADT business_date;
} Day;

static void
LookUpDay(const JobIdemScheduleVersion *version, DateADT day, Day *found)
{
	found->known = true;
	found->day = day;
	found->moved = day;
	found->closed = version->calendar != NULL && !JobIdemCalendarIsOpen(version->calendar, day);
	if (found->closed && version->closed_day != 0)
	{
		found->moved = version->closed_day > 0
			? JobIdemCalendarNextOpen(version->calendar, day)
			: JobIdemCalendarPreviousOpen(version->calendar, day);
		found->closed = false;
	}
	if (version->offset == 0)
		found->business_date = found->moved;
	else if (version->calendar == NULL)
		found->business_date = found->moved + version->offset;
	else
		found->business_date = JobIdemCalendarShift(version->calendar, found->moved,
													version->offset);
}

/* The instant of the same time of day on another local day. */
static TimestampTz
Move(TimestampTz at, pg_tz *zone, int64 days)
{
	JobIdemZoneSpan span = JobIdemZoneSpanAt(zone, JobIdemSeconds(at));
	int64 local = JobIdemSeconds(at) + span.offset + days * SECS_PER_DAY;
	TimestampTz moved;

	return JobIdemFromSeconds(JobIdemZoneFirst(zone, local), &moved) ? moved : at;
}

/*
 * Where to begin, and to end, to look for the fires that take place between two instants: those
 * that move come from the closed days before, or after, them.
 */
static TimestampTz
LookFrom(const JobIdemScheduleVersion *version, TimestampTz after)
{
	DateADT day;

	if (version->calendar == NULL || version->closed_day <= 0)
		return after;
	day = JobIdemLocalDate(after, version->zone);
	return Move(after, version->zone,
				JobIdemCalendarPreviousOpen(version->calendar, day - 1) - day);
}

static TimestampTz
LookTo(const JobIdemScheduleVersion *version, TimestampTz upto)
{
	DateADT day;

	if (version->calendar == NULL || version->closed_day >= 0)
		return upto;
	day = JobIdemLocalDate(upto, version->zone);
	return Move(upto, version->zone,
				JobIdemCalendarNextOpen(version->calendar, day + 1) - day);
}

static void
AddFire(JobIdemFires *fires, const JobIdemScheduleVersion *version, const Day *day, TimestampTz at)
{
	JobIdemFire *fire;

	if (fires->n == MAX_FIRES)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("the schedule has more than %d instants in that time", MAX_FIRES),
				 errhint("Ask for fewer dates at a time.")));
	if (fires->n == fires->size)
	{
		fires->size *= 2;
		fires->fires = repalloc_huge(fires->fires, fires->size * sizeof(JobIdemFire));
	}
	fire = &fires->fires[fires->n++];
	fire->at = at;
	fire->business_date = day->business_date;
	fire->closed = day->closed;
	fire->per_fire = version->per_fire;
	fire->version = version->version;
}

static int
ByTime(const void *a, const void *b)
{
	TimestampTz left = ((const JobIdemFire *) a)->at;
	TimestampTz right = ((const JobIdemFire *) b)->at;

	return left < right ? -1 : left > right ? 1
											: 0;
}

/* Adds the fires of one version that take place in (after, upto]. */
static void
AddVersion(const JobIdemScheduleVersion *version, TimestampTz after, TimestampTz upto,
		   JobIdemFires *fires)
{
	TimestampTz at = LookFrom(version, after);
	TimestampTz end = LookTo(version, upto);
	Day day = {.known = false};
	int first = fires->n;

	while (JobIdemCronNext(&version->cron, version->zone, at, &at) && at <= end)
	{
		DateADT local = JobIdemLocalDate(at, version->zone);
		TimestampTz when = at;

		CHECK_FOR_INTERRUPTS();
		if (!day.known || day.day != local)
			LookUpDay(version, local, &day);
		if (day.moved != local)
			when = Move(at, version->zone, day.moved - local);
		if (when > after && when <= upto)
			AddFire(fires, version, &day, when);
	}
	if (version->closed_day != 0)
		qsort(fires->fires + first, fires->n - first, sizeof(JobIdemFire), ByTime);
}

/* The fires in (after, upto], in order of time. */
void
JobIdemFiresBetween(const JobIdemSchedule *schedule, TimestampTz after, TimestampTz upto,
					JobIdemFires *fires)
{
	int i;

	fires->size = 64;
	fires->fires = palloc(fires->size * sizeof(JobIdemFire));
	fires->n = 0;
	for (i = 0; i < schedule->n; i++)
	{
		const JobIdemScheduleVersion *version = &schedule->versions[i];
		TimestampTz from = Max(after, version->from);
		TimestampTz to = Min(upto, version->to);

		if (version->has_schedule && from < to)
			AddVersion(version, from, to, fires);
	}
}
