/*
 * calendar_define.c - calendars: define, set a day, load days, drop.
 *
 * Whoever changes a calendar locks its row first, so that changes of one calendar take turns; a
 * query of the caller's that lists days has been run by then.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "access.h"
#include "calendar.h"
#include "clock.h"
#include "day_list.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "open.h"
#include "spi.h"

JOB_IDEM_STATEMENT(insert_calendar,
				   "INSERT INTO job_idem.calendar (name, weekly, note, created_at, changed_at)"
				   " VALUES ($1, $2, $3, $4, $4) ON CONFLICT (name) DO NOTHING",
				   4, TEXTOID, INT2OID, TEXTOID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(lock_calendar,
				   "SELECT FROM job_idem.calendar WHERE name = $1 FOR NO KEY UPDATE",
				   1, TEXTOID);
JOB_IDEM_STATEMENT(update_calendar,
				   "UPDATE job_idem.calendar SET weekly = $2, note = $3, changed_at = $4"
				   " WHERE name = $1 AND (weekly <> $2 OR note IS DISTINCT FROM $3)",
				   4, TEXTOID, INT2OID, TEXTOID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(touch_calendar,
				   "UPDATE job_idem.calendar SET changed_at = $2 WHERE name = $1",
				   2, TEXTOID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(delete_calendar, "DELETE FROM job_idem.calendar WHERE name = $1", 1, TEXTOID);
JOB_IDEM_STATEMENT(find_user,
				   "SELECT name FROM job_idem.job WHERE calendar = $1 AND dropped_at IS NULL"
				   " ORDER BY name LIMIT 1",
				   1, TEXTOID);
JOB_IDEM_STATEMENT(delete_all_days,
				   "DELETE FROM job_idem.calendar_day WHERE calendar = $1",
				   1, TEXTOID);
#define SET_IF_OTHER \
	" ON CONFLICT (calendar, day) DO UPDATE SET is_open = excluded.is_open, note = excluded.note" \
	"  WHERE d.is_open <> excluded.is_open OR d.note IS DISTINCT FROM excluded.note"
JOB_IDEM_STATEMENT(set_day,
				   "INSERT INTO job_idem.calendar_day AS d (calendar, day, is_open, note)"
				   " VALUES ($1, $2, $3, $4)" SET_IF_OTHER,
				   4, TEXTOID, DATEOID, BOOLOID, TEXTOID);
JOB_IDEM_STATEMENT(delete_day,
				   "DELETE FROM job_idem.calendar_day WHERE calendar = $1 AND day = $2",
				   2, TEXTOID, DATEOID);

/* The days that a query listed, as parameters of each statement that takes them. */
#define DAY_TYPES DATEARRAYOID, BOOLARRAYOID, TEXTARRAYOID
#define LISTED "unnest($1, $2, $3) WITH ORDINALITY AS u (day, is_open, note, n)"
JOB_IDEM_STATEMENT(insert_listed,
				   "INSERT INTO job_idem.calendar_day (calendar, day, is_open, note)"
				   " SELECT $4, u.day, u.is_open, u.note FROM " LISTED
				   " ON CONFLICT (calendar, day) DO NOTHING",
				   4, DAY_TYPES, TEXTOID);
/* Like the one above, lookups by the key and no join, whatever the planner believes. */
JOB_IDEM_STATEMENT(change_listed,
				   "INSERT INTO job_idem.calendar_day AS d (calendar, day, is_open, note)"
				   " SELECT DISTINCT $4, u.day, u.is_open, u.note FROM " LISTED SET_IF_OTHER,
				   4, DAY_TYPES, TEXTOID);
JOB_IDEM_STATEMENT(delete_unlisted,
				   "DELETE FROM job_idem.calendar_day WHERE calendar = $2"
				   " AND day NOT IN (SELECT unnest($1))",
				   2, DATEARRAYOID, TEXTOID);

static void
RequireOperator(void)
{
	if (!JobIdemHasRight(0, InvalidOid, RIGHT_OPERATE))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to change calendars"),
				 errdetail("Role \"%s\" is no operator of all jobs, which share them.",
						   JobIdemCallerName()),
				 errhint("The extension's owner may call job_idem.grant_access.")));
}

static char *
NameArgument(FunctionCallInfo fcinfo, int i)
{
	char *name = JobIdemTextArgument(fcinfo, i, "name");

	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of a calendar must not be empty"),
				 errhint("Give it a name.")));
	if (strlen(name) > JOB_IDEM_MAX_JOB_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("the name of a calendar is too long"),
				 errdetail("It has %zu bytes, at most %d are allowed.", strlen(name),
						   JOB_IDEM_MAX_JOB_NAME),
				 errhint("Use a shorter name.")));
	return name;
}

/* A text of days of the week, and how far it has been read. */
typedef struct Reader
{
	const char *whole;
	const char *at;
} Reader;

