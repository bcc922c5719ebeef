/*
 * day_list.c - the days that a caller's query lists, checked.
 *
 * The query runs outside the scope, with the caller's rights and search_path, and before anything
 * is locked. It may only read, and it cannot change the session that it runs in.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"

#include "day_list.h"
#include "job_idem.h"
#include "open.h"
#include "spi.h"

#define MAX_DAYS 100000

JOB_IDEM_STATEMENT(find_repeated,
				   "SELECT u.day, max(u.n)"
				   " FROM unnest($1, $2, $3) WITH ORDINALITY AS u (day, is_open, note, n)"
				   " GROUP BY u.day HAVING count(DISTINCT (u.is_open, u.note)) > 1"
				   " ORDER BY 2 LIMIT 1",
				   3, DATEARRAYOID, BOOLARRAYOID, TEXTARRAYOID);

static void
CheckColumns(TupleDesc columns)
{
	if (columns == NULL || columns->natts < 2 || columns->natts > 3 ||
		TupleDescAttr(columns, 0)->atttypid != DATEOID ||
		TupleDescAttr(columns, 1)->atttypid != BOOLOID ||
		(columns->natts == 3 && TupleDescAttr(columns, 2)->atttypid != TEXTOID &&
		 TupleDescAttr(columns, 2)->atttypid != VARCHAROID))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the query must return day date, is_open boolean and, if it likes,"
						" note text"),
				 errhint("Cast the columns: SELECT holiday::date, false, name::text ...")));
}

static void
CheckPlan(SPIPlanPtr plan)
{
	List *sources = SPI_plan_get_plan_sources(plan);
	CachedPlanSource *source = list_length(sources) == 1 ? linitial(sources) : NULL;
	Query *query = NULL;

	if (source != NULL && list_length(source->query_list) == 1)
		query = linitial_node(Query, source->query_list);
	if (query == NULL || query->commandType != CMD_SELECT || query->hasModifyingCTE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a query that lists days must be one that only reads"),
				 errhint("Give one SELECT, VALUES or WITH query.")));
	CheckColumns(source->resultDesc);
}

/* Returns how many rows there are, in SPI_tuptable. To be called connected, outside a scope. */
static uint64
RunQuery(const char *query)
{
	SPIPlanPtr plan = SPI_prepare(query, 0, NULL);
	int code;

	if (plan == NULL)
		elog(ERROR, "could not prepare the query of days: %s", SPI_result_code_string(SPI_result));
	CheckPlan(plan);
	code = SPI_execute_plan(plan, NULL, NULL, false, MAX_DAYS + 1);
	if (code != SPI_OK_SELECT)
		elog(ERROR, "the query of days failed: %s", SPI_result_code_string(code));
	if (SPI_processed > MAX_DAYS)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("the query lists more than %d days", MAX_DAYS),
				 errhint("List exceptions to the weekly rule only, or load them in parts.")));
	return SPI_processed;
}

static uint64
RunRestricted(const char *query)
{
	Oid user;
	int context;
	uint64 n;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(user, context | SECURITY_RESTRICTED_OPERATION);
	n = RunQuery(query);
	SetUserIdAndSecContext(user, context);
	return n;
}

static Datum
ReadColumn(uint64 row, int column, const char *name)
{
	bool is_null;
	Datum value = JobIdemColumn(row, column, &is_null);

	if (is_null)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s of row " UINT64_FORMAT " is null", name, row + 1),
				 errhint("Leave such rows out: a day that is not listed is no exception.")));
	return value;
}

static Datum
ReadDay(uint64 row)
{
	Datum day = ReadColumn(row, 1, "day");

	if (DATE_NOT_FINITE(DatumGetDateADT(day)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("day of row " UINT64_FORMAT " must be finite", row + 1),
				 errhint("Give a calendar date.")));
	return day;
}

/* Somebody's words, cut where too long; 0 for none. */
static Datum
ReadNote(uint64 row)
{
	char *note = JobIdemText(row, 3, CurrentMemoryContext);

	if (note == NULL)
		return (Datum) 0;
	if (strlen(note) > JOB_IDEM_MAX_REASON)
		note[pg_mbcliplen(note, strlen(note), JOB_IDEM_MAX_REASON)] = '\0';
	return CStringGetTextDatum(note);
}

static Datum
ArrayOf(Datum *values, bool *nulls, int n, Oid type)
{
	int16 length;
	bool by_value;
	char align;
	int lower = 1;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	return PointerGetDatum(construct_md_array(values, nulls, 1, &n, &lower, type, length,
											  by_value, align));
}

static JobIdemDayList *
ReadRows(uint64 n)
{
	JobIdemDayList *list = palloc(sizeof(JobIdemDayList));
	bool with_note = SPI_tuptable->tupdesc->natts == 3;
	Datum *days = palloc(n * sizeof(Datum));
	Datum *is_open = palloc(n * sizeof(Datum));
	Datum *notes = palloc0(n * sizeof(Datum));
	bool *no_note = palloc(n * sizeof(bool));
	uint64 row;

	for (row = 0; row < n; row++)
	{
		CHECK_FOR_INTERRUPTS();
		days[row] = ReadDay(row);
		is_open[row] = ReadColumn(row, 2, "is_open");
		if (with_note)
			notes[row] = ReadNote(row);
		no_note[row] = notes[row] == (Datum) 0;
	}
	list->days = ArrayOf(days, NULL, (int) n, DATEOID);
	list->is_open = ArrayOf(is_open, NULL, (int) n, BOOLOID);
	list->notes = ArrayOf(notes, no_note, (int) n, TEXTOID);
	SPI_freetuptable(SPI_tuptable);
	return list;
}

static void
RefuseContradiction(const JobIdemDayList *list)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, list->days);
	JobIdemArg(&args, list->is_open);
	JobIdemArg(&args, list->notes);
	if (JobIdemRun(&find_repeated, &args, 1) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_JI_KEY_CONFLICT),
			 errmsg("row " INT64_FORMAT " says otherwise of a day than a row before it",
					JobIdemInt64(0, 2)),
			 errdetail("Day %s.", JobIdemRunKeyOf(JobIdemInt32(0, 1))),
			 errhint("Let the query return one row for each day.")));
}

/*
 * Runs a query in place of the scope, which is left and entered again, and returns what it listed.
 * Raises 22023 if it does more than read, JI009 for too many rows, 42804 for other columns; and,
 * naming the row, 22004 for a NULL, 22023 for an infinite day, JI006 for a day that is there twice
 * and differently. One that is there twice and the same may stay so.
 */
JobIdemDayList *
JobIdemListDays(JobIdemScope *scope, const char *query)
{
	JobIdemDayList *list;
	uint64 n;

	JobIdemLeaveConnected(scope);
	n = RunRestricted(query);
	JobIdemEnterConnected(scope);
	list = ReadRows(n);
	RefuseContradiction(list);
	return list;
}
