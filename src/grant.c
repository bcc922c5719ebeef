/*
 * grant.c - rights: who has a level on all jobs, who works one job, and the grants that follow.
 *
 * The tables access and job_worker decide what a caller may do with a job (access.c). EXECUTE and
 * SELECT on our objects only let him come as far as that check: a role has them for the highest
 * level that it holds anywhere, as table privilege lists them. Changes are serialized by a lock on
 * table access, since two GRANTs on one object cannot pass each other.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/json.h"

#include "access.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

#define LEVELS "ARRAY['viewer', 'worker', 'operator']"

JOB_IDEM_STATEMENT(lock_access,
				   "LOCK TABLE job_idem.access IN SHARE ROW EXCLUSIVE MODE",
				   0, InvalidOid);
JOB_IDEM_STATEMENT(upsert_access,
				   "INSERT INTO job_idem.access (role, level) VALUES ($1, $2)"
				   " ON CONFLICT (role) DO UPDATE SET level = excluded.level",
				   2, REGROLEOID, TEXTOID);
JOB_IDEM_STATEMENT(delete_access,
				   "DELETE FROM job_idem.access WHERE role = $1",
				   1, REGROLEOID);
JOB_IDEM_STATEMENT(insert_worker,
				   "INSERT INTO job_idem.job_worker (job_id, role) VALUES ($1, $2)"
				   " ON CONFLICT DO NOTHING",
				   2, INT8OID, REGROLEOID);
JOB_IDEM_STATEMENT(delete_worker,
				   "DELETE FROM job_idem.job_worker WHERE job_id = $1 AND role = $2",
				   2, INT8OID, REGROLEOID);
JOB_IDEM_STATEMENT(highest_level,
				   "SELECT coalesce(max(array_position(" LEVELS ", level)), 0) FROM ("
				   "  SELECT level FROM job_idem.access WHERE role = $1"
				   "  UNION ALL SELECT 'worker' FROM job_idem.job_worker WHERE role = $1) AS l",
				   1, REGROLEOID);
/* The rights of the levels above $1 and up to $2, a line for each kind of object. */
JOB_IDEM_STATEMENT(list_objects,
				   "SELECT format('%s ON %s %s',"
				   "  CASE kind WHEN 'TABLE' THEN 'SELECT' ELSE 'EXECUTE' END, kind,"
				   "  string_agg(name, ', ' ORDER BY name))"
				   " FROM (SELECT split_part(object, ' ', 1) AS kind,"
				   "   substr(object, strpos(object, ' ') + 1) AS name,"
				   "   array_position(" LEVELS ", level) AS rank FROM job_idem.privilege) AS p"
				   " WHERE rank > $1 AND rank <= $2 GROUP BY kind ORDER BY kind",
				   2, INT4OID, INT4OID);
JOB_IDEM_STATEMENT(job_owner,
				   "SELECT owner::oid, owner_name::text FROM job_idem.job WHERE job_id = $1",
				   1, INT8OID);

static Oid
RoleArgument(FunctionCallInfo fcinfo, int i)
{
	if (PG_ARGISNULL(i))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("role must not be null"),
				 errhint("Give the name of a role.")));
	return get_role_oid(NameStr(*PG_GETARG_NAME(i)), false);
}

static char *
LevelArgument(FunctionCallInfo fcinfo, int i)
{
	char *level = JobIdemTextArgument(fcinfo, i, "level");

	if (strcmp(level, "viewer") != 0 && strcmp(level, "worker") != 0 &&
		strcmp(level, "operator") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown level \"%s\"", level),
				 errhint("Levels are viewer, worker and operator.")));
	return level;
}

static void
LockAccess(void)
{
	JobIdemArgs none = {.n = 0};

	(void) JobIdemRun(&lock_access, &none, 0);
}

/* 0 for none, else the place of the highest level that the role has on any job. */
static int
HighestLevel(Oid role)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, ObjectIdGetDatum(role));
	(void) JobIdemRunLatest(&highest_level, &args, 1);
	return JobIdemInt32(0, 1);
}

static void
Execute(const char *command)
{
	int code = SPI_execute(command, false, 0);

	if (code != SPI_OK_UTILITY)
		elog(ERROR, "\"%s\" failed: %s", command, SPI_result_code_string(code));
}

/* Grants or revokes the objects of the levels above one and up to another. */
static void
ChangeGrants(Oid role, const char *verb, const char *preposition, int above, int up_to)
{
	const char *name = quote_identifier(GetUserNameFromId(role, false));
	JobIdemArgs args = {.n = 0};
	char *objects[8];
	uint64 n;
	uint64 i;

	JobIdemArg(&args, Int32GetDatum(above));
	JobIdemArg(&args, Int32GetDatum(up_to));
	n = JobIdemRun(&list_objects, &args, lengthof(objects));
	for (i = 0; i < n; i++)
		objects[i] = JobIdemText(i, 1, CurrentMemoryContext);
	for (i = 0; i < n; i++)
		Execute(psprintf("%s %s %s %s", verb, objects[i], preposition, name));
	if (above == 0)
		Execute(psprintf("%s USAGE ON SCHEMA job_idem %s %s", verb, preposition, name));
}

/* Makes the role's grants fit what it holds now; `before` is the highest level that it had. */
static void
FitGrants(Oid role, int before)
{
	int now = HighestLevel(role);

	if (now > 0)
		ChangeGrants(role, "GRANT", "TO", 0, now);
	if (now < before)
		ChangeGrants(role, "REVOKE", "FROM", now, before);
}