static void
RefuseOpenDays(const Reader *reader, const char *expected)
{
	int character = pg_mbstrlen_with_len(reader->whole, reader->at - reader->whole) + 1;

	ereport(ERROR,
			(errcode(ERRCODE_JI_INVALID_DEFINITION),
			 errmsg("open_days \"%s\" cannot be read", JobIdemShown(reader->whole)),
			 errdetail("At character %d, %s was expected.", character, expected),
			 errhint("Write days and ranges of days, as in MON-FRI or SUN-TUE,THU, or NONE.")));
}

static void
SkipBlanks(Reader *reader)
{
	while (*reader->at == ' ')
		reader->at++;
}

/* Reads a day and the blanks around it; Monday is 0. */
static int
ReadDay(Reader *reader)
{
	static const char *const names[] = {"MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"};
	int i;

	SkipBlanks(reader);
	for (i = 0; i < (int) lengthof(names); i++)
	{
		if (pg_strncasecmp(reader->at, names[i], 3) != 0)
			continue;
		reader->at += 3;
		SkipBlanks(reader);
		return i;
	}
	RefuseOpenDays(reader, "one of MON, TUE, WED, THU, FRI, SAT and SUN");
	pg_unreachable();
}

/* A day, or a range of days, which may lead over the end of the week. */
static int
ReadRange(Reader *reader)
{
	int day = ReadDay(reader);
	int last = day;
	int weekly = 1 << day;

	if (*reader->at == '-')
	{
		reader->at++;
		last = ReadDay(reader);
	}
	for (; day != last; weekly |= 1 << day)
		day = (day + 1) % 7;
	return weekly;
}

static int16
WeeklyArgument(FunctionCallInfo fcinfo, int i)
{
	Reader reader;
	int weekly;

	reader.whole = reader.at = JobIdemTextArgument(fcinfo, i, "open_days");
	if (pg_strcasecmp(reader.whole, "none") == 0)
		return 0;
	weekly = ReadRange(&reader);
	while (*reader.at == ',')
	{
		reader.at++;
		weekly |= ReadRange(&reader);
	}
	if (*reader.at != '\0')
		RefuseOpenDays(&reader, "a comma, a hyphen or the end");
	return (int16) weekly;
}

/* Writes the listed days; counts those that were not there, and those that were there otherwise. */
static void
MergeDays(const char *calendar, const JobIdemDayList *list, int64 *n_new, int64 *n_changed)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, list->days);
	JobIdemArg(&args, list->is_open);
	JobIdemArg(&args, list->notes);
	JobIdemArg(&args, CStringGetTextDatum(calendar));
	*n_new = (int64) JobIdemRunLatest(&insert_listed, &args, 0);
	*n_changed = (int64) JobIdemRunLatest(&change_listed, &args, 0);
}

/* Makes the listed days the only exceptions; true if there was anything to change. */
static bool
ReplaceDays(const char *calendar, const JobIdemDayList *list)
{
	JobIdemArgs args = {.n = 0};
	int64 n_new;
	int64 n_changed;

	MergeDays(calendar, list, &n_new, &n_changed);
	JobIdemArg(&args, list->days);
	JobIdemArg(&args, CStringGetTextDatum(calendar));
	return n_new + n_changed + (int64) JobIdemRunLatest(&delete_unlisted, &args, 0) > 0;
}

static bool
LockCalendar(const char *calendar)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(calendar));
	return JobIdemRunLatest(&lock_calendar, &args, 1) > 0;
}

static void
TouchCalendar(const char *calendar)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(calendar));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	(void) JobIdemRunLatest(&touch_calendar, &args, 0);
}

/* `rest` is more of the detail, as JSON members, or empty. */
static void
CalendarEvent(const char *verb, const char *calendar, const char *rest)
{
	StringInfoData detail;

	initStringInfo(&detail);
	appendStringInfoString(&detail, "{\"calendar\": ");
	escape_json(&detail, calendar);
	appendStringInfo(&detail, "%s}", rest);
	JobIdemEvent(verb, 0, 0, NULL, detail.data, NULL);
}

/* Creates the calendar, or locks it and makes its own row as wanted. */
static const char *
Define(const char *name, int16 weekly, const char *note)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(name));
	JobIdemArg(&args, Int16GetDatum(weekly));
	JobIdemArgText(&args, note);
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	/* again only if somebody drops what was in the way of the insert */
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (JobIdemRun(&insert_calendar, &args, 0) > 0)
			return "new";
	} while (!LockCalendar(name));
	return JobIdemRunLatest(&update_calendar, &args, 0) > 0 ? "changed" : "unchanged";
}

