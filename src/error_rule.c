/*
 * error_rule.c - set_error_rule and drop_error_rule: what kind of failure an error is.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "event.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

JOB_IDEM_STATEMENT(put_rule,
				   "INSERT INTO job_idem.error_rule AS r"
				   " (job_id, sqlstate, error_class, kind, note, set_at, set_by)"
				   " VALUES ($1, $2, $3, $4, $5, $6, $7::name)"
				   " ON CONFLICT (job_id, sqlstate, error_class) DO UPDATE SET"
				   "  kind = excluded.kind, note = excluded.note, set_at = excluded.set_at,"
				   "  set_by = excluded.set_by"
				   " WHERE (r.kind, r.note) IS DISTINCT FROM (excluded.kind, excluded.note)",
				   7, INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TEXTOID);
JOB_IDEM_STATEMENT(drop_rule,
				   "DELETE FROM job_idem.error_rule WHERE job_id IS NOT DISTINCT FROM $1"
				   " AND sqlstate IS NOT DISTINCT FROM $2 AND error_class IS NOT DISTINCT FROM $3",
				   3, INT8OID, TEXTOID, TEXTOID);
JOB_IDEM_STATEMENT(rule_detail,
				   "SELECT jsonb_strip_nulls(jsonb_build_object('sqlstate', $1, 'error_class', $2,"
				   " 'kind', $3))::text",
				   3, TEXTOID, TEXTOID, TEXTOID);

/* What a rule is about. */
typedef struct Rule
{
	int64 job_id; /* 0: all jobs */
	char *sqlstate;
	char *error_class;
} Rule;

static void
RefuseRule(const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s", what),
			 errhint("%s", hint)));
}

static void
CheckSqlstate(const char *sqlstate)
{
	size_t length = strspn(sqlstate, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	if (length < 1 || length > 5 || sqlstate[length] != '\0')
		RefuseRule("sqlstate must be a SQLSTATE or the beginning of one",
				   "Give one to five digits and capital letters, such as 40 or 40001.");
}

static void
ReadPattern(FunctionCallInfo fcinfo, int i, Rule *rule)
{
	rule->sqlstate = JobIdemTextArgumentOrNull(fcinfo, i);
	rule->error_class = JobIdemTextArgumentOrNull(fcinfo, i + 1);
	if ((rule->sqlstate == NULL) == (rule->error_class == NULL))
		RefuseRule("a rule is about a SQLSTATE or about an error class",
				   "Give one of sqlstate and error_class.");
	if (rule->sqlstate != NULL)
		CheckSqlstate(rule->sqlstate);
	else if (rule->error_class[0] == '\0' || strlen(rule->error_class) > JOB_IDEM_MAX_CLASS)
		RefuseRule("error_class must have 1 to 200 bytes",
				   "Give a class of errors as the worker reports it, or a pattern such as"
				   " *Timeout*.");
}

static char *
ReadKind(FunctionCallInfo fcinfo, int i)
{
	char *kind = JobIdemTextArgument(fcinfo, i, "kind");

	if (strcmp(kind, "transient") != 0 && strcmp(kind, "business") != 0)
		RefuseRule("kind must be transient or business",
				   "What is transient is tried again, what is business makes a dead letter.");
	return kind;
}

/* The job that a rule is for, which the caller must have the right to operate; NULL: all. */
static void
FindJob(const char *name, Rule *rule)
{
	JobIdemJob *job;

	rule->job_id = 0;
	if (name == NULL)
	{
		JobIdemRequire(0, InvalidOid, "*", RIGHT_OPERATE);
		return;
	}
	job = JobIdemJobByName(name);
	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_OPERATE);
	rule->job_id = job->job_id;
}

static void
AddRule(JobIdemArgs *args, const Rule *rule)
{
	JobIdemArgNullable(args, Int64GetDatum(rule->job_id), rule->job_id == 0);
	JobIdemArgText(args, rule->sqlstate);
	JobIdemArgText(args, rule->error_class);
}

static void
RecordRule(const char *verb, const Rule *rule, const char *kind, const char *note)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArgText(&args, rule->sqlstate);
	JobIdemArgText(&args, rule->error_class);
	JobIdemArgText(&args, kind);
	(void) JobIdemRunLatest(&rule_detail, &args, 1);
	JobIdemEvent(verb, rule->job_id, 0, NULL, JobIdemText(0, 1, CurrentMemoryContext), note);
}

PG_FUNCTION_INFO_V1(job_idem_set_error_rule);
Datum
job_idem_set_error_rule(PG_FUNCTION_ARGS)
{
	char *kind = ReadKind(fcinfo, 0);
	Rule rule;
	char *job = JobIdemTextArgumentOrNull(fcinfo, 3);
	char *note = JobIdemReasonArgument(fcinfo, 4, false);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	bool changed;

	ReadPattern(fcinfo, 1, &rule);
	JobIdemEnter(&scope);
	FindJob(job, &rule);
	AddRule(&args, &rule);
	JobIdemArgText(&args, kind);
	JobIdemArgText(&args, note);
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArgText(&args, JobIdemCallerName());
	changed = JobIdemRun(&put_rule, &args, 0) == 1;
	if (changed)
		RecordRule("set_error_rule", &rule, kind, note);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(changed);
}

PG_FUNCTION_INFO_V1(job_idem_drop_error_rule);
Datum
job_idem_drop_error_rule(PG_FUNCTION_ARGS)
{
	Rule rule;
	char *job = JobIdemTextArgumentOrNull(fcinfo, 2);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	bool dropped;

	ReadPattern(fcinfo, 0, &rule);
	JobIdemEnter(&scope);
	FindJob(job, &rule);
	AddRule(&args, &rule);
	dropped = JobIdemRun(&drop_rule, &args, 0) == 1;
	if (dropped)
		RecordRule("drop_error_rule", &rule, NULL, NULL);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(dropped);
}
