/*
 * fail.c - mark_failed and mark_failed_many: report failed tries. Nothing in their texts can make
 * the report itself fail.
 *
 * What kind of failure it is the caller's word decides, then the most specific error_rule, then
 * the SQLSTATE. What none of them knows is on record as unknown and treated as the job says.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "access.h"
#include "classify.h"
#include "clock.h"
#include "compat.h"
#include "dead_letter.h"
#include "fault.h"
#include "job_idem.h"
#include "lease.h"
#include "lookup.h"
#include "spi.h"

#define CUT_MARK " [cut]"

JOB_IDEM_STATEMENT(find_rules,
				   "SELECT sqlstate, error_class, job_id IS NOT NULL, kind = 'transient'"
				   " FROM job_idem.error_rule WHERE job_id = $1 OR job_id IS NULL ORDER BY rule_id",
				   1, INT8OID);
/*
 * The places of some keys in the caller's arrays, the first of each key, in order of item_no, in
 * which the items are then locked; by lookups, as in complete.c.
 */
JOB_IDEM_STATEMENT(find_places,
				   "SELECT k.place"
				   " FROM (SELECT DISTINCT ON (item_key) item_key, place"
				   "  FROM unnest($2) WITH ORDINALITY AS u (item_key, place)"
				   "  ORDER BY item_key, place) k"
				   " LEFT JOIN LATERAL (SELECT i.item_no FROM job_idem.item i"
				   "  WHERE i.run_id = $1 AND i.item_key = k.item_key OFFSET 0) x ON true"
				   " ORDER BY x.item_no",
				   2, INT8OID, TEXTARRAYOID);

/* What a caller reports of one item. */
typedef struct Report
{
	const char *item_key;
	char *message;
	char *sqlstate;
	char *error_class;
	NullableDatum transient;
} Report;

/* The rules that a job's failures are judged by. */
typedef struct Rules
{
	JobIdemErrorRule *rules;
	int n;
} Rules;

/* A text of the caller's, cut with a visible marker where it is too long. */
static char *
Cut(NullableDatum value, int limit)
{
	text *words;
	int length;

	if (value.isnull)
		return NULL;
	words = DatumGetTextPP(value.value);
	length = VARSIZE_ANY_EXHDR(words);
	if (length <= limit)
		return text_to_cstring(words);
	length = pg_mbcliplen(VARDATA_ANY(words), length, limit);
	return psprintf("%s" CUT_MARK, pnstrdup(VARDATA_ANY(words), length));
}

static void
ReadReport(Report *report, NullableDatum message, NullableDatum sqlstate,
		   NullableDatum error_class, NullableDatum transient)
{
	report->message = Cut(message, JOB_IDEM_MAX_MESSAGE);
	report->sqlstate = Cut(sqlstate, 5);
	report->error_class = Cut(error_class, JOB_IDEM_MAX_CLASS);
	report->transient = transient;
}

static void
ReadRules(int64 job_id, Rules *rules)
{
	JobIdemArgs args = {.n = 0};
	int i;

	JobIdemArg(&args, Int64GetDatum(job_id));
	rules->n = (int) JobIdemRunLatest(&find_rules, &args, 0);
	rules->rules = palloc(Max(rules->n, 1) * sizeof(JobIdemErrorRule));
	for (i = 0; i < rules->n; i++)
	{
		rules->rules[i].sqlstate = JobIdemText(i, 1, CurrentMemoryContext);
		rules->rules[i].error_class = JobIdemText(i, 2, CurrentMemoryContext);
		rules->rules[i].of_job = JobIdemBool(i, 3);
		rules->rules[i].kind = JobIdemBool(i, 4) ? FAILURE_TRANSIENT : FAILURE_BUSINESS;
	}
}

/* What the most specific rule says, or, if there is none, the SQLSTATE. */
static JobIdemFailureKind
Judge(const Rules *rules, const Report *report)
{
	int best = -1;
	JobIdemFailureKind kind = JobIdemClassify(report->sqlstate);
	int i;

	for (i = 0; i < rules->n; i++)
	{
		int rank = JobIdemErrorRank(&rules->rules[i], report->sqlstate, report->error_class);

		if (rank > best)
		{
			best = rank;
			kind = rules->rules[i].kind;
		}
	}
	return kind;
}

