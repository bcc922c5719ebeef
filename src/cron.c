/*
 * cron.c - reads a schedule: five fields (minute, hour, day of month, month, day of week), six with
 * seconds before them, or a name such as @daily.
 *
 * Pure. What is understood, a field being a list of elements with commas between them:
 *
 *   all fields    * for all, a number, a range such as 1-5; a slash and a step may follow a star or
 *                 a range, and also a number, which then counts from that number to the field's end
 *   day of month  L: the last; L-2: two days before it; 15W: the Monday to Friday nearest to
 *                 the 15th, in the same month; LW, L-2W. A month that lacks the day has none
 *   month         JAN to DEC
 *   day of week   0 to 7, Sunday being 0 and 7 whether or not there are seconds; SUN to SAT; 5L or
 *                 FRIL: the last Friday of the month; 5#3: the third
 *   both days     ?, the same as *
 *
 * If both day fields restrict, either counts; a star, also with step 1, and ? restrict nothing,
 * all else does. A range may run over the end where it can only mean one thing, in month and day of
 * week (NOV-FEB, FRI-MON): the hours 22-2 of a Friday could be those of the night after it. What
 * has two readings, or none, is refused: also a step that is not smaller than its field is wide, a
 * star without a step among others, L alone as a day of week, and days that no year has.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "cron.h"

#define ALPHABET "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define SPACES " \t\n\r\f\v"
#define MAX_FIELDS 6
/* longest part of a schedule that a message repeats */
#define MAX_SHOWN 20

#define BIT(n) (UINT64CONST(1) << (n))
#define HAS(set, n) (((set) >> (n)) & 1)

typedef struct Field
{
	const char *name;
	int min;
	int max;
	int cycle;				   /* the value after it is the same again; 7 is Sunday as well */
	const char *const *values; /* names, from min on */
} Field;

static const char *const month_names[] = {"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL",
										  "AUG", "SEP", "OCT", "NOV", "DEC", NULL};
static const char *const weekday_names[] = {"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", NULL};
static const char *const no_names[] = {NULL};

static const Field second_field = {"second", 0, 59, 60, no_names};
static const Field minute_field = {"minute", 0, 59, 60, no_names};
static const Field hour_field = {"hour", 0, 23, 24, no_names};
static const Field day_field = {"day of month", 1, 31, 31, no_names};
static const Field month_field = {"month", 1, 12, 12, month_names};
static const Field weekday_field = {"day of week", 0, 7, 7, weekday_names};

static const char *const macros[][2] = {
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
};

typedef struct Reader
{
	const char *schedule;
	const char *at;
	const char *end;	/* of the field */
	const Field *field; /* NULL: the schedule as a whole */
	JobIdemCron *cron;
	JobIdemCronError *error;
} Reader;

static bool Refuse(Reader *reader, const char *at, const char *format, ...)
	pg_attribute_printf(3, 4);

/* Always false. What is missing at the end is shown at the last character. */
static bool
Refuse(Reader *reader, const char *at, const char *format, ...)
{
	JobIdemCronError *error = reader->error;
	size_t used = 0;
	va_list args;

	if (at == reader->end && at > reader->schedule)
		at--;
	error->position = pg_mbstrlen_with_len(reader->schedule, at - reader->schedule) + 1;
	if (reader->field != NULL)
		used = snprintf(error->message, sizeof(error->message), "%s: ", reader->field->name);
	va_start(args, format);
	vsnprintf(error->message + used, sizeof(error->message) - used, format, args);
	va_end(args);
	return false;
}

/* The next character in lower case, a zero at the end of the field. */
static char
Peek(const Reader *reader)
{
	return reader->at < reader->end ? pg_ascii_tolower(*reader->at) : '\0';
}

static bool
Skip(Reader *reader, char c)
{
	if (Peek(reader) != c)
		return false;
	reader->at++;
	return true;
}

/* How many of the next characters are of these. */
static int
Run(const Reader *reader, const char *characters)
{
	return Min((int) strspn(reader->at, characters), reader->end - reader->at);
}

