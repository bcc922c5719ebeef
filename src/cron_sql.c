/*
 * cron_sql.c - what a schedule means, asked from SQL: when it fires, and what it says.
 *
 * Reads no table, so that no right on a job is asked.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "cron.h"
#include "lookup.h"
#include "zone.h"

typedef struct Fires
{
	JobIdemCron cron;
	pg_tz *zone;
	TimestampTz last; /* the one returned before */
	TimestampTz to;
} Fires;

static void
ScheduleArgument(FunctionCallInfo fcinfo, int i, JobIdemCron *cron)
{
	const char *schedule = JobIdemTextArgument(fcinfo, i, "schedule");
	JobIdemCronError error;

	if (!JobIdemCronParse(schedule, cron, &error))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("schedule \"%s\" cannot be used", JobIdemShown(schedule)),
				 errdetail("%s (position %d).", error.message, error.position),
				 errhint("Five fields are minute, hour, day of month, month, day of week; six begin"
						 " with the second. For example, '30 2 * * *' is every day at 02:30.")));
}

static pg_tz *
ZoneArgument(FunctionCallInfo fcinfo, int i)
{
	const char *name = JobIdemTextArgument(fcinfo, i, "timezone");
	pg_tz *zone = JobIdemZone(name);

	if (zone == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is not known", JobIdemShown(name)),
				 errhint("The view pg_timezone_names lists the names of all zones.")));
	return zone;
}

static TimestampTz
InstantArgument(FunctionCallInfo fcinfo, int i, const char *name)
{
	TimestampTz at;

	if (PG_ARGISNULL(i))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name),
				 errhint("Leave it out to get its default, if it has one.")));
	at = PG_GETARG_TIMESTAMPTZ(i);
	if (TIMESTAMP_NOT_FINITE(at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be finite", name),
				 errhint("Give an instant.")));
	return at;
}

PG_FUNCTION_INFO_V1(job_idem_cron_next);
Datum
job_idem_cron_next(PG_FUNCTION_ARGS)
{
	TimestampTz after = InstantArgument(fcinfo, 1, "after");
	pg_tz *zone = ZoneArgument(fcinfo, 2);
	JobIdemCron cron;
	TimestampTz next;

	ScheduleArgument(fcinfo, 0, &cron);
	if (!JobIdemCronNext(&cron, zone, after, &next))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(next);
}

PG_FUNCTION_INFO_V1(job_idem_cron_previous);
Datum
job_idem_cron_previous(PG_FUNCTION_ARGS)
{
	TimestampTz before = InstantArgument(fcinfo, 1, "before");
	pg_tz *zone = ZoneArgument(fcinfo, 2);
	JobIdemCron cron;
	TimestampTz previous;

	ScheduleArgument(fcinfo, 0, &cron);
	if (!JobIdemCronPrevious(&cron, zone, before, &previous))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(previous);
}

static Fires *
ReadFires(FunctionCallInfo fcinfo)
{
	Fires *fires = palloc(sizeof(Fires));

	ScheduleArgument(fcinfo, 0, &fires->cron);
	/* the first may be at from_time itself */
	fires->last = InstantArgument(fcinfo, 1, "from_time") - 1;
	fires->to = InstantArgument(fcinfo, 2, "to_time");
	fires->zone = ZoneArgument(fcinfo, 3);
	return fires;
}

/* One fire a call, so that whoever stops early has not waited for the rest. */
PG_FUNCTION_INFO_V1(job_idem_cron_fires);
Datum
job_idem_cron_fires(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	Fires *fires;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext outer;

		call = SRF_FIRSTCALL_INIT();
		outer = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		call->user_fctx = ReadFires(fcinfo);
		MemoryContextSwitchTo(outer);
	}
	CHECK_FOR_INTERRUPTS();
	call = SRF_PERCALL_SETUP();
	fires = call->user_fctx;
	if (!JobIdemCronNext(&fires->cron, fires->zone, fires->last, &fires->last) ||
		fires->last >= fires->to)
		SRF_RETURN_DONE(call);
	SRF_RETURN_NEXT(call, TimestampTzGetDatum(fires->last));
}

PG_FUNCTION_INFO_V1(job_idem_cron_explain);
Datum
job_idem_cron_explain(PG_FUNCTION_ARGS)
{
	pg_tz *zone = PG_ARGISNULL(1) ? NULL : ZoneArgument(fcinfo, 1);
	JobIdemCron cron;

	ScheduleArgument(fcinfo, 0, &cron);
	PG_RETURN_TEXT_P(cstring_to_text(JobIdemCronExplain(&cron, zone)));
}

/*
 * No part of the extension: a test declares it, since what uses the local date does so from C.
 */
PG_FUNCTION_INFO_V1(job_idem_local_date);
Datum
job_idem_local_date(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATEADT(JobIdemLocalDate(InstantArgument(fcinfo, 0, "at"), ZoneArgument(fcinfo, 1)));
}
