/*
 * definition.c - what a caller says a job should be: reading it, filling in defaults, judging it.
 *
 * All problems are collected and raised at once (JI005), one line of the detail each, so that a
 * deploy need not find them one by one.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/int.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/plancache.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "cron.h"
#include "definition.h"
#include "job_idem.h"
#include "lookup.h"
#include "zone.h"

/* of lease, takeover_delay and max_lease, years as intervals count them */
#define MAX_LEASE_YEARS 1000

static void
Problem(JobIdemDefinition *def, const char *part, const char *what)
{
	if (def->problems.len > 0)
		appendStringInfoChar(&def->problems, '\n');
	appendStringInfo(&def->problems, "%s: %s", part, what);
}

/* For what only the caller can judge. */
void
JobIdemDefinitionProblem(JobIdemDefinition *def, const char *part, const char *what)
{
	Problem(def, part, what);
}

/* Raises JI005 if there is any. */
void
JobIdemDefinitionRaise(const JobIdemDefinition *def)
{
	if (def->problems.len == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_JI_INVALID_DEFINITION),
			 errmsg("the definition of job \"%s\" is refused", def->name ? def->name : ""),
			 errdetail_internal("%s", def->problems.data),
			 errhint("Correct the parts named and call job_idem.define_job again; its comment says"
					 " what each may be. Names in item_source must be schema-qualified.")));
}

static Interval *
SpanArgument(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : PG_GETARG_INTERVAL_P(i);
}

/* For NULL, a number that the part may not have. */
static int32
NumberArgument(FunctionCallInfo fcinfo, int i, int32 for_null)
{
	return PG_ARGISNULL(i) ? for_null : PG_GETARG_INT32(i);
}

static NullableDatum
ShareArgument(FunctionCallInfo fcinfo, int i)
{
	NullableDatum share = {.value = PG_GETARG_DATUM(i), .isnull = PG_ARGISNULL(i)};

	return share;
}

static void
ReadParts(FunctionCallInfo fcinfo, JobIdemDefinition *def)
{
	int i = 0;

	def->name = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->kind = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->tier = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->schedule = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->timezone = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->calendar = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->business_date_offset = NumberArgument(fcinfo, i++, PG_INT32_MIN);
	def->run_per = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->misfire = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->misfire_grace = SpanArgument(fcinfo, i++);
	def->valid_for = SpanArgument(fcinfo, i++);
	def->catch_up_limit = NumberArgument(fcinfo, i++, -1);
	def->overlap = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->closed_day = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->lease = SpanArgument(fcinfo, i++);
	def->takeover_delay = SpanArgument(fcinfo, i++);
	def->max_lease = SpanArgument(fcinfo, i++);
	def->at_max_lease = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->max_attempts = NumberArgument(fcinfo, i++, -1);
	def->backoff_base = SpanArgument(fcinfo, i++);
	def->backoff_factor = PG_ARGISNULL(i) ? 0 : PG_GETARG_FLOAT8(i);
	i++;
	def->backoff_max = SpanArgument(fcinfo, i++);
	def->unknown_as = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->retry_budget = ShareArgument(fcinfo, i++);
	def->failure_threshold = ShareArgument(fcinfo, i++);
	def->failure_window = SpanArgument(fcinfo, i++);
	def->batch_size = NumberArgument(fcinfo, i++, -1);
	def->item_source = JobIdemTextArgumentOrNull(fcinfo, i++);
	def->close_after = SpanArgument(fcinfo, i++);
	def->version = NumberArgument(fcinfo, i, 0);
	if (!PG_ARGISNULL(i) && def->version < 1)
		Problem(def, "version", "must be at least 1");
}

static void
FillDefaults(JobIdemDefinition *def)
{
	bool critical = def->tier != NULL && strcmp(def->tier, "critical") == 0;

	if (def->lease == NULL)
		def->lease = JobIdemMicrosInterval((critical ? 15 : 5) * USECS_PER_MINUTE);
	if (def->takeover_delay == NULL)
		def->takeover_delay = JobIdemMicrosInterval(critical ? USECS_PER_MINUTE : 0);
	if (def->backoff_max == NULL && def->backoff_base != NULL)
	{
		int64 max;

		if (pg_mul_s64_overflow(JobIdemIntervalMicros(def->backoff_base), 8, &max))
			max = PG_INT64_MAX - 1;
		def->backoff_max = JobIdemMicrosInterval(max);
	}
}

/* Infinite ones, and those too long to count in microseconds, come out as the largest number. */
static void
CheckSpan(JobIdemDefinition *def, const char *part, const Interval *span, bool may_be_zero)
{
	int64 length = span == NULL ? 0 : JobIdemIntervalMicros(span);

	if (span == NULL)
		Problem(def, part, "must not be null");
	else if (length == PG_INT64_MAX)
		Problem(def, part, "is infinite, or too long");
	else if (length < 0)
		Problem(def, part, "must not be negative");
	else if (length == 0 && !may_be_zero)
		Problem(def, part, "must be longer than 0");
}

