/*
 * access.c - who may do what, and acting as the tables' owner.
 *
 * Every SQL-callable verb opens a scope: it connects to SPI, remembers the caller, becomes the
 * extension's owner and pins search_path, so that nobody needs rights on the tables and no name of
 * a caller's schema is ever used. The verb then checks the caller's right on the job it found. An
 * error leaves the scope by itself: the server restores user and settings when it aborts the
 * (sub)transaction.
 *
 * Plans are kept, and one made while a table was small would read the whole of it, or of a run, for
 * ever after: so scans that do not follow an index, and sorts, are switched off inside a scope (a
 * drain of 10,000 slices ran at a quarter of its speed without). JIT would compile those one-row
 * plans.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/syscache.h"

#include "access.h"
#include "job_idem.h"
#include "spi.h"

JOB_IDEM_STATEMENT(find_levels, "SELECT role::oid, level FROM job_idem.access", 0, InvalidOid);
JOB_IDEM_STATEMENT(find_workers, "SELECT role::oid FROM job_idem.job_worker WHERE job_id = $1",
				   1, INT8OID);
/* who called the verb that is running now; valid inside a scope */
static Oid current_caller = InvalidOid;

/* The owner of our schema, which owns tables and functions as well. */
Oid
JobIdemOwner(void)
{
	Oid schema = get_namespace_oid("job_idem", false);
	HeapTuple tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for schema %u", schema);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* A setting for the rest of the scope. */
void
JobIdemPin(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

/* A lock is waited for so many milliseconds at most, for the rest of the scope. */
void
JobIdemPinLockTimeout(int most)
{
	if (LockTimeout == 0 || LockTimeout > most)
		JobIdemPin("lock_timeout", psprintf("%d", most));
}

static void
Switch(JobIdemScope *scope)
{
	GetUserIdAndSecContext(&scope->caller, &scope->caller_context);
	SetUserIdAndSecContext(JobIdemOwner(),
						   scope->caller_context | SECURITY_LOCAL_USERID_CHANGE);
	scope->guc_level = NewGUCNestLevel();
	JobIdemPin("search_path", "pg_catalog, pg_temp");
	JobIdemPin("enable_seqscan", "off");
	JobIdemPin("enable_bitmapscan", "off");
	JobIdemPin("enable_sort", "off");
	JobIdemPin("jit", "off");
	scope->outer_caller = current_caller;
	current_caller = scope->caller;
}

/* Opens a scope. Results that outlive it belong into the context of the call. */
void
JobIdemEnter(JobIdemScope *scope)
{
	JobIdemConnect();
	Switch(scope);
}

/* The same for a procedure that has connected by itself and commits between scopes. */
void
JobIdemEnterConnected(JobIdemScope *scope)
{
	Switch(scope);
}

void
JobIdemLeaveConnected(JobIdemScope *scope)
{
	AtEOXact_GUC(false, scope->guc_level);
	SetUserIdAndSecContext(scope->caller, scope->caller_context);
	current_caller = scope->outer_caller;
}

void
JobIdemLeave(JobIdemScope *scope)
{
	JobIdemLeaveConnected(scope);
	JobIdemDisconnect();
}

/*
 * Acts as a role on behalf of a job, outside or inside a scope: in a restricted security context
 * and with search_path pinned. The text that runs so may call our functions, which change the
 * caller in force.
 */
void
JobIdemBecome(Oid role, JobIdemDisguise *before)
{
	int context;

	before->caller = current_caller;
	GetUserIdAndSecContext(&before->user, &before->context);
	context = before->context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION;
	SetUserIdAndSecContext(role, context);
	before->guc_level = NewGUCNestLevel();
	JobIdemPin("search_path", "pg_catalog, pg_temp");
}

void
JobIdemUnbecome(const JobIdemDisguise *before)
{
	AtEOXact_GUC(false, before->guc_level);
	SetUserIdAndSecContext(before->user, before->context);
	current_caller = before->caller;
}

Oid
JobIdemCaller(void)
{
	return current_caller;
}

/* After an error that was caught: scopes that it left have not put the caller back. */
void
JobIdemRestoreCaller(Oid caller)
{
	current_caller = caller;
}

const char *
JobIdemCallerName(void)
{
	return GetUserNameFromId(current_caller, false);
}

static bool
LevelIncludes(const char *level, JobIdemRight right)
{
	switch (right)
	{
		case RIGHT_VIEW:
			return true;
		case RIGHT_WORK:
			return strcmp(level, "viewer") != 0;
		case RIGHT_OPERATE:
			return strcmp(level, "operator") == 0;
	}
	return false;
}

static bool
HasLevel(Oid caller, JobIdemRight right)
{
	JobIdemArgs none = {.n = 0};
	uint64 n = JobIdemRun(&find_levels, &none, 0);
	uint64 i;

	for (i = 0; i < n; i++)
		if (LevelIncludes(JobIdemText(i, 2, CurrentMemoryContext), right) &&
			has_privs_of_role(caller, JobIdemOid(i, 1)))
			return true;
	return false;
}

static bool
IsWorkerOf(Oid caller, int64 job_id)
{
	JobIdemArgs args = {.n = 0};
	uint64 n;
	uint64 i;

	JobIdemArg(&args, Int64GetDatum(job_id));
	n = JobIdemRun(&find_workers, &args, 0);
	for (i = 0; i < n; i++)
		if (has_privs_of_role(caller, JobIdemOid(i, 1)))
			return true;
	return false;
}

/*
 * The cheap answers first: superusers, the extension's owner and the job's owner cost no
 * statement. Overwrites the last statement's result otherwise.
 */
bool
JobIdemHasRight(int64 job_id, Oid job_owner, JobIdemRight right)
{
	Oid caller = current_caller;

	if (superuser_arg(caller) || has_privs_of_role(caller, JobIdemOwner()))
		return true;
	if (OidIsValid(job_owner) && has_privs_of_role(caller, job_owner))
		return true;
	if (HasLevel(caller, right))
		return true;
	return right <= RIGHT_WORK && IsWorkerOf(caller, job_id);
}

void
JobIdemRequire(int64 job_id, Oid job_owner, const char *job, JobIdemRight right)
{
	static const char *const words[] = {"view", "work on", "operate"};

	if (!JobIdemHasRight(job_id, job_owner, right))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to %s job \"%s\"", words[right], job),
				 errdetail("Role \"%s\" has no such right on this job.", JobIdemCallerName()),
				 errhint("The job's owner may call job_idem.grant_worker, the extension's owner"
						 " job_idem.grant_access.")));
}

void
JobIdemRequireOwner(const char *what)
{
	if (!superuser_arg(current_caller) && !has_privs_of_role(current_caller, JobIdemOwner()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to %s", what),
				 errhint("The role needs the rights of the extension's owner.")));
}
