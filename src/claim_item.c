/*
 * claim_item.c - claims one key: the idempotency key for any caller. Never waits but for an open
 * add_items of that key.
 *
 * It looks first: what is done, dead or closed is answered at once. Then it takes the key's
 * try-lock, and claims by compare-and-swap on the waiting row, or by inserting a new one under the
 * run lock (shared), which a finish needs exclusively. Lock order: run lock, key, lease, item.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "fault.h"
#include "job_idem.h"
#include "lease.h"
#include "lock_tag.h"
#include "lookup.h"
#include "open.h"
#include "spi.h"
#include "take.h"
#include "token.h"
#include "upstream.h"

JOB_IDEM_STATEMENT(look,
				   "SELECT i.item_no,"
				   " CASE WHEN i.state = 'pending' AND l.outcome = 'completed' THEN 'done'"
				   "  WHEN i.state = 'pending' AND l.outcome = 'open' THEN 'claimed'"
				   "  WHEN i.state = 'waiting' AND i.due_at <= $3 THEN 'due' ELSE i.state END,"
				   " i.attempts, i.result, $4 IS NOT NULL AND i.payload IS DISTINCT FROM $4"
				   " FROM job_idem.item i JOIN job_idem.run r USING (run_id)"
				   " LEFT JOIN job_idem.lease l ON l.run_id = i.run_id AND l.slice_no ="
				   "  CASE WHEN i.item_no > 0 THEN ((i.item_no - 1) / r.batch_size)::integer END"
				   " WHERE i.run_id = $1 AND i.item_key = $2",
				   4, INT8OID, TEXTOID, TIMESTAMPTZOID, JSONBOID);
JOB_IDEM_STATEMENT(lock_waiting,
				   "SELECT attempts FROM job_idem.item WHERE run_id = $1 AND item_no = $2 AND"
				   " state = 'waiting' AND due_at <= $3 FOR UPDATE SKIP LOCKED",
				   3, INT8OID, INT8OID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(claim_waiting,
				   "UPDATE job_idem.item SET state = 'claimed', token = $3, due_at = NULL"
				   " WHERE run_id = $1 AND item_no = $2 AND state = 'waiting'",
				   3, INT8OID, INT8OID, INT8OID);
JOB_IDEM_STATEMENT(insert_claimed,
				   "INSERT INTO job_idem.item (run_id, item_no, item_key, payload, state, token)"
				   " VALUES ($1, $2, $3, $4, 'claimed', $5) ON CONFLICT (run_id, item_key) DO"
				   " NOTHING",
				   5, INT8OID, INT8OID, TEXTOID, JSONBOID, INT8OID);
JOB_IDEM_STATEMENT(forget_lease, "DELETE FROM job_idem.lease WHERE token = $1", 1, INT8OID);
JOB_IDEM_STATEMENT(run_is_paused, "SELECT paused_at IS NOT NULL FROM job_idem.run WHERE run_id ="
								  " $1",
				   1, INT8OID);

typedef struct Key
{
	JobIdemClaim claim;
	const JobIdemJob *job;
	char *item_key;
	char *run_key;
	DateADT business_date;
	NullableDatum payload;
	MemoryContext context; /* of the result */
	/* what is found */
	int64 item_no;
	int16 attempts;
	NullableDatum result;
} Key;

/* The effective state of the key, "due" for waiting and due, or NULL if there is no such item. */
static const char *
Look(Key *key, bool *mismatch)
{
	JobIdemArgs args = {.n = 0};
	const char *state;
	Datum result;

	JobIdemArg(&args, Int64GetDatum(key->claim.run_id));
	JobIdemArg(&args, CStringGetTextDatum(key->item_key));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArgNullable(&args, key->payload.value, key->payload.isnull);
	if (JobIdemRunLatest(&look, &args, 1) == 0)
		return NULL;
	key->item_no = JobIdemInt64(0, 1);
	state = JobIdemText(0, 2, CurrentMemoryContext);
	key->attempts = JobIdemInt16(0, 3);
	result = JobIdemColumn(0, 4, &key->result.isnull);
	if (!key->result.isnull)
	{
		MemoryContext old = MemoryContextSwitchTo(key->context);

		key->result.value = datumCopy(result, false, -1);
		MemoryContextSwitchTo(old);
	}
	*mismatch = JobIdemBool(0, 5);
	return state;
}

/* Claims give nothing of a paused job or run, or one that is disabled. */
static bool
IsHeldBack(const Key *key)
{
	JobIdemArgs args = {.n = 0};

	if (key->job->paused || !key->job->live)
		return true;
	JobIdemArg(&args, Int64GetDatum(key->claim.run_id));
	return JobIdemRunLatest(&run_is_paused, &args, 1) == 1 && JobIdemBool(0, 1);
}