PG_FUNCTION_INFO_V1(job_idem_define_calendar);
Datum
job_idem_define_calendar(PG_FUNCTION_ARGS)
{
	char *name = NameArgument(fcinfo, 0);
	int16 weekly = WeeklyArgument(fcinfo, 1);
	char *note = JobIdemReasonArgument(fcinfo, 2, false);
	char *query = JobIdemTextArgumentOrNull(fcinfo, 3);
	JobIdemDayList *list = NULL;
	const char *outcome;
	JobIdemScope scope;

	JobIdemEnter(&scope);
	RequireOperator();
	if (query != NULL)
		list = JobIdemListDays(&scope, query);
	outcome = Define(name, weekly, note);
	if (list != NULL && ReplaceDays(name, list) && strcmp(outcome, "unchanged") == 0)
	{
		TouchCalendar(name);
		outcome = "changed";
	}
	if (strcmp(outcome, "unchanged") != 0)
		CalendarEvent("define_calendar", name, psprintf(", \"outcome\": \"%s\"", outcome));
	JobIdemLeave(&scope);
	PG_RETURN_TEXT_P(cstring_to_text(outcome));
}

/* Sets a day, or gives it back to the weekly rule; false if it was so before. */
static bool
SetDay(const char *calendar, DateADT day, NullableDatum open, const char *note)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(calendar));
	JobIdemArg(&args, DateADTGetDatum(day));
	if (open.isnull)
		return JobIdemRunLatest(&delete_day, &args, 0) > 0;
	JobIdemArg(&args, open.value);
	JobIdemArgText(&args, note);
	return JobIdemRunLatest(&set_day, &args, 0) > 0;
}

PG_FUNCTION_INFO_V1(job_idem_set_calendar_day);
Datum
job_idem_set_calendar_day(PG_FUNCTION_ARGS)
{
	char *calendar = JobIdemTextArgument(fcinfo, 0, "calendar");
	DateADT day = JobIdemDateArgument(fcinfo, 1, "day");
	NullableDatum open = {.value = PG_GETARG_DATUM(2), .isnull = PG_ARGISNULL(2)};
	char *note = JobIdemReasonArgument(fcinfo, 3, false);
	const char *is_open = "null";
	JobIdemScope scope;
	bool changed;

	if (!open.isnull)
		is_open = DatumGetBool(open.value) ? "true" : "false";
	JobIdemEnter(&scope);
	RequireOperator();
	if (!LockCalendar(calendar))
		JobIdemCalendarUnknown(calendar);
	changed = SetDay(calendar, day, open, note);
	if (changed)
	{
		TouchCalendar(calendar);
		CalendarEvent("set_calendar_day", calendar,
					  psprintf(", \"day\": \"%s\", \"is_open\": %s", JobIdemRunKeyOf(day),
							   is_open));
	}
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(changed);
}

PG_FUNCTION_INFO_V1(job_idem_load_calendar);
Datum
job_idem_load_calendar(PG_FUNCTION_ARGS)
{
	char *calendar = JobIdemTextArgument(fcinfo, 0, "calendar");
	char *query = JobIdemTextArgument(fcinfo, 1, "query");
	JobIdemDayList *list;
	int64 n_new;
	int64 n_changed;
	JobIdemScope scope;
	Datum values[2];
	bool nulls[2] = {false, false};

	JobIdemEnter(&scope);
	RequireOperator();
	list = JobIdemListDays(&scope, query);
	if (!LockCalendar(calendar))
		JobIdemCalendarUnknown(calendar);
	MergeDays(calendar, list, &n_new, &n_changed);
	if (n_new + n_changed > 0)
	{
		TouchCalendar(calendar);
		CalendarEvent("load_calendar", calendar,
					  psprintf(", \"n_new\": " INT64_FORMAT ", \"n_changed\": " INT64_FORMAT,
							   n_new, n_changed));
	}
	JobIdemLeave(&scope);
	values[0] = Int64GetDatum(n_new);
	values[1] = Int64GetDatum(n_changed);
	PG_RETURN_DATUM(JobIdemRow(fcinfo, values, nulls));
}

/* The calendar's row is ours: whoever began to use it before has committed. */
static void
RefuseUsed(const char *calendar)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(calendar));
	if (JobIdemRunLatest(&find_user, &args, 1) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop calendar \"%s\" while a job uses it", calendar),
				 errdetail("Job \"%s\" does.", JobIdemText(0, 1, CurrentMemoryContext)),
				 errhint("Define its jobs with another calendar, or drop them, first.")));
}

static bool
Drop(const char *calendar)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(calendar));
	if (JobIdemRunLatest(&delete_calendar, &args, 0) == 0)
		return false;
	RefuseUsed(calendar);
	(void) JobIdemRunLatest(&delete_all_days, &args, 0);
	CalendarEvent("drop_calendar", calendar, "");
	return true;
}

PG_FUNCTION_INFO_V1(job_idem_drop_calendar);
Datum
job_idem_drop_calendar(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "name");
	JobIdemScope scope;
	bool dropped;

	JobIdemEnter(&scope);
	RequireOperator();
	dropped = Drop(name);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(dropped);
}
