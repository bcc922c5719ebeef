/*
 * calendar.c - which days are open: the weekly rule of a calendar and the exceptions to it.
 *
 * Days are read a window at a time, rule and exceptions by one statement and so of one moment. A
 * search walks day by day and ends at the latest where no day was open for ten years.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"

#include "access.h"
#include "calendar.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

/* days */
#define WINDOW 400
#define TEN_YEARS 3653
#define MAX_SHIFT 100000

JOB_IDEM_STATEMENT(read_days,
				   "SELECT c.weekly, d.day, d.is_open FROM job_idem.calendar c"
				   " LEFT JOIN job_idem.calendar_day d"
				   "  ON d.calendar = c.name AND d.day BETWEEN $2 AND $3"
				   " WHERE c.name = $1",
				   3, TEXTOID, DATEOID, DATEOID);
JOB_IDEM_STATEMENT(keep_calendar,
				   "SELECT FROM job_idem.calendar WHERE name = $1 FOR KEY SHARE",
				   1, TEXTOID);

/* A stretch of days that has been read. */
typedef struct Window
{
	const char *calendar;
	DateADT first;
	int n;
	bool open[WINDOW];
} Window;

void
JobIdemCalendarUnknown(const char *calendar)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("calendar \"%s\" does not exist", JobIdemShown(calendar)),
			 errhint("Define it with job_idem.define_calendar; job_idem.calendars lists those that"
					 " exist.")));
}

/* Monday is 0. */
static int
DayOfWeek(DateADT day)
{
	return (j2day(day + POSTGRES_EPOCH_JDATE) + 6) % 7;
}

static void
ReadWindow(Window *window, DateADT first, int n)
{
	JobIdemArgs args = {.n = 0};
	uint64 n_rows;
	uint64 row;
	int weekly;
	int i;

	JobIdemArg(&args, CStringGetTextDatum(window->calendar));
	JobIdemArg(&args, DateADTGetDatum(first));
	JobIdemArg(&args, DateADTGetDatum(first + n - 1));
	n_rows = JobIdemRun(&read_days, &args, 0);
	if (n_rows == 0)
		JobIdemCalendarUnknown(window->calendar);
	window->first = first;
	window->n = n;
	weekly = JobIdemInt16(0, 1);
	for (i = 0; i < n; i++)
		window->open[i] = (weekly & (1 << DayOfWeek(first + i))) != 0;
	for (row = 0; row < n_rows; row++)
		if (!JobIdemIsNull(row, 2))
			window->open[JobIdemInt32(row, 2) - first] = JobIdemBool(row, 3);
	SPI_freetuptable(SPI_tuptable);
}

bool
JobIdemCalendarIsOpen(const char *calendar, DateADT day)
{
	Window window = {.calendar = calendar};

	ReadWindow(&window, day, 1);
	return window.open[0];
}

static void
RefuseClosed(const char *calendar)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("calendar \"%s\" has no open day within ten years", calendar),
			 errhint("Open days with job_idem.define_calendar or job_idem.set_calendar_day.")));
}

static void
RefuseEnd(const char *calendar)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
			 errmsg("date out of range"),
			 errdetail("Calendar \"%s\" has too few open days up to there.", calendar),
			 errhint("Give another day, or fewer open days to go.")));
}

/* The n-th open day met on the way from a day, itself included, by steps of 1 or -1. */
static DateADT
Walk(const char *calendar, DateADT day, int step, int32 n)
{
	Window window = {.calendar = calendar};
	int n_closed = 0;

	for (;; day += step)
	{
		if (!IS_VALID_DATE(day))
			RefuseEnd(calendar);
		if (day < window.first || day >= window.first + window.n)
		{
			CHECK_FOR_INTERRUPTS();
			ReadWindow(&window, step > 0 ? day : day - (WINDOW - 1), WINDOW);
		}
		if (window.open[day - window.first])
		{
			n_closed = 0;
			if (--n == 0)
				return day;
		}
		else if (++n_closed > TEN_YEARS)
			RefuseClosed(calendar);
	}
}

DateADT
JobIdemCalendarNextOpen(const char *calendar, DateADT day)
{
	return Walk(calendar, day, 1, 1);
}

DateADT
JobIdemCalendarPreviousOpen(const char *calendar, DateADT day)
{
	return Walk(calendar, day, -1, 1);
}

DateADT
JobIdemCalendarShift(const char *calendar, DateADT day, int32 n)
{
	if (n < -MAX_SHIFT || n > MAX_SHIFT)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("cannot go %d open days", n),
				 errdetail("At most %d are allowed, either way.", MAX_SHIFT),
				 errhint("Shift by fewer open days.")));
	if (n == 0)
		return JobIdemCalendarNextOpen(calendar, day);
	return n > 0 ? Walk(calendar, day + 1, 1, n) : Walk(calendar, day - 1, -1, -n);
}

bool
JobIdemCalendarKeep(const char *calendar)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, CStringGetTextDatum(calendar));
	return JobIdemRunLatest(&keep_calendar, &args, 1) > 0;
}

PG_FUNCTION_INFO_V1(job_idem_is_open_day);
Datum
job_idem_is_open_day(PG_FUNCTION_ARGS)
{
	char *calendar = JobIdemTextArgument(fcinfo, 0, "calendar");
	DateADT day = JobIdemDateArgument(fcinfo, 1, "day");
	JobIdemScope scope;
	bool open;

	JobIdemEnter(&scope);
	open = JobIdemCalendarIsOpen(calendar, day);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(open);
}

PG_FUNCTION_INFO_V1(job_idem_shift_open_days);
Datum
job_idem_shift_open_days(PG_FUNCTION_ARGS)
{
	char *calendar = JobIdemTextArgument(fcinfo, 0, "calendar");
	DateADT day = JobIdemDateArgument(fcinfo, 1, "day");
	int32 n = JobIdemInt32Argument(fcinfo, 2, "n");
	JobIdemScope scope;

	JobIdemEnter(&scope);
	day = JobIdemCalendarShift(calendar, day, n);
	JobIdemLeave(&scope);
	PG_RETURN_DATEADT(day);
}