/* Its run waits for others; new keys are for later. */
static bool
IsBlocked(const Key *key)
{
	JobIdemRunRow run;

	return key->job->keyed && JobIdemFindRun(key->claim.run_id, RUN_READ, &run) &&
		run.state == RUN_BLOCKED;
}

static const char *
ClaimWaiting(Key *key)
{
	JobIdemArgs lock = {.n = 0};
	JobIdemArgs args = {.n = 0};
	Datum pick = Int64GetDatum(key->item_no);

	JobIdemArg(&lock, Int64GetDatum(key->claim.run_id));
	JobIdemArg(&lock, pick);
	JobIdemArg(&lock, TimestampTzGetDatum(JobIdemNow()));
	if (JobIdemRunLatest(&lock_waiting, &lock, 1) == 0)
		return "busy";
	JobIdemTakePicks(&key->claim, &pick, 1);
	JobIdemArg(&args, Int64GetDatum(key->claim.run_id));
	JobIdemArg(&args, pick);
	JobIdemArg(&args, Int64GetDatum(key->claim.token));
	if (JobIdemRunLatest(&claim_waiting, &args, 0) != 1)
		elog(ERROR, "locked item went away");
	return "claimed";
}

/* Is it too late for new keys of that date? */
static bool
IsPastClose(const Key *key)
{
	TimestampTz date = (TimestampTz) key->business_date * USECS_PER_DAY;

	return JobIdemNow() > JobIdemPlus(date, &key->job->close_after);
}

/* Does the run take new keys? Keyed, running, unsealed and before its close. */
static bool
TakesKeys(const Key *key)
{
	JobIdemRunRow run;

	if (!key->job->keyed || !JobIdemFindRun(key->claim.run_id, RUN_READ, &run))
		return false;
	return run.state == RUN_RUNNING && !run.sealed && !IsPastClose(key);
}

/* NULL: the key was added by somebody else meanwhile. */
static const char *
ClaimNew(Key *key)
{
	JobIdemArgs args = {.n = 0};
	JobIdemArgs lease = {.n = 0};
	Datum pick;

	if (!TakesKeys(key))
		return "closed";
	JobIdemRequireReadCommitted();
	/* a finish has it: then the run is sealed */
	if (!JobIdemTryLock(LOCK_RUN, JobIdemFold(key->claim.run_id), 0, false))
		return "closed";
	if (!JobIdemTryLock(LOCK_KEY, JobIdemFold(key->claim.run_id), JobIdemHashKey(key->item_key),
						true))
		return "busy";
	if (!TakesKeys(key))
		return "closed";
	key->item_no = -JobIdemNextValue("late_item_seq");
	key->attempts = 0;
	pick = Int64GetDatum(key->item_no);
	JobIdemTakePicks(&key->claim, &pick, 1);
	JobIdemArg(&args, Int64GetDatum(key->claim.run_id));
	JobIdemArg(&args, pick);
	JobIdemArg(&args, CStringGetTextDatum(key->item_key));
	JobIdemArgNullable(&args, key->payload.value, key->payload.isnull);
	JobIdemArg(&args, Int64GetDatum(key->claim.token));
	if (JobIdemRun(&insert_claimed, &args, 0) == 1)
		return "claimed";
	JobIdemArg(&lease, Int64GetDatum(key->claim.token));
	(void) JobIdemRun(&forget_lease, &lease, 0);
	return NULL;
}

/* Opens the missing run of a keyed job; false if another was faster. */
static bool
OpenRun(Key *key)
{
	JobIdemNewRun run = {
		.run_key = key->run_key,
		.business_date = key->business_date,
		.params = {.isnull = true},
		.version = key->job->version,
		.state = JobIdemFirstState(key->job),
		.scheduled_at = {.isnull = true},
	};

	run.reason = JobIdemUpstreamReason(key->job, run.business_date);
	if (run.reason != NULL)
		run.state = RUN_BLOCKED;
	return JobIdemInsertRun(key->job, &run, &key->claim.run_id);
}

/*
 * Finds the run, or opens it if it is a keyed job's. NULL: it is there; else the outcome: busy,
 * since another transaction is just opening it, or closed, since there is nothing to open any more.
 */
