/*
 * cron_explain.c - a schedule as a sentence.
 *
 * Made from what was understood, not from what was written: the sentence shows, for example, that
 * two restricted day fields mean either.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "pgtime.h"
#include "port/pg_bitutils.h"

#include "cron.h"

/* With more times of day than these the sentence speaks of hours and minutes. */
#define MAX_TIMES 4
/* From so many on, numbers with the same distance are shown by the distance. */
#define MIN_EVEN 4

#define NEAREST "the day from Monday to Friday nearest to "

#define HAS(set, n) (((set) >> (n)) & 1)

static const char *const month_names[] = {"", "January", "February", "March", "April",
										  "May", "June", "July", "August", "September",
										  "October", "November", "December"};
static const char *const weekday_names[] = {"Sunday", "Monday", "Tuesday", "Wednesday",
											"Thursday", "Friday", "Saturday"};

/* What a set is of. A list of those that go round may run over the end: "Friday to Monday". */
typedef struct Unit
{
	const char *name;
	int min;
	int max;
	bool is_round;
	const char *const *names; /* NULL: numbers */
} Unit;

static const Unit second_unit = {"second", 0, 59, false, NULL};
static const Unit minute_unit = {"minute", 0, 59, false, NULL};
static const Unit hour_unit = {"hour", 0, 23, false, NULL};
static const Unit day_unit = {"day", 1, 31, false, NULL};
static const Unit month_unit = {"month", 1, 12, true, month_names};
static const Unit weekday_unit = {"weekday", 0, 6, true, weekday_names};

static bool
IsFull(uint64 set, const Unit *unit)
{
	return pg_popcount64(set) == unit->max - unit->min + 1;
}

static int
Wrap(int value, const Unit *unit)
{
	int n = unit->max - unit->min + 1;

	return unit->min + (value - unit->min + n) % n;
}

/* Puts what comes before the item number `i` of `n` items. */
static void
Separate(StringInfo out, int i, int n)
{
	if (i > 0)
		appendStringInfoString(out, i == n - 1 ? " and " : ", ");
}

static void
PutValue(StringInfo out, int value, const Unit *unit)
{
	if (unit->names != NULL)
		appendStringInfoString(out, unit->names[value]);
	else
		appendStringInfo(out, "%d", value);
}

static const char *
Ordinal(int n)
{
	static const char *const endings[] = {"th", "st", "nd", "rd"};
	bool is_regular = n % 10 > 3 || n / 10 == 1;

	return psprintf("%d%s", n, endings[is_regular ? 0 : n % 10]);
}

/* Does a run of values begin here, in a list that goes round? */
static bool
Begins(uint64 set, int value, const Unit *unit)
{
	if (!HAS(set, value))
		return false;
	if (value == unit->min && (!unit->is_round || IsFull(set, unit)))
		return true;
	return !HAS(set, Wrap(value - 1, unit));
}

static int
RunLength(uint64 set, int value, const Unit *unit)
{
	int length = 1;

	while (length <= unit->max - unit->min && HAS(set, Wrap(value + length, unit)) &&
		   (unit->is_round || value + length <= unit->max))
		length++;
	return length;
}

/* "1, 2 and 5 to 7"; a run that goes over the end comes last. */
static void
PutList(StringInfo out, uint64 set, const Unit *unit)
{
	int n = 0;
	int i = 0;
	int value;

	/* of two neighbours each is an item, a longer run is one */
	for (value = unit->min; value <= unit->max; value++)
		if (Begins(set, value, unit))
			n += RunLength(set, value, unit) == 2 ? 2 : 1;
	for (value = unit->min; value <= unit->max; value++)
	{
		int length = Begins(set, value, unit) ? RunLength(set, value, unit) : 0;

		if (length == 0)
			continue;
		Separate(out, i++, n);
		PutValue(out, value, unit);
		if (length == 2)
			Separate(out, i++, n);
		else if (length > 2)
			appendStringInfoString(out, " to ");
		if (length > 1)
			PutValue(out, Wrap(value + length - 1, unit), unit);
	}
}

/* The distance between neighbours, if they are enough and it is the same for all; else 0. */
static int
EvenStep(uint64 set)
{
	int first = pg_rightmost_one_pos64(set);
	int last = pg_leftmost_one_pos64(set);
	int n = pg_popcount64(set);
	int step = n < MIN_EVEN ? 0 : (last - first) / (n - 1);
	int value;

	for (value = first; step > 1 && value <= last; value += step)
		if (!HAS(set, value))
			return 0;
	return step > 1 && first + (n - 1) * step == last ? step : 0;
}

/* "every minute", "minute 5", "minutes 5 and 10", "every 5th minute from 0 to 55" */
static void
PutUnits(StringInfo out, uint64 set, const Unit *unit, const char *suffix)
{
	int step = EvenStep(set);

	if (IsFull(set, unit) && unit != &day_unit)
		appendStringInfo(out, "every %s", unit->name);
	else if (step > 0)
		appendStringInfo(out, "every %s %s from %d to %d", Ordinal(step), unit->name,
						 pg_rightmost_one_pos64(set), pg_leftmost_one_pos64(set));
	else
	{
		appendStringInfo(out, "%s%s ", unit->name, pg_popcount64(set) == 1 ? "" : "s");
		PutList(out, set, unit);
	}
	appendStringInfoString(out, suffix);
}