static void
Classify(const JobIdemJob *job, const Rules *rules, const Report *report, JobIdemFailure *failure)
{
	if (!report->transient.isnull)
		failure->kind = DatumGetBool(report->transient.value) ? FAILURE_TRANSIENT
															  : FAILURE_BUSINESS;
	else
		failure->kind = Judge(rules, report);
	failure->retry = failure->kind == FAILURE_TRANSIENT ||
		(failure->kind == FAILURE_UNKNOWN && job->unknown_is_transient);
}

/* Locks the item, puts the failure on record and moves the item; true if it is tried again. */
static bool
FailOne(const JobIdemJob *job, const Rules *rules, const JobIdemLease *lease, const Report *report,
		int64 *item_no, TimestampTz *retry_at)
{
	JobIdemFailure failure = {
		.run_id = lease->run_id,
		.item_key = report->item_key,
		.token = lease->token,
		.budget_spent = lease->retries_closed,
		.sqlstate = report->sqlstate,
		.error_class = report->error_class,
		.message = report->message,
	};
	JobIdemItem item;

	JobIdemLeaseLockItem(lease, report->item_key, &item);
	Classify(job, rules, report, &failure);
	failure.item_no = *item_no = item.item_no;
	failure.attempts = Min(item.attempts + 1, PG_INT16_MAX);
	failure.lost = item.lost;
	return JobIdemFail(job, &failure, retry_at);
}

static NullableDatum
Argument(FunctionCallInfo fcinfo, int i)
{
	NullableDatum value;

	value.value = PG_GETARG_DATUM(i);
	value.isnull = PG_ARGISNULL(i);
	return value;
}

PG_FUNCTION_INFO_V1(job_idem_mark_failed);
Datum
job_idem_mark_failed(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	Report report = {.item_key = JobIdemTextArgument(fcinfo, 1, "item_key")};
	JobIdemScope scope;
	JobIdemLease lease;
	JobIdemFenced *fenced;
	Rules rules;
	TimestampTz retry_at;
	int64 item_no;
	bool retry;
	Datum values[2];
	bool nulls[2] = {false, false};

	ReadReport(&report, Argument(fcinfo, 2), Argument(fcinfo, 3), Argument(fcinfo, 4),
			   Argument(fcinfo, 5));
	JobIdemEnter(&scope);
	fenced = JobIdemLeaseFenceItem(token, &lease);
	ReadRules(lease.job_id, &rules);
	retry = FailOne(JobIdemJobById(lease.job_id), &rules, &lease, &report, &item_no, &retry_at);
	JobIdemFaultPoint("mark_failed");
	JobIdemLeaseLazyClose(fenced, item_no);
	JobIdemLeave(&scope);
	values[0] = CStringGetTextDatum(retry ? "waiting" : "dead");
	values[1] = TimestampTzGetDatum(retry_at);
	nulls[1] = !retry;
	PG_RETURN_DATUM(JobIdemRow(fcinfo, values, nulls));
}

/* An array argument, one element for each key, or nothing at all. */
typedef struct Column
{
	Datum *values; /* NULL: left out */
	bool *nulls;
} Column;

static Column
ReadColumn(FunctionCallInfo fcinfo, int i, const char *name, Oid type, int n_keys)
{
	Column column = {.values = NULL};
	int n;

	if (PG_ARGISNULL(i))
		return column;
	if (type == BOOLOID)
		deconstruct_array(PG_GETARG_ARRAYTYPE_P(i), type, 1, true, TYPALIGN_CHAR, &column.values,
						  &column.nulls, &n);
	else
		deconstruct_array(PG_GETARG_ARRAYTYPE_P(i), type, -1, false, TYPALIGN_INT, &column.values,
						  &column.nulls, &n);
	if (n_keys >= 0 && n != n_keys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be as many as item_keys", name),
				 errdetail("There are %d keys and %d %s.", n_keys, n, name),
				 errhint("Pass one for each key, NULL where there is none, or leave it out.")));
	return column;
}

static NullableDatum
Element(const Column *column, int i)
{
	NullableDatum value;

	value.isnull = column->values == NULL || column->nulls[i];
	value.value = value.isnull ? (Datum) 0 : column->values[i];
	return value;
}

