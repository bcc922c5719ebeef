/*
 * backoff.c - how long to wait before the next try.
 *
 * Pure and total: attempt, times (microseconds) and key are arguments, and every attempt from 1 up
 * has a delay. The jitter is a hash of key and attempt, so that a mass failure does not come back
 * in one second and a test can repeat it.
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "clock.h"

/* A number in [0, 1) that is the same for the same key and attempt, on every platform. */
static double
Jitter(const char *key, int attempt)
{
	uint64 hash = hash_bytes_extended((const unsigned char *) key, strlen(key), (uint64) attempt);

	return (double) (hash >> 11) / (double) (UINT64CONST(1) << 53);
}

/* d = min(base * factor^(attempt - 1), max), then uniform in [d/2, d]. */
int64
JobIdemBackoff(int attempt, int64 base, double factor, int64 max, const char *key)
{
	double grown = (double) base * pow(factor, attempt - 1);
	int64 delay;

	/* 0 * infinity is not a number: a base of zero never waits */
	if (base == 0)
		return 0;
	delay = grown < (double) max ? (int64) grown : max;
	return delay - (int64) ((double) delay / 2 * Jitter(key, attempt));
}

static int64
SpanArgument(FunctionCallInfo fcinfo, int i, const char *name)
{
	int64 micros = JobIdemIntervalMicros(PG_GETARG_INTERVAL_P(i));

	if (micros < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative", name),
				 errhint("Give an interval of zero or more.")));
	return micros;
}

PG_FUNCTION_INFO_V1(job_idem_backoff_delay);
Datum
job_idem_backoff_delay(PG_FUNCTION_ARGS)
{
	int i;
	double factor;

	for (i = 0; i < 5; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("arguments of backoff_delay must not be null"),
					 errhint("Leave an argument out to get its default.")));
	factor = PG_GETARG_FLOAT8(2);
	if (PG_GETARG_INT32(0) < 1 || !(factor >= 1) || isinf(factor))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempt and factor must be 1 or more"),
				 errhint("Attempts are counted from 1.")));
	PG_RETURN_INTERVAL_P(JobIdemMicrosInterval(JobIdemBackoff(PG_GETARG_INT32(0),
															  SpanArgument(fcinfo, 1, "base"),
															  factor,
															  SpanArgument(fcinfo, 3, "max"),
															  text_to_cstring(PG_GETARG_TEXT_PP(
																  4)))));
}
