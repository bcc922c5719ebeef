/*
 * backend.c - which server processes there are, from the array in shared memory that
 * pg_stat_activity shows, and without the rights that the view asks for.
 *
 * The server copies the array once a transaction. So a caller looks anew (JobIdemBackendsLook)
 * after it has read what it asks about: then a process that is missing from the copy has ended.
 */
#include "postgres.h"

#include "utils/backend_status.h"

#include "backend.h"
#include "compat.h"

/* Forgets the copy; the next question takes another. */
void
JobIdemBackendsLook(void)
{
	pgstat_clear_backend_activity_snapshot();
}

static const PgBackendStatus *
Find(int pid)
{
	int n = pgstat_fetch_stat_numbackends();
	int i;

	for (i = 1; i <= n; i++)
	{
		const LocalPgBackendStatus *local = JobIdemBackendStatus(i);

		if (local != NULL && local->backendStatus.st_procpid == pid)
			return &local->backendStatus;
	}
	return NULL;
}

/* Is the process that started then under that number still there? Numbers are used again. */
bool
JobIdemBackendLives(int pid, TimestampTz start)
{
	const PgBackendStatus *status = Find(pid);

	return status != NULL && status->st_proc_start_timestamp == start;
}

/* When its transaction began; 0 if it has none, or with track_activities off. */
TimestampTz
JobIdemBackendXactStart(int pid)
{
	const PgBackendStatus *status = Find(pid);

	return status == NULL ? 0 : status->st_xact_start_timestamp;
}