/* The reports of mark_failed_many, as they were passed. */
typedef struct Reports
{
	ArrayType *item_keys;
	int n;
	Column keys;
	Column messages;
	Column sqlstates;
	Column error_classes;
	Column transients;
} Reports;

static void
ReadReports(FunctionCallInfo fcinfo, Reports *reports)
{
	int i;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("item_keys must not be null"),
				 errhint("Pass the keys that failed.")));
	reports->item_keys = PG_GETARG_ARRAYTYPE_P(1);
	reports->n = ArrayGetNItems(ARR_NDIM(reports->item_keys), ARR_DIMS(reports->item_keys));
	reports->keys = ReadColumn(fcinfo, 1, "item_keys", TEXTOID, -1);
	reports->messages = ReadColumn(fcinfo, 2, "messages", TEXTOID, reports->n);
	reports->sqlstates = ReadColumn(fcinfo, 3, "sqlstates", TEXTOID, reports->n);
	reports->error_classes = ReadColumn(fcinfo, 4, "error_classes", TEXTOID, reports->n);
	reports->transients = ReadColumn(fcinfo, 5, "transients", BOOLOID, reports->n);
	for (i = 0; i < reports->n; i++)
		if (reports->keys.nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("item keys must not be null"),
					 errdetail("Key number %d is null.", i + 1),
					 errhint("Pass the keys that the claim returned.")));
}

/* Fails the items in order of item_no and puts a row for each into `rows`. */
static void
FailMany(const JobIdemLease *lease, const Reports *reports, ReturnSetInfo *rows)
{
	JobIdemArgs args = {.n = 0};
	const JobIdemJob *job = JobIdemJobById(lease->job_id);
	MemoryContext turn = AllocSetContextCreate(CurrentMemoryContext, "job_idem failures",
											   ALLOCSET_DEFAULT_SIZES);
	Rules rules;
	SPITupleTable *places;
	uint64 n;
	uint64 i;

	ReadRules(lease->job_id, &rules);
	JobIdemArg(&args, Int64GetDatum(lease->run_id));
	JobIdemArg(&args, PointerGetDatum(reports->item_keys));
	n = JobIdemRunLatest(&find_places, &args, 0);
	places = SPI_tuptable;
	for (i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(turn);
		bool is_null;
		int at = (int) DatumGetInt64(SPI_getbinval(places->vals[i], places->tupdesc, 1,
												   &is_null)) -
			1;
		Report report = {.item_key = TextDatumGetCString(reports->keys.values[at])};
		int64 item_no;
		TimestampTz retry_at;
		bool retry;
		Datum values[3];
		bool nulls[3] = {false, false, false};

		CHECK_FOR_INTERRUPTS();
		ReadReport(&report, Element(&reports->messages, at), Element(&reports->sqlstates, at),
				   Element(&reports->error_classes, at), Element(&reports->transients, at));
		retry = FailOne(job, &rules, lease, &report, &item_no, &retry_at);
		values[0] = reports->keys.values[at];
		values[1] = CStringGetTextDatum(retry ? "waiting" : "dead");
		values[2] = TimestampTzGetDatum(retry_at);
		nulls[2] = !retry;
		tuplestore_putvalues(rows->setResult, rows->setDesc, values, nulls);
		JobIdemFreeRows();
		MemoryContextSwitchTo(old);
		MemoryContextReset(turn);
	}
	MemoryContextDelete(turn);
}

PG_FUNCTION_INFO_V1(job_idem_mark_failed_many);
Datum
job_idem_mark_failed_many(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	Reports reports;
	JobIdemScope scope;
	JobIdemLease lease;

	ReadReports(fcinfo, &reports);
	InitMaterializedSRF(fcinfo, 0);
	JobIdemEnter(&scope);
	(void) JobIdemLeaseFenceItem(token, &lease);
	if (reports.n > 0)
	{
		FailMany(&lease, &reports, (ReturnSetInfo *) fcinfo->resultinfo);
		JobIdemFaultPoint("mark_failed");
		(void) JobIdemLeaseCloseIfFinished(&lease);
	}
	JobIdemLeave(&scope);
	return (Datum) 0;
}
