/*
 * event.c - the append-only record of operator actions and run transitions. Never holds payloads
 * or messages.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "event.h"
#include "spi.h"

JOB_IDEM_STATEMENT(insert_event,
				   "INSERT INTO job_idem.event (at, by, job_id, run_id, item_key, verb, detail)"
				   " VALUES ($1, $2::name, $3, $4, $5, $6,"
				   "  CASE WHEN $8 IS NULL THEN $7::jsonb"
				   "   ELSE coalesce($7::jsonb, '{}') || jsonb_build_object('reason', $8) END)",
				   8, TIMESTAMPTZOID, TEXTOID, INT8OID, INT8OID, TEXTOID, TEXTOID, TEXTOID,
				   TEXTOID);

void
JobIdemEvent(const char *verb, int64 job_id, int64 run_id, const char *item_key,
			 const char *detail, const char *reason)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArgText(&args, JobIdemCallerName());
	JobIdemArgNullable(&args, Int64GetDatum(job_id), job_id == 0);
	JobIdemArgNullable(&args, Int64GetDatum(run_id), run_id == 0);
	JobIdemArgText(&args, item_key);
	JobIdemArgText(&args, verb);
	JobIdemArgText(&args, detail);
	JobIdemArgText(&args, reason);
	(void) JobIdemRun(&insert_event, &args, 0);
}