static void
GrantEvent(const char *verb, int64 job_id, Oid role, const char *level)
{
	StringInfoData detail;

	initStringInfo(&detail);
	appendStringInfoString(&detail, "{\"role\": ");
	escape_json(&detail, GetUserNameFromId(role, false));
	if (level != NULL)
		appendStringInfo(&detail, ", \"level\": \"%s\"", level);
	appendStringInfoChar(&detail, '}');
	JobIdemEvent(verb, job_id, 0, NULL, detail.data, NULL);
}

PG_FUNCTION_INFO_V1(job_idem_grant_access);
Datum
job_idem_grant_access(PG_FUNCTION_ARGS)
{
	Oid role = RoleArgument(fcinfo, 0);
	char *level = LevelArgument(fcinfo, 1);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	int before;

	JobIdemEnter(&scope);
	JobIdemRequireOwner("grant access to all jobs");
	LockAccess();
	before = HighestLevel(role);
	JobIdemArg(&args, ObjectIdGetDatum(role));
	JobIdemArg(&args, CStringGetTextDatum(level));
	(void) JobIdemRun(&upsert_access, &args, 0);
	FitGrants(role, before);
	GrantEvent("grant_access", 0, role, level);
	JobIdemLeave(&scope);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(job_idem_revoke_access);
Datum
job_idem_revoke_access(PG_FUNCTION_ARGS)
{
	Oid role = RoleArgument(fcinfo, 0);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	int before;
	bool revoked;

	JobIdemEnter(&scope);
	JobIdemRequireOwner("revoke access to all jobs");
	LockAccess();
	before = HighestLevel(role);
	JobIdemArg(&args, ObjectIdGetDatum(role));
	revoked = JobIdemRun(&delete_access, &args, 0) > 0;
	if (revoked)
	{
		FitGrants(role, before);
		GrantEvent("revoke_access", 0, role, NULL);
	}
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(revoked);
}

/* Adds or removes one row of job_worker; true if there was anything to do. */
static bool
ChangeWorker(FunctionCallInfo fcinfo, const char *verb, JobIdemStatement *change)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	Oid role = RoleArgument(fcinfo, 1);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	JobIdemJob *job;
	int before;
	bool changed;

	JobIdemEnter(&scope);
	job = JobIdemJobByName(name);
	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_OPERATE);
	LockAccess();
	before = HighestLevel(role);
	JobIdemArg(&args, Int64GetDatum(job->job_id));
	JobIdemArg(&args, ObjectIdGetDatum(role));
	changed = JobIdemRun(change, &args, 0) > 0;
	if (changed)
	{
		FitGrants(role, before);
		GrantEvent(verb, job->job_id, role, NULL);
	}
	JobIdemLeave(&scope);
	return changed;
}

PG_FUNCTION_INFO_V1(job_idem_grant_worker);
Datum
job_idem_grant_worker(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ChangeWorker(fcinfo, "grant_worker", &insert_worker));
}

PG_FUNCTION_INFO_V1(job_idem_revoke_worker);
Datum
job_idem_revoke_worker(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ChangeWorker(fcinfo, "revoke_worker", &delete_worker));
}

/* An answer of may_view, kept as long as the query that asks runs. */
typedef struct Answer
{
	int64 job_id;
	bool may_view;
} Answer;

typedef struct AnswerCache
{
	Oid caller;
	HTAB *answers;
} AnswerCache;

static HTAB *
Answers(FunctionCallInfo fcinfo)
{
	AnswerCache *cache = fcinfo->flinfo->fn_extra;
	HASHCTL control = {.keysize = sizeof(int64), .entrysize = sizeof(Answer)};

	if (cache == NULL)
	{
		cache = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(AnswerCache));
		fcinfo->flinfo->fn_extra = cache;
	}
	if (cache->answers != NULL && cache->caller == GetUserId())
		return cache->answers;
	if (cache->answers != NULL)
	{
		hash_destroy(cache->answers);
		cache->answers = NULL;
	}
	control.hcxt = fcinfo->flinfo->fn_mcxt;
	cache->answers = hash_create("job_idem may_view", 16, &control,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	cache->caller = GetUserId();
	return cache->answers;
}

/* Looks the job and the caller's rights up; false for an unknown job. */
static bool
MayView(int64 job_id)
{
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	bool answer = false;

	JobIdemEnter(&scope);
	JobIdemArg(&args, Int64GetDatum(job_id));
	if (JobIdemRun(&job_owner, &args, 1) > 0)
	{
		Oid owner = JobIdemOid(0, 1);
		char *name = GetUserNameFromId(owner, true);

		if (name == NULL || strcmp(name, JobIdemText(0, 2, CurrentMemoryContext)) != 0)
			owner = InvalidOid;
		answer = JobIdemHasRight(job_id, owner, RIGHT_VIEW);
	}
	JobIdemLeave(&scope);
	return answer;
}

/*
 * Views ask for every row, so superusers and the extension's owner get their answer without a
 * statement, and others by one lookup a job and query.
 */
PG_FUNCTION_INFO_V1(job_idem_may_view);
Datum
job_idem_may_view(PG_FUNCTION_ARGS)
{
	int64 job_id;
	Answer *answer;
	bool may_view;

	if (PG_ARGISNULL(0))
		PG_RETURN_BOOL(false);
	if (superuser() || has_privs_of_role(GetUserId(), JobIdemOwner()))
		PG_RETURN_BOOL(true);
	job_id = PG_GETARG_INT64(0);
	answer = hash_search(Answers(fcinfo), &job_id, HASH_FIND, NULL);
	if (answer != NULL)
		PG_RETURN_BOOL(answer->may_view);
	may_view = MayView(job_id);
	answer = hash_search(Answers(fcinfo), &job_id, HASH_ENTER, NULL);
	answer->may_view = may_view;
	PG_RETURN_BOOL(may_view);
}