static bool
RefuseCharacter(Reader *reader)
{
	unsigned char c = Peek(reader);

	if (c == '\0')
		return Refuse(reader, reader->at, "a value is missing");
	if (c < ' ' || c > '~')
		return Refuse(reader, reader->at, "unexpected character");
	return Refuse(reader, reader->at, "unexpected \"%c\"", *reader->at);
}

static bool
ReadNumber(Reader *reader, const char *what, int min, int max, int *number)
{
	const char *from = reader->at;
	int length = Run(reader, "0123456789");

	if (length == 0)
		return RefuseCharacter(reader);
	*number = 0;
	for (; reader->at < from + length; reader->at++)
		if (*number <= max)
			*number = *number * 10 + (*reader->at - '0');
	if (*number < min || *number > max)
		return Refuse(reader, from, "%s%.*s is out of range %d to %d", what,
					  Min(length, MAX_SHOWN), from, min, max);
	return true;
}

/* A name of three letters; an L may follow that of a day of the week. */
static bool
ReadName(Reader *reader, int *value)
{
	const Field *field = reader->field;
	int length = Run(reader, ALPHABET);
	bool has_last = field == &weekday_field && length == 4 &&
		pg_ascii_tolower(reader->at[3]) == 'l';
	int i;

	for (i = 0; field->values[i] != NULL && (length == 3 || has_last); i++)
		if (pg_strncasecmp(reader->at, field->values[i], 3) == 0)
		{
			*value = field->min + i;
			reader->at += 3;
			return true;
		}
	if (field == &weekday_field && length == 1 && Peek(reader) == 'l')
		return Refuse(reader, reader->at, "L needs a day before it, as in 5L");
	return Refuse(reader, reader->at, "\"%.*s\" is not known here", Min(length, MAX_SHOWN),
				  reader->at);
}

static bool
ReadValue(Reader *reader, int *value)
{
	if (Run(reader, ALPHABET) > 0)
		return ReadName(reader, value);
	return ReadNumber(reader, "", reader->field->min, reader->field->max, value);
}

/* What follows a slash, if there is one; 1 otherwise. */
static bool
ReadStep(Reader *reader, int *step)
{
	*step = 1;
	if (!Skip(reader, '/'))
		return true;
	return ReadNumber(reader, "a step of ", 1, reader->field->cycle - 1, step);
}

/*
 * The values from one to another, over the end of the field if need be. As the end of a range
 * Sunday may be the seventh day, as the beginning it is the day before the first.
 */
static uint64
Values(const Field *field, int from, int to, int step)
{
	uint64 set = 0;
	int i;

	if (field == &weekday_field && from == 7)
	{
		from = 0;
		to %= 7;
	}
	if (to < from)
		to += field->cycle;
	for (i = from; i <= to; i += step)
		set |= BIT(field->min + (i - field->min) % field->cycle);
	return set;
}

static uint64
AllValues(const Field *field, int step)
{
	return Values(field, field->min, field->min + field->cycle - 1, step);
}

/* What may follow a value: a range, a step, or both. */
static bool
ReadRange(Reader *reader, int from, uint64 *set)
{
	const Field *field = reader->field;
	bool has_end = Skip(reader, '-');
	const char *end = reader->at;
	int to = from;
	int step;

	if (has_end && !ReadValue(reader, &to))
		return false;
	if (to < from && field->values == no_names)
		return Refuse(reader, end, "%d-%d runs over the end, write %d-%d,%d-%d", from, to, from,
					  field->max, field->min, to);
	if (!has_end && Peek(reader) == '/')
		to = field->min + field->cycle - 1;
	if (!ReadStep(reader, &step))
		return false;
	*set |= Values(field, from, to, step);
	return true;
}

/* L, L-n, LW, L-nW */
static bool
ReadFromLast(Reader *reader)
{
	int before = 0;

	reader->at++;
	if (Skip(reader, '-') && !ReadNumber(reader, "", 1, 30, &before))
		return false;
	if (Skip(reader, 'w'))
		reader->cron->near_from_last |= BIT(before);
	else
		reader->cron->days_from_last |= BIT(before);
	return true;
}