/* One that is added to instants, which end in the year 294276. */
static void
CheckLeaseSpan(JobIdemDefinition *def, const char *part, const Interval *span, bool may_be_zero)
{
	CheckSpan(def, part, span, may_be_zero);
	if (span != NULL && JobIdemIntervalMicros(span) > MAX_LEASE_YEARS * 360 * USECS_PER_DAY &&
		JobIdemIntervalMicros(span) != PG_INT64_MAX)
		Problem(def, part, psprintf("must not be longer than %d years", MAX_LEASE_YEARS));
}

static void
CheckNotShorter(JobIdemDefinition *def, const char *part, const Interval *span,
				const char *than_part, const Interval *than)
{
	if (span != NULL && than != NULL && JobIdemIntervalMicros(span) < JobIdemIntervalMicros(than))
		Problem(def, part, psprintf("must not be shorter than %s", than_part));
}

static void
CheckSpans(JobIdemDefinition *def)
{
	CheckLeaseSpan(def, "lease", def->lease, false);
	CheckLeaseSpan(def, "takeover_delay", def->takeover_delay, true);
	CheckLeaseSpan(def, "max_lease", def->max_lease, false);
	CheckNotShorter(def, "max_lease", def->max_lease, "lease", def->lease);
	CheckSpan(def, "backoff_base", def->backoff_base, true);
	CheckSpan(def, "backoff_max", def->backoff_max, true);
	CheckNotShorter(def, "backoff_max", def->backoff_max, "backoff_base", def->backoff_base);
	CheckSpan(def, "failure_window", def->failure_window, false);
	CheckSpan(def, "close_after", def->close_after, true);
}

static void
CheckName(JobIdemDefinition *def)
{
	if (def->name == NULL || def->name[0] == '\0')
		Problem(def, "name", "must not be null or empty");
	else if (strlen(def->name) > JOB_IDEM_MAX_JOB_NAME)
		Problem(def, "name", psprintf("has more than %d bytes", JOB_IDEM_MAX_JOB_NAME));
}

/* A part must be one of some words, which are given as the message says them: "x, y or z". */
static void
CheckWord(JobIdemDefinition *def, const char *part, const char *value, const char *words)
{
	const char *word = words;

	while (value != NULL && *word != '\0')
	{
		size_t length = strcspn(word, ", ");

		if (length == strlen(value) && strncmp(word, value, length) == 0 &&
			strcmp(value, "or") != 0)
			return;
		word += length;
		word += strspn(word, ", ");
	}
	Problem(def, part, psprintf("must be %s", words));
}

/* Written so that a NaN is refused too. */
static void
CheckFailureParts(JobIdemDefinition *def)
{
	double budget = DatumGetFloat8(def->retry_budget.value);
	double threshold = DatumGetFloat8(def->failure_threshold.value);

	CheckWord(def, "unknown_as", def->unknown_as, "transient or business");
	if (!def->retry_budget.isnull && !(budget >= 0 && !isinf(budget)))
		Problem(def, "retry_budget", "must be a finite share of 0 or more, or null");
	if (!def->failure_threshold.isnull && !(threshold > 0 && threshold <= 1))
		Problem(def, "failure_threshold", "must be a share above 0 and at most 1, or null");
}

static void
CheckNumber(JobIdemDefinition *def, const char *part, int32 number, int32 least, int32 most)
{
	if (number < least || number > most)
		Problem(def, part, psprintf("must be from %d to %d", least, most));
}

static void
CheckSchedule(JobIdemDefinition *def)
{
	JobIdemCron cron;
	JobIdemCronError error;

	if (def->schedule != NULL && !JobIdemCronParse(def->schedule, &cron, &error))
		Problem(def, "schedule", psprintf("%s, at character %d", error.message, error.position));
}

/* What the planner goes by. */
static void
CheckPlanParts(JobIdemDefinition *def)
{
	bool expires = def->misfire != NULL && strcmp(def->misfire, "expire") == 0;

	CheckSchedule(def);
	if (def->timezone == NULL || JobIdemZone(def->timezone) == NULL)
		Problem(def, "timezone", "must be a time zone that the server knows");
	CheckNumber(def, "business_date_offset", def->business_date_offset, -JOB_IDEM_MAX_OFFSET,
				JOB_IDEM_MAX_OFFSET);
	CheckWord(def, "run_per", def->run_per, "date or fire");
	CheckWord(def, "misfire", def->misfire, "catch_up, latest, skip or expire");
	CheckSpan(def, "misfire_grace", def->misfire_grace, true);
	if (expires || def->valid_for != NULL)
		CheckSpan(def, "valid_for", def->valid_for, false);
	if (!expires && def->valid_for != NULL)
		Problem(def, "valid_for", "is for misfire expire only");
	CheckNumber(def, "catch_up_limit", def->catch_up_limit, 1, JOB_IDEM_MAX_CATCH_UP);
	CheckWord(def, "overlap", def->overlap, "allow, wait or skip");
	CheckWord(def, "closed_day", def->closed_day, "skip, next or previous");
}