static const char *
FindOrOpenRun(Key *key)
{
	const JobIdemJob *job = key->job;

	if (JobIdemFindRunByKey(job->job_id, key->run_key, &key->claim.run_id))
		return NULL;
	job = JobIdemShareJob(job->job_id, false);
	if (job == NULL)
		return "busy";
	key->job = key->claim.job = job;
	if (!job->keyed || !job->live)
		ereport(ERROR,
				(errcode(job->live ? ERRCODE_JI_RUN_NOT_FOUND : ERRCODE_JI_RUN_NOT_OPEN),
				 errmsg("job \"%s\" has no run \"%s\"", job->name, key->run_key),
				 errhint("Open it with job_idem.open_run.")));
	if (IsPastClose(key))
		return "closed";
	JobIdemRequireReadCommitted();
	if (!JobIdemTryLock(LOCK_RUN_KEY, JobIdemFold(job->job_id), JobIdemHashKey(key->run_key), true))
		return "busy";
	if (OpenRun(key))
		return NULL;
	return JobIdemFindRunByKey(job->job_id, key->run_key, &key->claim.run_id) ? NULL : "busy";
}

/* One try; NULL: what was seen has changed, look again. */
static const char *
TryClaim(Key *key)
{
	bool mismatch = false;
	const char *state = Look(key, &mismatch);

	if (state == NULL && IsBlocked(key))
		return "waiting";
	if (state == NULL)
		return IsHeldBack(key) && TakesKeys(key) ? "waiting" : ClaimNew(key);
	if (mismatch)
		return "mismatch";
	if (strcmp(state, "done") == 0 || strcmp(state, "dead") == 0)
		return state;
	if (strcmp(state, "claimed") == 0)
		return "busy";
	if (IsHeldBack(key))
		return "waiting";
	if (strcmp(state, "due") != 0)
		return "waiting";
	if (!JobIdemTryLock(LOCK_KEY, JobIdemFold(key->claim.run_id), JobIdemHashKey(key->item_key),
						true))
		return "busy";
	return ClaimWaiting(key);
}

/*
 * A run that has ended, or been cancelled, answers for the keys it knows as done or dead, and is
 * closed to others.
 */
static const char *
Outcome(Key *key)
{
	const char *outcome = NULL;
	JobIdemRunRow run;
	bool mismatch;

	JobIdemGetRun(key->claim.run_id, RUN_READ, &run);
	key->claim.version = run.version;
	if (run.state != RUN_RUNNING && run.state != RUN_LOADING && run.state != RUN_BLOCKED)
	{
		outcome = Look(key, &mismatch);
		if (outcome != NULL && mismatch)
			return "mismatch";
		if (outcome != NULL && (strcmp(outcome, "done") == 0 || strcmp(outcome, "dead") == 0))
			return outcome;
		return "closed";
	}
	while (outcome == NULL)
	{
		CHECK_FOR_INTERRUPTS();
		outcome = TryClaim(key);
	}
	return outcome;
}

static Datum
ResultRow(FunctionCallInfo fcinfo, const Key *key, const char *outcome)
{
	bool claimed = strcmp(outcome, "claimed") == 0;
	bool done = strcmp(outcome, "done") == 0;
	Datum values[5];
	bool nulls[5] = {false, !claimed, !claimed, !done || key->result.isnull, !claimed};

	values[0] = CStringGetTextDatum(outcome);
	values[1] = Int64GetDatum(key->claim.token);
	values[2] = Int32GetDatum(key->attempts + 1);
	values[3] = key->result.value;
	values[4] = TimestampTzGetDatum(key->claim.deadline);
	return JobIdemRow(fcinfo, values, nulls);
}

PG_FUNCTION_INFO_V1(job_idem_claim_item);
Datum
job_idem_claim_item(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	Key key = {0};
	const char *outcome;
	JobIdemScope scope;

	key.context = CurrentMemoryContext;
	key.business_date = JobIdemDateArgument(fcinfo, 1, "business_date");
	key.item_key = JobIdemKeyArgument(fcinfo, 2, "item_key");
	key.claim.worker = JobIdemWorkerArgument(fcinfo, 3);
	key.claim.lease = JobIdemLeaseArgument(fcinfo, 4);
	key.payload.isnull = PG_ARGISNULL(5);
	key.payload.value = PG_GETARG_DATUM(5);
	if (!key.payload.isnull)
		JobIdemCheckPayload(key.payload.value, "payload");
	key.run_key = JobIdemRunKeyArgument(fcinfo, 6, key.business_date);
	JobIdemEnter(&scope);
	key.job = key.claim.job = JobIdemJobByName(name);
	JobIdemRequire(key.job->job_id, key.job->owner, key.job->name, RIGHT_WORK);
	outcome = FindOrOpenRun(&key);
	if (outcome == NULL)
		outcome = Outcome(&key);
	outcome = MemoryContextStrdup(key.context, outcome);
	JobIdemFaultPoint("claim_item");
	JobIdemLeave(&scope);
	PG_RETURN_DATUM(ResultRow(fcinfo, &key, outcome));
}