static bool
ReadDay(Reader *reader)
{
	int day;

	if (Peek(reader) == 'l')
		return ReadFromLast(reader);
	if (!ReadValue(reader, &day))
		return false;
	if (!Skip(reader, 'w'))
		return ReadRange(reader, day, &reader->cron->days);
	reader->cron->near_days |= BIT(day);
	return true;
}

static bool
ReadWeekday(Reader *reader)
{
	JobIdemCron *cron = reader->cron;
	int weekday;
	int nth;

	if (!ReadValue(reader, &weekday))
		return false;
	if (Skip(reader, 'l'))
		cron->last_weekdays |= BIT(weekday % 7);
	else if (Skip(reader, '#'))
	{
		if (!ReadNumber(reader, "#", 1, JOB_IDEM_CRON_WEEKS, &nth))
			return false;
		cron->nth_weekdays[nth - 1] |= BIT(weekday % 7);
	}
	else
		return ReadRange(reader, weekday, &cron->weekdays);
	return true;
}

static bool
ReadElement(Reader *reader, uint64 *set)
{
	int step;
	int value;

	if (Peek(reader) == '?')
		return Refuse(reader, reader->at, "? stands alone, for all days of month or of week");
	if (Skip(reader, '*'))
	{
		if (Peek(reader) != '/')
			return Refuse(reader, reader->at - 1, "* stands alone or takes a step");
		if (!ReadStep(reader, &step))
			return false;
		*set |= AllValues(reader->field, step);
		return true;
	}
	if (reader->field == &day_field)
		return ReadDay(reader);
	if (reader->field == &weekday_field)
		return ReadWeekday(reader);
	return ReadValue(reader, &value) && ReadRange(reader, value, set);
}

/* Is it the whole of the field? */
static bool
FieldIs(const Reader *reader, const char *word)
{
	int length = reader->end - reader->at;

	return length == (int) strlen(word) && strncmp(reader->at, word, length) == 0;
}

/* Is it a star, perhaps with a step, and nothing else? */
static bool
IsStar(const Reader *reader)
{
	return Peek(reader) == '*' && Run(reader, "*/0123456789") == reader->end - reader->at;
}

/* Reads the field that the reader stands at; restricts says whether it leaves out anything. */
static bool
ReadField(Reader *reader, const Field *field, uint64 *set, bool *restricts)
{
	bool is_day = field == &day_field || field == &weekday_field;

	reader->field = field;
	*restricts = !FieldIs(reader, "*") && !FieldIs(reader, "*/1") &&
		!(is_day && FieldIs(reader, "?"));
	if (!*restricts)
	{
		*set = AllValues(field, 1);
		return true;
	}
	while (ReadElement(reader, set))
	{
		if (reader->at == reader->end)
			return true;
		if (!Skip(reader, ','))
			return RefuseCharacter(reader);
	}
	return false;
}

/* The fields' beginnings and ends; returns how many there are, at most one too many. */
static int
Split(const char *schedule, const char **begins, const char **ends)
{
	const char *at = schedule;
	int n = 0;

	while (n <= MAX_FIELDS)
	{
		at += strspn(at, SPACES);
		if (*at == '\0')
			break;
		begins[n] = at;
		at += strcspn(at, SPACES);
		ends[n++] = at;
	}
	return n;
}

static bool
RefuseCount(Reader *reader, int n, const char *last)
{
	reader->end = NULL;
	if (n > MAX_FIELDS)
		return Refuse(reader, last, "more than 6 fields");
	return Refuse(reader, last, "5 or 6 fields are needed, not %d", n);
}

