/*
 * guarded.c - runs an action in a subtransaction, so that its error stops nothing else.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "access.h"
#include "guarded.h"

/* An operator's wish to stop is not the action's error. */
static bool
IsStop(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN ||
		error->sqlerrcode == ERRCODE_CRASH_SHUTDOWN;
}

/* NULL if the action went well; else what went wrong, with everything the action did undone. */
ErrorData *
JobIdemTry(JobIdemAction action, void *argument)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Oid caller = JobIdemCaller();
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		action(argument);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		JobIdemRestoreCaller(caller);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error != NULL && IsStop(error))
		ReThrowError(error);
	return error;
}
