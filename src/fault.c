/*
 * fault.c - named steps at which tests wait, fail or crash; in place of injection points, so that
 * no proof is skipped on a stock server.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "fmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"

#include "fault.h"
#include "job_idem.h"

/*
 * Waits for as long as a session holds advisory lock `key`, as the test does, whatever the lock
 * timeout is.
 */
static void
WaitFor(const char *key)
{
	Datum number = DirectFunctionCall1(int8in, CStringGetDatum(key));
	int timeout = LockTimeout;

	LockTimeout = 0;
	PG_TRY();
	{
		(void) DirectFunctionCall1(pg_advisory_lock_int8, number);
	}
	PG_FINALLY();
	{
		LockTimeout = timeout;
	}
	PG_END_TRY();
	(void) DirectFunctionCall1(pg_advisory_unlock_int8, number);
}

void
JobIdemFaultPoint(const char *step)
{
	const char *setting = job_idem_fault_point;
	size_t length = strlen(step);

	if (likely(setting == NULL || setting[0] == '\0'))
		return;
	if (strncmp(setting, step, length) != 0 || setting[length] != ':')
		return;
	setting += length + 1;
	if (strncmp(setting, "wait:", 5) == 0)
		WaitFor(setting + 5);
	else if (strcmp(setting, "crash") == 0)
		kill(getpid(), SIGKILL);
	else
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("fault point \"%s\" reached", step),
				 errhint("Reset job_idem.fault_point.")));
}
