/*
 * zone.c - time zones: which there are, and how local time and instants belong together.
 *
 * Pure: zone and instant are arguments. A local time is counted like an instant, in seconds since
 * 1970-01-01 00:00, but of the clocks on the wall. These are sometimes put forward, which leaves a
 * gap of local times that never are, or back, which repeats some. Seen from the local times two
 * questions have an answer for all of them, whatever the clocks do: at which instant was it first
 * that late (JobIdemZoneFirst), and how late has it been by then (JobIdemZoneLatest). Each never
 * falls when its argument grows, and
 *
 *   JobIdemZoneFirst(local) <= at   if and only if   local <= JobIdemZoneLatest(at)
 */
#include "postgres.h"

#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "zone.h"

#define EPOCH_DAYS (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)

/*
 * NULL for a name that is none of the zone database. The colon keeps the server from reading any
 * name with a number in it as a zone of its own making: Europe/Pari5 would be five hours west of
 * UTC, and so would UTC+5.
 */
pg_tz *
JobIdemZone(const char *name)
{
	char file[TZ_STRLEN_MAX + 2];
	pg_tz *zone;

	if (name[0] == ':' || strlen(name) >= TZ_STRLEN_MAX)
		return NULL;
	snprintf(file, sizeof(file), ":%s", name);
	zone = pg_tzset(file);
	/* not one that counts leap seconds */
	return zone != NULL && pg_tz_acceptable(zone) ? zone : NULL;
}

JobIdemZoneSpan
JobIdemZoneSpanAt(pg_tz *zone, pg_time_t at)
{
	JobIdemZoneSpan span;
	pg_time_t boundary;
	long offset;
	long next_offset;
	int is_dst;
	int next_is_dst;
	int answer;

	answer = pg_next_dst_boundary(&at, &offset, &is_dst, &boundary, &next_offset, &next_is_dst,
								  zone);
	if (answer < 0)
		elog(ERROR, "time zone \"%s\" cannot be read", pg_get_timezone_name(zone));
	span.offset = offset;
	span.end = answer == 0 ? PG_INT64_MAX : boundary;
	return span;
}

/*
 * The first instant at which the local time is this one or later: its first occurrence, or the end
 * of the gap it lies in.
 */
pg_time_t
JobIdemZoneFirst(pg_tz *zone, int64 local)
{
	pg_time_t at = local - JOB_IDEM_ZONE_REACH;

	for (;;)
	{
		JobIdemZoneSpan span = JobIdemZoneSpanAt(zone, at);

		at = Max(at, local - span.offset);
		if (at < span.end)
			return at;
		at = span.end;
	}
}

/* The latest local time that there was at this instant or before it. */
int64
JobIdemZoneLatest(pg_tz *zone, pg_time_t at)
{
	pg_time_t from = at - 2 * JOB_IDEM_ZONE_REACH;
	int64 latest = PG_INT64_MIN;

	while (from <= at)
	{
		JobIdemZoneSpan span = JobIdemZoneSpanAt(zone, from);

		latest = Max(latest, Min(at, span.end - 1) + span.offset);
		from = span.end;
	}
	return latest;
}

/* Rounds down, unlike C. */
int64
JobIdemFloorDiv(int64 number, int64 by)
{
	return number / by - (number % by < 0 ? 1 : 0);
}

/* The second that an instant lies in. */
pg_time_t
JobIdemSeconds(TimestampTz at)
{
	return JobIdemFloorDiv(at, USECS_PER_SEC) + (int64) EPOCH_DAYS * SECS_PER_DAY;
}

/* False if there is no such timestamp. */
bool
JobIdemFromSeconds(pg_time_t seconds, TimestampTz *at)
{
	int64 since = seconds - (int64) EPOCH_DAYS * SECS_PER_DAY;

	if (since < MIN_TIMESTAMP / USECS_PER_SEC || since >= END_TIMESTAMP / USECS_PER_SEC)
		return false;
	*at = since * USECS_PER_SEC;
	return true;
}

/* What the calendar on the wall says at a finite instant. */
DateADT
JobIdemLocalDate(TimestampTz at, pg_tz *zone)
{
	pg_time_t seconds = JobIdemSeconds(at);
	int64 local = seconds + JobIdemZoneSpanAt(zone, seconds).offset;

	return (DateADT) (JobIdemFloorDiv(local, SECS_PER_DAY) - EPOCH_DAYS);
}
