/*
 * fail.c - mark_failed: reports a failed try. Nothing in its texts can make the report itself
 * fail.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "classify.h"
#include "clock.h"
#include "dead_letter.h"
#include "fault.h"
#include "job_idem.h"
#include "lease.h"
#include "lookup.h"
#include "spi.h"

#define CUT_MARK " [cut]"

/* A text of the caller's, cut with a visible marker where it is too long. */
static char *
CutArgument(FunctionCallInfo fcinfo, int i, int limit)
{
	text *value;
	int length;

	if (PG_ARGISNULL(i))
		return NULL;
	value = PG_GETARG_TEXT_PP(i);
	length = VARSIZE_ANY_EXHDR(value);
	if (length <= limit)
		return text_to_cstring(value);
	length = pg_mbcliplen(VARDATA_ANY(value), length, limit);
	return psprintf("%s" CUT_MARK, pnstrdup(VARDATA_ANY(value), length));
}

/*
 * The caller's word decides; then the SQLSTATE; what says neither is unknown, and as business not
 * tried again.
 */
static void
Classify(FunctionCallInfo fcinfo, JobIdemFailure *failure)
{
	if (!PG_ARGISNULL(5))
		failure->kind = PG_GETARG_BOOL(5) ? FAILURE_TRANSIENT : FAILURE_BUSINESS;
	else
		failure->kind = JobIdemClassify(failure->sqlstate);
	failure->retry = failure->kind == FAILURE_TRANSIENT;
}

static Datum
ResultRow(FunctionCallInfo fcinfo, bool retry, TimestampTz retry_at)
{
	Datum values[2] = {CStringGetTextDatum(retry ? "waiting" : "dead"),
					   TimestampTzGetDatum(retry_at)};
	bool nulls[2] = {false, !retry};

	return JobIdemRow(fcinfo, values, nulls);
}

PG_FUNCTION_INFO_V1(job_idem_mark_failed);
Datum
job_idem_mark_failed(PG_FUNCTION_ARGS)
{
	int64 token = JobIdemInt64Argument(fcinfo, 0, "token");
	JobIdemFailure failure = {
		.token = token,
		.item_key = JobIdemTextArgument(fcinfo, 1, "item_key"),
		.message = CutArgument(fcinfo, 2, JOB_IDEM_MAX_MESSAGE),
		.sqlstate = CutArgument(fcinfo, 3, 5),
		.error_class = CutArgument(fcinfo, 4, 200),
	};
	JobIdemScope scope;
	JobIdemLease lease;
	JobIdemItem item;
	JobIdemFenced *fenced;
	TimestampTz retry_at;
	bool retry;

	Classify(fcinfo, &failure);
	JobIdemEnter(&scope);
	fenced = JobIdemLeaseFenceItem(token, &lease);
	JobIdemLeaseLockItem(&lease, failure.item_key, &item);
	failure.run_id = lease.run_id;
	failure.item_no = item.item_no;
	failure.attempts = Min(item.attempts + 1, PG_INT16_MAX);
	failure.lost = item.lost;
	retry = JobIdemFail(JobIdemJobById(lease.job_id), &failure, &retry_at);
	JobIdemFaultPoint("mark_failed");
	JobIdemLeaseLazyClose(fenced, item.item_no);
	JobIdemLeave(&scope);
	PG_RETURN_DATUM(ResultRow(fcinfo, retry, retry_at));
}
