/*
 * clock.c - the only reader of time.
 *
 * The clock is the server's at the moment of the call, not of the transaction: a lease taken late
 * in a long transaction runs from then. Tests move it with job_idem.clock_offset, or stop it with
 * job_idem.clock_freeze.
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "job_idem.h"

TimestampTz
JobIdemNow(void)
{
	TimestampTz now;

	if (job_idem_clock_freeze != NULL && job_idem_clock_freeze[0] != '\0')
		now = DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in,
													  CStringGetDatum(job_idem_clock_freeze),
													  ObjectIdGetDatum(InvalidOid),
													  Int32GetDatum(-1)));
	else
		now = GetCurrentTimestamp();
	return now + (int64) (job_idem_clock_offset * USECS_PER_SEC);
}

/*
 * Length of an interval in microseconds, months counted as 30 days as interval comparison does;
 * saturates.
 */
int64
JobIdemIntervalMicros(const Interval *span)
{
	int64 days = (int64) span->month * DAYS_PER_MONTH + span->day;
	int64 micros;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &micros))
		return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	if (pg_add_s64_overflow(micros, span->time, &micros))
		return span->time < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return micros;
}

Interval *
JobIdemMicrosInterval(int64 micros)
{
	Interval *span = palloc0(sizeof(Interval));

	span->time = micros;
	return span;
}

/* The instant a span after another; ends at the last timestamp there is. */
TimestampTz
JobIdemPlus(TimestampTz at, const Interval *span)
{
	TimestampTz sum;

	if (pg_add_s64_overflow(at, JobIdemIntervalMicros(span), &sum) || sum >= END_TIMESTAMP)
		return END_TIMESTAMP - 1;
	return sum;
}

PG_FUNCTION_INFO_V1(job_idem_now);
Datum
job_idem_now(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(JobIdemNow());
}
