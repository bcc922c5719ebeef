/*
 * cron_next.c - the instants of a schedule: the next after one, and the previous before one.
 *
 * Pure. A schedule names local times: those of its times of day on its days. They are found by
 * calendar, month by month and set by set, never by trying instants one after another. Which
 * instants belong to them depends on the hour field:
 *
 * - Planned times (all but * and steps of it): each fires once, at the first instant at which the
 *   local time is that late. So what lies in a gap fires at its end, all of it together, and what
 *   is repeated fires the first time. A date that a zone left out is a long gap.
 * - Elapsed time (the hour is * or a step of it): every instant whose local time is named fires, so
 *   twice when it is repeated, and never for a time in a gap.
 *
 * Seconds count from 1970 as in zone.c.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "cron.h"
#include "zone.h"

/*
 * How far to look for a day. The rarest is a 29 February on a given day of the week, which takes
 * up to 40 years.
 */
#define SEARCH_MONTHS (41 * MONTHS_PER_YEAR)

/* The least number of the set that is not less; -1 if there is none. */
static int
FromBelow(uint64 set, int least)
{
	set &= ~UINT64CONST(0) << least;
	return set == 0 ? -1 : pg_rightmost_one_pos64(set);
}

/* The greatest number of the set that is not greater; -1 if there is none. */
static int
FromAbove(uint64 set, int greatest)
{
	if (greatest < 0)
		return -1;
	set &= ~UINT64CONST(0) >> (63 - greatest);
	return set == 0 ? -1 : pg_leftmost_one_pos64(set);
}

static int
TimeOfDay(int hour, int minute, int second)
{
	return hour * SECS_PER_HOUR + minute * SECS_PER_MINUTE + second;
}

/* The first time of day that is not earlier, in seconds; -1 if there is none. */
static int
NextTime(const JobIdemCron *cron, int from)
{
	int hour = FromBelow(cron->hours, from / SECS_PER_HOUR);
	int minute = FromBelow(cron->minutes, from / SECS_PER_MINUTE % MINS_PER_HOUR);
	int second = FromBelow(cron->seconds, from % SECS_PER_MINUTE);

	if (hour == from / SECS_PER_HOUR)
	{
		if (minute == from / SECS_PER_MINUTE % MINS_PER_HOUR && second >= 0)
			return TimeOfDay(hour, minute, second);
		minute = FromBelow(cron->minutes, from / SECS_PER_MINUTE % MINS_PER_HOUR + 1);
		if (minute >= 0)
			return TimeOfDay(hour, minute, FromBelow(cron->seconds, 0));
		hour = FromBelow(cron->hours, hour + 1);
	}
	if (hour < 0)
		return -1;
	return TimeOfDay(hour, FromBelow(cron->minutes, 0), FromBelow(cron->seconds, 0));
}

/* The last time of day that is not later. */
static int
PreviousTime(const JobIdemCron *cron, int from)
{
	int hour = FromAbove(cron->hours, from / SECS_PER_HOUR);
	int minute = FromAbove(cron->minutes, from / SECS_PER_MINUTE % MINS_PER_HOUR);
	int second = FromAbove(cron->seconds, from % SECS_PER_MINUTE);

	if (hour == from / SECS_PER_HOUR)
	{
		if (minute == from / SECS_PER_MINUTE % MINS_PER_HOUR && second >= 0)
			return TimeOfDay(hour, minute, second);
		minute = FromAbove(cron->minutes, from / SECS_PER_MINUTE % MINS_PER_HOUR - 1);
		if (minute >= 0)
			return TimeOfDay(hour, minute, FromAbove(cron->seconds, SECS_PER_MINUTE - 1));
		hour = FromAbove(cron->hours, hour - 1);
	}
	if (hour < 0)
		return -1;
	return TimeOfDay(hour, FromAbove(cron->minutes, MINS_PER_HOUR - 1),
					 FromAbove(cron->seconds, SECS_PER_MINUTE - 1));
}

static uint64
DaysOf(const JobIdemCron *cron, int year, int month)
{
	if (((cron->months >> month) & 1) == 0)
		return 0;
	return JobIdemCronDays(cron, day_tab[isleap(year)][month - 1], j2day(date2j(year, month, 1)));
}

/* Moves a Julian day on to the first of the schedule's days that is not earlier. */
static bool
NextDay(const JobIdemCron *cron, int *julian)
{
	int year;
	int month;
	int day;
	int tried;

	j2date(*julian, &year, &month, &day);
	for (tried = 0; tried <= SEARCH_MONTHS; tried++)
	{
		int found = FromBelow(DaysOf(cron, year, month), day);

		if (found >= 0)
		{
			*julian = date2j(year, month, found);
			return true;
		}
		day = 1;
		year += month / MONTHS_PER_YEAR;
		month = month % MONTHS_PER_YEAR + 1;
	}
	return false;
}

/* Moves it back to the last that is not later. */
static bool
PreviousDay(const JobIdemCron *cron, int *julian)
{
	int year;
	int month;
	int day;
	int tried;

	j2date(*julian, &year, &month, &day);
	for (tried = 0; tried <= SEARCH_MONTHS; tried++)
	{
		int found = FromAbove(DaysOf(cron, year, month), day);

		if (found >= 0)
		{
			*julian = date2j(year, month, found);
			return *julian >= 0;
		}
		day = 31;
		year -= month == 1 ? 1 : 0;
		month = month == 1 ? MONTHS_PER_YEAR : month - 1;
	}
	return false;
}

