/*
 * spi.c - kept plans: prepares each of our statements once a backend, binds arguments, reads
 * results.
 *
 * All statements run inside an access scope (access.c), as the tables' owner and with a pinned
 * search_path, so that a plan is never analysed under a caller's path. A statement of a verb takes
 * a new snapshot at READ COMMITTED by itself; above it JobIdemRunLatest does what foreign keys do:
 * it looks at the latest committed rows in place of the transaction's snapshot, and the executor
 * still refuses (40001) to write a row that the transaction could not see.
 */
#include "postgres.h"

#include "access/xact.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "spi.h"

void
JobIdemConnect(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}

void
JobIdemDisconnect(void)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not disconnect from SPI");
}

void
JobIdemArgNullable(JobIdemArgs *args, Datum value, bool is_null)
{
	Assert(args->n < JOB_IDEM_MAX_ARGS);
	args->values[args->n] = value;
	args->nulls[args->n] = is_null ? 'n' : ' ';
	args->n++;
}

void
JobIdemArg(JobIdemArgs *args, Datum value)
{
	JobIdemArgNullable(args, value, false);
}

void
JobIdemArgText(JobIdemArgs *args, const char *value)
{
	JobIdemArgNullable(args, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}

static void
Prepare(JobIdemStatement *statement)
{
	SPIPlanPtr plan;

	if (statement->plan != NULL)
		return;
	plan = SPI_prepare_cursor(statement->text, statement->n_args, statement->types,
							  CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare \"%s\": %s", statement->text,
			 SPI_result_code_string(SPI_result));
	statement->plan = plan;
}

static uint64
Check(const JobIdemStatement *statement, int code)
{
	if (code < 0)
		elog(ERROR, "statement failed: %s: \"%s\"", SPI_result_code_string(code), statement->text);
	return SPI_processed;
}

/*
 * Runs a statement, reads at most `limit` rows (0: all), and returns how many it read or changed.
 */
uint64
JobIdemRun(JobIdemStatement *statement, const JobIdemArgs *args, uint64 limit)
{
	int code;

	Prepare(statement);
	Assert(args->n == statement->n_args);
	code = SPI_execute_plan(statement->plan, (Datum *) args->values, args->nulls, false, limit);
	return Check(statement, code);
}

/* The same on the latest committed rows, whatever the isolation level. */
uint64
JobIdemRunLatest(JobIdemStatement *statement, const JobIdemArgs *args, uint64 limit)
{
	Snapshot latest;
	int code;

	if (!IsolationUsesXactSnapshot())
		return JobIdemRun(statement, args, limit);

	Prepare(statement);
	CommandCounterIncrement();
	latest = RegisterSnapshot(GetLatestSnapshot());
	code = SPI_execute_snapshot(statement->plan, (Datum *) args->values, args->nulls,
								latest, InvalidSnapshot, false, true, limit);
	UnregisterSnapshot(latest);
	return Check(statement, code);
}

/*
 * Sends the rows of a SELECT to a receiver, without a copy in between, and returns how many there
 * were. It too looks at the latest committed rows: read_only makes SPI use the snapshot that is
 * active, and that is a new one.
 */
uint64
JobIdemRunInto(JobIdemStatement *statement, const JobIdemArgs *args, DestReceiver *dest)
{
	SPIExecuteOptions options = {0};
	ParamListInfo params;
	uint64 processed;
	int i;

	Prepare(statement);
	Assert(args->n == statement->n_args);
	params = makeParamList(args->n);
	for (i = 0; i < args->n; i++)
	{
		params->params[i].value = args->values[i];
		params->params[i].isnull = args->nulls[i] == 'n';
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = statement->types[i];
	}
	options.params = params;
	options.dest = dest;
	options.read_only = true;
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	processed = Check(statement, SPI_execute_plan_extended(statement->plan, &options));
	PopActiveSnapshot();
	return processed;
}

void
JobIdemFreeRows(void)
{
	SPI_freetuptable(SPI_tuptable);
}

Datum
JobIdemColumn(uint64 row, int column, bool *is_null)
{
	Assert(SPI_tuptable != NULL && row < SPI_tuptable->numvals);
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, is_null);
}

static Datum
NotNull(uint64 row, int column)
{
	bool is_null;
	Datum value = JobIdemColumn(row, column, &is_null);

	if (is_null)
		elog(ERROR, "unexpected null in column %d", column);
	return value;
}

int64
JobIdemInt64(uint64 row, int column)
{
	return DatumGetInt64(NotNull(row, column));
}

int32
JobIdemInt32(uint64 row, int column)
{
	return DatumGetInt32(NotNull(row, column));
}

int16
JobIdemInt16(uint64 row, int column)
{
	return DatumGetInt16(NotNull(row, column));
}

bool
JobIdemBool(uint64 row, int column)
{
	return DatumGetBool(NotNull(row, column));
}

Oid
JobIdemOid(uint64 row, int column)
{
	return DatumGetObjectId(NotNull(row, column));
}

bool
JobIdemIsNull(uint64 row, int column)
{
	bool is_null;

	(void) JobIdemColumn(row, column, &is_null);
	return is_null;
}

/* A text column as a C string in the given context; NULL for NULL. */
char *
JobIdemText(uint64 row, int column, MemoryContext context)
{
	bool is_null;
	Datum value = JobIdemColumn(row, column, &is_null);
	MemoryContext old;
	char *string;

	if (is_null)
		return NULL;
	old = MemoryContextSwitchTo(context);
	string = TextDatumGetCString(value);
	MemoryContextSwitchTo(old);
	return string;
}