static bool
ReadFields(Reader *reader, const char **begins, const char **ends, int n)
{
	JobIdemCron *cron = reader->cron;
	const Field *const fields[MAX_FIELDS] = {&second_field, &minute_field, &hour_field,
											 &day_field, &month_field, &weekday_field};
	uint64 *const sets[MAX_FIELDS] = {&cron->seconds, &cron->minutes, &cron->hours,
									  &cron->days, &cron->months, &cron->weekdays};
	bool restricts[MAX_FIELDS] = {false};
	int skip = MAX_FIELDS - n;
	int i;

	if (skip > 0)
		cron->seconds = BIT(0);
	for (i = skip; i < MAX_FIELDS; i++)
	{
		reader->at = begins[i - skip];
		reader->end = ends[i - skip];
		if (fields[i] == &hour_field)
			cron->elapsed = IsStar(reader);
		if (!ReadField(reader, fields[i], sets[i], &restricts[i]))
			return false;
	}
	cron->any_day = !restricts[3];
	cron->any_weekday = !restricts[5];
	return true;
}

/* The weekday nearest to a day of a month, in that month. */
static int
NearestWeekday(int day, int length, int weekday)
{
	if (weekday == 6)
		return day > 1 ? day - 1 : day + 2;
	if (weekday == 0)
		return day < length ? day + 1 : day - 2;
	return day;
}

/* The days that the schedule names in a month of this length whose first is this day of week. */
uint64
JobIdemCronDays(const JobIdemCron *cron, int length, int first_weekday)
{
	uint64 days = 0;
	int day;

	if (cron->any_day && cron->any_weekday)
		return BIT(length + 1) - BIT(1);
	for (day = 1; day <= length; day++)
	{
		int weekday = (first_weekday + day - 1) % 7;
		int left = length - day;

		if (!cron->any_day && (HAS(cron->days, day) || HAS(cron->days_from_last, left)))
			days |= BIT(day);
		if (!cron->any_day && (HAS(cron->near_days, day) || HAS(cron->near_from_last, left)))
			days |= BIT(NearestWeekday(day, length, weekday));
		if (!cron->any_weekday &&
			(HAS(cron->weekdays, weekday) || (left < 7 && HAS(cron->last_weekdays, weekday)) ||
			 HAS(cron->nth_weekdays[(day - 1) / 7], weekday)))
			days |= BIT(day);
	}
	return days;
}

/* Does any year have a day of the schedule? Each month begins on any day of week some year. */
static bool
IsPossible(const JobIdemCron *cron)
{
	static const int longest[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int month;
	int weekday;

	for (month = 1; month <= 12; month++)
		for (weekday = 0; HAS(cron->months, month) && weekday < 7; weekday++)
			if (JobIdemCronDays(cron, longest[month - 1], weekday) != 0)
				return true;
	return false;
}

static const char *
Macro(const char *begin, const char *end)
{
	int length = end - begin;
	int i;

	for (i = 0; i < (int) lengthof(macros); i++)
		if (length == (int) strlen(macros[i][0]) &&
			pg_strncasecmp(begin, macros[i][0], length) == 0)
			return macros[i][1];
	return NULL;
}

/* False if it is refused, and then says why. */
bool
JobIdemCronParse(const char *schedule, JobIdemCron *cron, JobIdemCronError *error)
{
	Reader reader = {.schedule = schedule, .cron = cron, .error = error};
	const char *begins[MAX_FIELDS + 1];
	const char *ends[MAX_FIELDS + 1];
	int n = Split(schedule, begins, ends);
	const char *macro = n == 1 ? Macro(begins[0], ends[0]) : NULL;

	if (macro != NULL)
		return JobIdemCronParse(macro, cron, error);
	memset(cron, 0, sizeof(JobIdemCron));
	if (n > 0 && *begins[0] == '@')
		return Refuse(&reader, begins[0], "none of @hourly, @daily, @weekly, @monthly, @yearly");
	if (n < MAX_FIELDS - 1 || n > MAX_FIELDS)
		return RefuseCount(&reader, n, n > 0 ? begins[n - 1] : schedule);
	if (!ReadFields(&reader, begins, ends, n))
		return false;
	if (IsPossible(cron))
		return true;
	reader.field = &day_field;
	return Refuse(&reader, begins[n - 3], "no year has such a day in the months of the schedule");
}