static void
PutTimes(StringInfo out, const JobIdemCron *cron, int n)
{
	bool has_seconds = cron->seconds != 1;
	int i = 0;
	int time;

	for (time = 0; time < SECS_PER_DAY; time++)
	{
		int hour = time / SECS_PER_HOUR;
		int minute = time / SECS_PER_MINUTE % MINS_PER_HOUR;
		int second = time % SECS_PER_MINUTE;

		if (!HAS(cron->hours, hour) || !HAS(cron->minutes, minute) || !HAS(cron->seconds, second))
			continue;
		Separate(out, i++, n);
		appendStringInfo(out, "%02d:%02d", hour, minute);
		if (has_seconds)
			appendStringInfo(out, ":%02d", second);
	}
}

/* The units from the smallest on, up to the one that says all about those above it. */
static void
PutUnitsOfDay(StringInfo out, const JobIdemCron *cron)
{
	bool every_hour = IsFull(cron->hours, &hour_unit);
	bool every_minute = every_hour && IsFull(cron->minutes, &minute_unit);
	bool every_second = every_minute && IsFull(cron->seconds, &second_unit);

	if (cron->seconds != 1)
		PutUnits(out, cron->seconds, &second_unit, every_second ? "" : " of ");
	if (!every_second)
		PutUnits(out, cron->minutes, &minute_unit, every_minute ? "" : " of ");
	if (!every_minute)
		PutUnits(out, cron->hours, &hour_unit, "");
}

static void
PutTimeOfDay(StringInfo out, const JobIdemCron *cron)
{
	int n = pg_popcount64(cron->seconds) * pg_popcount64(cron->minutes) *
		pg_popcount64(cron->hours);

	appendStringInfoString(out, "At ");
	if (n <= MAX_TIMES)
		PutTimes(out, cron, n);
	else
	{
		PutUnitsOfDay(out, cron);
		appendStringInfoChar(out, ',');
	}
}

/* Puts the words between alternatives, and counts them. */
static StringInfo
Or(StringInfo out, int *n)
{
	appendStringInfoString(out, (*n)++ == 0 ? " on " : " or on ");
	return out;
}

static const char *
DayFromLast(int before)
{
	if (before == 0)
		return "the last day of the month";
	return psprintf("the %s day before the last of the month", Ordinal(before));
}

static void
PutDays(StringInfo out, const JobIdemCron *cron, int *n)
{
	int i;

	if (cron->days != 0)
		PutUnits(Or(out, n), cron->days, &day_unit, " of the month");
	for (i = 30; i >= 0; i--)
		if (HAS(cron->days_from_last, i))
			appendStringInfoString(Or(out, n), DayFromLast(i));
	for (i = 1; i <= 31; i++)
		if (HAS(cron->near_days, i))
			appendStringInfo(Or(out, n), NEAREST "day %d of the month", i);
	for (i = 30; i > 0; i--)
		if (HAS(cron->near_from_last, i))
			appendStringInfo(Or(out, n), NEAREST "%s", DayFromLast(i));
	if (HAS(cron->near_from_last, 0))
		appendStringInfoString(Or(out, n), "the last day from Monday to Friday of the month");
}

static void
PutWeekdays(StringInfo out, const JobIdemCron *cron, int *n)
{
	int weekday;
	int i;

	if (cron->weekdays != 0)
		PutList(Or(out, n), cron->weekdays, &weekday_unit);
	for (i = 0; i < JOB_IDEM_CRON_WEEKS; i++)
		for (weekday = 0; weekday < 7; weekday++)
			if (HAS(cron->nth_weekdays[i], weekday))
				appendStringInfo(Or(out, n), "the %s %s of the month", Ordinal(i + 1),
								 weekday_names[weekday]);
	for (weekday = 0; weekday < 7; weekday++)
		if (HAS(cron->last_weekdays, weekday))
			appendStringInfo(Or(out, n), "the last %s of the month", weekday_names[weekday]);
}

static void
PutDate(StringInfo out, const JobIdemCron *cron)
{
	int n = 0;

	if (!cron->any_day)
		PutDays(out, cron, &n);
	if (!cron->any_weekday)
		PutWeekdays(out, cron, &n);
	if (n == 0)
		appendStringInfoString(out, " every day");
	if (IsFull(cron->months, &month_unit))
		return;
	appendStringInfoString(out, n > 1 ? ", in " : " in ");
	PutList(out, cron->months, &month_unit);
}

/* What happens when the clocks of a zone are changed, if they ever are. */
static void
PutZone(StringInfo out, const JobIdemCron *cron, pg_tz *zone)
{
	long offset;

	appendStringInfo(out, ", local time of %s", pg_get_timezone_name(zone));
	if (pg_get_timezone_offset(zone, &offset))
		return;
	if (cron->elapsed)
		appendStringInfoString(out, "; a time that the clocks skip does not fire, one that they"
									" repeat fires both times");
	else
		appendStringInfoString(out, "; a time that the clocks skip fires at the end of the gap,"
									" one that they repeat the first time");
}

/* The sentence, without a period; with a zone it also says what a change of its clocks does. */
char *
JobIdemCronExplain(const JobIdemCron *cron, pg_tz *zone)
{
	StringInfoData out;

	initStringInfo(&out);
	PutTimeOfDay(&out, cron);
	PutDate(&out, cron);
	if (zone != NULL)
		PutZone(&out, cron, zone);
	return out.data;
}