/* Everything but what item_source says. */
static void
CheckParts(JobIdemDefinition *def)
{
	CheckName(def);
	CheckWord(def, "kind", def->kind, "batch or keyed");
	CheckWord(def, "tier", def->tier, "standard or critical");
	CheckPlanParts(def);
	CheckSpans(def);
	CheckFailureParts(def);
	CheckWord(def, "at_max_lease", def->at_max_lease, "wait or terminate");
	CheckNumber(def, "max_attempts", def->max_attempts, 1, PG_INT16_MAX);
	/* written so that a NaN is refused too */
	if (!(def->backoff_factor >= 1) || isinf(def->backoff_factor))
		Problem(def, "backoff_factor", "must be a finite number of at least 1");
	CheckNumber(def, "batch_size", def->batch_size, 1, JOB_IDEM_MAX_BATCH);
	/* also for keyed jobs, whose items that come due are claimed in batches */
	if (def->max_attempts == 1 && def->batch_size > 1)
		Problem(def, "max_attempts", "1 needs batch_size 1: a lost batch is re-run item by item");
	if (def->item_source != NULL && def->kind != NULL && strcmp(def->kind, "keyed") == 0)
		Problem(def, "item_source", "is for batch jobs only");
}

/* Reads the arguments of define_job; whatever is wrong with them is noted in `problems`. */
void
JobIdemDefinitionRead(FunctionCallInfo fcinfo, JobIdemDefinition *def)
{
	initStringInfo(&def->problems);
	ReadParts(fcinfo, def);
	FillDefaults(def);
	CheckParts(def);
}

/* What load.c takes. */
static void
CheckSourceColumns(JobIdemDefinition *def, TupleDesc columns)
{
	Oid key;
	Oid payload;

	if (columns == NULL || columns->natts < 1 || columns->natts > 2)
	{
		Problem(def, "item_source", "must return item_key text and, if it likes, payload jsonb");
		return;
	}
	key = TupleDescAttr(columns, 0)->atttypid;
	if (key != TEXTOID && key != VARCHAROID)
		Problem(def, "item_source",
				psprintf("its column 1, item_key, must be text, not %s", format_type_be(key)));
	if (columns->natts == 1)
		return;
	payload = TupleDescAttr(columns, 1)->atttypid;
	if (payload != JSONBOID)
		Problem(def, "item_source",
				psprintf("its column 2, payload, must be jsonb, not %s", format_type_be(payload)));
}

static void
CheckSourcePlan(JobIdemDefinition *def, SPIPlanPtr plan)
{
	List *sources = SPI_plan_get_plan_sources(plan);
	CachedPlanSource *source;
	Query *query;

	if (list_length(sources) != 1)
	{
		Problem(def, "item_source", "must be one query");
		return;
	}
	source = linitial(sources);
	query = list_length(source->query_list) == 1 ? linitial_node(Query, source->query_list) : NULL;
	if (query == NULL || query->commandType != CMD_SELECT || query->hasModifyingCTE)
		Problem(def, "item_source", "must be a SELECT, VALUES or WITH query that only reads");
	else
		CheckSourceColumns(def, source->resultDesc);
}

/* Is the error the text's fault, and not the server's? */
static bool
TextIsToBlame(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case MAKE_SQLSTATE('0', 'A', '0', '0', '0'):
		case MAKE_SQLSTATE('2', '2', '0', '0', '0'):
		case MAKE_SQLSTATE('3', 'F', '0', '0', '0'):
		case MAKE_SQLSTATE('4', '2', '0', '0', '0'):
		case MAKE_SQLSTATE('5', '4', '0', '0', '0'):
			return true;
		default:
			return false;
	}
}

/* Turns the server's error about the text into JI005; called where it has been caught. */
static void
BlameSource(JobIdemDefinition *def, MemoryContext context)
{
	ErrorData *error;
	char *what;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	if (!TextIsToBlame(error->sqlerrcode))
		PG_RE_THROW();
	FlushErrorState();
	what = error->message;
	if (error->internalpos > 0)
		what = psprintf("%s, at character %d", what, error->internalpos);
	Problem(def, "item_source", what);
	JobIdemDefinitionRaise(def);
}

/*
 * Prepares item_source as the role that it will run as. The error of a text that cannot be
 * prepared is always raised again, if under another code, and so needs no subtransaction.
 */
void
JobIdemDefinitionCheckSource(JobIdemDefinition *def, Oid owner)
{
	static Oid types[] = {DATEOID, JSONBOID};
	MemoryContext context = CurrentMemoryContext;
	JobIdemDisguise before;

	if (!OidIsValid(owner))
	{
		Problem(def, "item_source", "the job's owner, as whom it would run, is not there");
		return;
	}
	JobIdemBecome(owner, &before);
	PG_TRY();
	{
		SPIPlanPtr plan = SPI_prepare(def->item_source, lengthof(types), types);

		if (plan == NULL)
			elog(ERROR, "could not prepare item_source: %s", SPI_result_code_string(SPI_result));
		CheckSourcePlan(def, plan);
		SPI_freeplan(plan);
	}
	PG_CATCH();
	{
		BlameSource(def, context);
	}
	PG_END_TRY();
	JobIdemUnbecome(&before);
}