static void
Divide(int64 local, int *julian, int *time)
{
	int64 days = JobIdemFloorDiv(local, SECS_PER_DAY);

	*julian = (int) days + UNIX_EPOCH_JDATE;
	*time = (int) (local - days * SECS_PER_DAY);
}

static int64
LocalTime(int julian, int time)
{
	return (int64) (julian - UNIX_EPOCH_JDATE) * SECS_PER_DAY + time;
}

/* Moves a local time on to the first of the schedule's that is not earlier. */
static bool
NextLocal(const JobIdemCron *cron, int64 *local)
{
	int julian;
	int day;
	int time;

	Divide(*local, &julian, &time);
	/* before the first day that the server can name */
	if (julian < 0)
		julian = time = 0;
	day = julian;
	if (!NextDay(cron, &day))
		return false;
	time = day == julian ? NextTime(cron, time) : NextTime(cron, 0);
	if (time < 0)
	{
		day++;
		if (!NextDay(cron, &day))
			return false;
		time = NextTime(cron, 0);
	}
	*local = LocalTime(day, time);
	return true;
}

/* Moves it back to the last that is not later. */
static bool
PreviousLocal(const JobIdemCron *cron, int64 *local)
{
	int julian;
	int day;
	int time;

	Divide(*local, &julian, &time);
	day = julian;
	if (julian < 0 || !PreviousDay(cron, &day))
		return false;
	time = PreviousTime(cron, day == julian ? time : SECS_PER_DAY - 1);
	if (time < 0)
	{
		day--;
		if (day < 0 || !PreviousDay(cron, &day))
			return false;
		time = PreviousTime(cron, SECS_PER_DAY - 1);
	}
	*local = LocalTime(day, time);
	return true;
}

/*
 * The first instant from `at` on whose local time is one of the schedule's. Clocks that are changed
 * within the next days are followed span by span; if there is nothing in these, no instant later
 * than that has a local time before the one that the calendar finds.
 */
static bool
NextElapsed(const JobIdemCron *cron, pg_tz *zone, pg_time_t at, pg_time_t *found)
{
	for (;;)
	{
		pg_time_t until = at + 3 * JOB_IDEM_ZONE_REACH;
		int64 local;

		CHECK_FOR_INTERRUPTS();
		while (at < until)
		{
			JobIdemZoneSpan span = JobIdemZoneSpanAt(zone, at);

			local = at + span.offset;
			if (!NextLocal(cron, &local))
				return false;
			*found = local - span.offset;
			if (*found < span.end)
				return true;
			at = span.end;
		}
		local = at - JOB_IDEM_ZONE_REACH;
		if (!NextLocal(cron, &local))
			return false;
		at = Max(at, local - JOB_IDEM_ZONE_REACH);
	}
}

/* The last instant up to `at`, found the same way in the days before it. */
static bool
PreviousElapsed(const JobIdemCron *cron, pg_tz *zone, pg_time_t at, pg_time_t *found)
{
	for (;;)
	{
		pg_time_t start = at - 3 * JOB_IDEM_ZONE_REACH;
		pg_time_t from = start;
		bool any = false;
		int64 local;

		CHECK_FOR_INTERRUPTS();
		while (from <= at)
		{
			JobIdemZoneSpan span = JobIdemZoneSpanAt(zone, from);

			local = Min(at, span.end - 1) + span.offset;
			if (PreviousLocal(cron, &local) && local - span.offset >= from)
			{
				*found = local - span.offset;
				any = true;
			}
			from = span.end;
		}
		if (any)
			return true;
		local = start + JOB_IDEM_ZONE_REACH;
		if (!PreviousLocal(cron, &local))
			return false;
		at = Min(start, local + JOB_IDEM_ZONE_REACH);
	}
}

static bool
NextPlanned(const JobIdemCron *cron, pg_tz *zone, pg_time_t at, pg_time_t *found)
{
	int64 local = JobIdemZoneLatest(zone, at - 1) + 1;

	if (!NextLocal(cron, &local))
		return false;
	*found = JobIdemZoneFirst(zone, local);
	return true;
}

static bool
PreviousPlanned(const JobIdemCron *cron, pg_tz *zone, pg_time_t at, pg_time_t *found)
{
	int64 local = JobIdemZoneLatest(zone, at);

	if (!PreviousLocal(cron, &local))
		return false;
	*found = JobIdemZoneFirst(zone, local);
	return true;
}

/* The first instant of the schedule after one; false if no timestamp holds it. */
bool
JobIdemCronNext(const JobIdemCron *cron, pg_tz *zone, TimestampTz after, TimestampTz *next)
{
	pg_time_t at;
	pg_time_t found;
	bool any;

	if (TIMESTAMP_NOT_FINITE(after))
		return false;
	at = JobIdemSeconds(after) + 1;
	any = cron->elapsed ? NextElapsed(cron, zone, at, &found)
						: NextPlanned(cron, zone, at, &found);
	return any && JobIdemFromSeconds(found, next);
}

/* The last instant of the schedule before one; false if no timestamp holds it. */
bool
JobIdemCronPrevious(const JobIdemCron *cron, pg_tz *zone, TimestampTz before,
					TimestampTz *previous)
{
	pg_time_t at;
	pg_time_t found;
	bool any;

	if (TIMESTAMP_NOT_FINITE(before))
		return false;
	at = JobIdemSeconds(before - 1);
	any = cron->elapsed ? PreviousElapsed(cron, zone, at, &found)
						: PreviousPlanned(cron, zone, at, &found);
	return any && JobIdemFromSeconds(found, previous);
}
