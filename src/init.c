/*
 * init.c - the module: magic, settings, hooks.
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "current.h"
#include "job_idem.h"

JOB_IDEM_MODULE_MAGIC;

double job_idem_clock_offset = 0;
char *job_idem_clock_freeze = NULL;
char *job_idem_fault_point = NULL;
int job_idem_max_payload = 1024;
bool job_idem_try_locks = true;

void _PG_init(void);

/* Superuser-only but for the payload limit: whoever moves the clock can end every lease. */
void
_PG_init(void)
{
	DefineCustomStringVariable("job_idem.clock_freeze",
							   "Stops the clock of leases and deadlines at an instant; empty: it"
							   " runs. For tests.",
							   NULL, &job_idem_clock_freeze, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("job_idem.clock_offset",
							 "Moves the clock of leases and deadlines by so many seconds. For"
							 " tests.",
							 NULL, &job_idem_clock_offset, 0, -1e10, 1e10, PGC_SUSET, 0, NULL,
							 NULL, NULL);
	DefineCustomStringVariable("job_idem.fault_point",
							   "Waits, fails or crashes at a named step: \"step:wait:key\","
							   " \"step:error\", \"step:crash\". For tests.",
							   NULL, &job_idem_fault_point, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("job_idem.max_payload",
							"Largest payload or result of an item.",
							NULL, &job_idem_max_payload, 1024, 1, MAX_KILOBYTES, PGC_SUSET,
							GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("job_idem.try_locks",
							 "Try-locks save waiting; the result is right without them. For tests.",
							 NULL, &job_idem_try_locks, true, PGC_SUSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("job_idem");
	JobIdemCurrentInit();
}

PG_FUNCTION_INFO_V1(job_idem_version);
Datum
job_idem_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(JOB_IDEM_VERSION));
}
