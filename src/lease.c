/*
 * lease.c - the lease row as the fence: locking it, what belongs to it, closing it.
 *
 * Verbs lock the lease first and read afterwards, in a new statement, so that no expiry slips
 * between a check and the commit: FOR KEY SHARE for one item, FOR UPDATE for the whole lease, FOR
 * NO KEY UPDATE (which passes KEY SHARE) for a heartbeat. Lock order: lease (by token), then items
 * (by item_no). All locks last to the end of the transaction.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "current.h"
#include "job_idem.h"
#include "lease.h"
#include "spi.h"

#define LEASE_COLUMNS \
	"SELECT run_id, slice_no, n_items, outcome, claimed_at, deadline, hard_deadline" \
	" FROM job_idem.lease WHERE token = $1"

JOB_IDEM_STATEMENT(lease_read, LEASE_COLUMNS, 1, INT8OID);
JOB_IDEM_STATEMENT(lease_key_share, LEASE_COLUMNS " FOR KEY SHARE", 1, INT8OID);
JOB_IDEM_STATEMENT(lease_update, LEASE_COLUMNS " FOR UPDATE", 1, INT8OID);
JOB_IDEM_STATEMENT(lease_try_update, LEASE_COLUMNS " FOR UPDATE SKIP LOCKED", 1, INT8OID);
JOB_IDEM_STATEMENT(lease_try_no_key, LEASE_COLUMNS " FOR NO KEY UPDATE SKIP LOCKED", 1, INT8OID);

JOB_IDEM_STATEMENT(context,
				   "SELECT j.job_id, j.name, j.owner::oid, r.cancel_forced, r.batch_size,"
				   " r.retries_closed IS NOT NULL"
				   " FROM job_idem.run r JOIN job_idem.job j USING (job_id) WHERE r.run_id = $1",
				   1, INT8OID);

/*
 * An item of lease $2 that is still to be finished: $4 to $5 is the slice's range, empty for
 * picks.
 */
#define UNFINISHED \
	"((state = 'pending' AND item_no BETWEEN $4 AND $5) OR (state = 'claimed' AND token = $2))"

JOB_IDEM_STATEMENT(lock_item,
				   "SELECT item_no, attempts, lost FROM job_idem.item"
				   " WHERE run_id = $1 AND item_key = $3 AND " CAS(UNFINISHED) " FOR NO KEY UPDATE",
				   5, INT8OID, INT8OID, TEXTOID, INT8OID, INT8OID);

JOB_IDEM_STATEMENT(slice_census,
				   "SELECT count(*) FILTER (WHERE state = 'pending'),"
				   " count(*) FILTER (WHERE state = 'done' AND token = $2)"
				   " FROM job_idem.item WHERE run_id = $1 AND item_no BETWEEN $3 AND $4",
				   4, INT8OID, INT8OID, INT8OID, INT8OID);
JOB_IDEM_STATEMENT(pick_census,
				   "SELECT count(*) FILTER (WHERE i.state = 'claimed'), count(*) FILTER (WHERE"
				   " i.state = 'done')"
				   " FROM job_idem.lease l JOIN job_idem.item i ON i.run_id = l.run_id AND"
				   " i.item_no = ANY (l.picks)"
				   " WHERE l.token = $1 AND i.token = $1",
				   1, INT8OID);

JOB_IDEM_STATEMENT(slice_give_back,
				   "UPDATE job_idem.item SET state = 'waiting', due_at = $4, token = NULL"
				   " WHERE run_id = $1 AND item_no BETWEEN $2 AND $3 AND state = 'pending'",
				   4, INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID);
JOB_IDEM_STATEMENT(pick_give_back,
				   "UPDATE job_idem.item i SET state = 'waiting', due_at = $2, token = NULL FROM"
				   " job_idem.lease l"
				   " WHERE l.token = $1 AND i.run_id = l.run_id AND i.item_no = ANY (l.picks)"
				   " AND i.state = 'claimed' AND i.token = $1",
				   2, INT8OID, TIMESTAMPTZOID);

#define CLOSE(failures) \
	"UPDATE job_idem.lease SET outcome = $2, closed_at = $3, n_done = $4," \
	" (n_failed, n_retried) = " failures ", n_lost = CASE WHEN $2 = 'expired' THEN $5 ELSE 0 END," \
	" pick_open = CASE WHEN picks IS NOT NULL THEN false END" \
	" WHERE token = $1 AND outcome = 'open'"
JOB_IDEM_STATEMENT(close_lease, CLOSE("(0, 0)"), 5, INT8OID, TEXTOID, TIMESTAMPTZOID, INT4OID,
				   INT4OID);
/* where neither done nor left accounts for all */
JOB_IDEM_STATEMENT(close_with_failures,
				   CLOSE("(SELECT count(*), count(retry_at) FROM job_idem.failure"
						 " WHERE token = $1 AND kind <> 'lost')"),
				   5, INT8OID, TEXTOID, TIMESTAMPTZOID, INT4OID, INT4OID);

/* by lookups that the planner cannot turn into anything else, whatever it believes of the table */
JOB_IDEM_STATEMENT(count_done_keys,
				   "SELECT count(DISTINCT k.item_key)"
				   " FROM job_idem.lease l JOIN job_idem.run r USING (run_id)"
				   " CROSS JOIN unnest($2) AS k (item_key)"
				   " CROSS JOIN LATERAL (SELECT i.state, i.token, i.item_no FROM job_idem.item i"
				   "  WHERE i.run_id = l.run_id AND i.item_key = k.item_key OFFSET 0) i"
				   " WHERE l.token = $1 AND ((i.state = 'done' AND i.token = $1)"
				   "  OR (i.state = 'pending' AND l.outcome = 'completed' AND i.item_no > 0"
				   "  AND (i.item_no - 1) / r.batch_size = l.slice_no))",
				   2, INT8OID, TEXTARRAYOID);

/* An item that is left. Work mostly goes upward, so the last one stays to be seen longest. */
JOB_IDEM_STATEMENT(last_of_slice,
				   "SELECT item_no FROM job_idem.item WHERE run_id = $1 AND item_no BETWEEN $2"
				   " AND $3 AND state = 'pending' ORDER BY item_no DESC LIMIT 1",
				   3, INT8OID, INT8OID, INT8OID);
/* walks the list, not the index, so that it ends at the first that is left */
JOB_IDEM_STATEMENT(last_of_picks,
				   "SELECT x.item_no FROM job_idem.lease l"
				   " CROSS JOIN LATERAL generate_subscripts(l.picks, 1, true) AS s (n)"
				   " CROSS JOIN LATERAL (SELECT i.item_no FROM job_idem.item i"
				   "  WHERE i.run_id = l.run_id AND i.item_no = l.picks[s.n]"
				   "  AND i.state = 'claimed' AND i.token = $1 OFFSET 0) AS x"
				   " WHERE l.token = $1 LIMIT 1",
				   1, INT8OID);

static const char *const outcome_names[] = {
	[OUTCOME_OPEN] = "open",
	[OUTCOME_COMPLETED] = "completed",
	[OUTCOME_RELEASED] = "released",
	[OUTCOME_EXPIRED] = "expired",
};

const char *
JobIdemOutcomeName(JobIdemOutcome outcome)
{
	return outcome_names[outcome];
}

static JobIdemOutcome
OutcomeOf(const char *name)
{
	int i;

	for (i = 0; i < (int) lengthof(outcome_names); i++)
		if (strcmp(outcome_names[i], name) == 0)
			return (JobIdemOutcome) i;
	elog(ERROR, "unknown outcome \"%s\"", name);
}

void
JobIdemStaleToken(int64 token, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_JI_STALE_TOKEN),
			 errmsg("claim " INT64_FORMAT " is not, or no longer, yours", token),
			 errdetail("%s", detail),
			 errhint("Roll back, drop this work and claim again: what is unfinished belongs to"
					 " others now."
					 " job_idem.claim_status(token) tells what became of the claim.")));
}

/* The claim is open, but not for this: nothing else may be wrong than a key or a number. */
void
JobIdemNotHeld(int64 token, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_JI_STALE_TOKEN),
			 errmsg("claim " INT64_FORMAT " is open, but not for this", token),
			 errdetail("%s", detail),
			 errhint("Compare the keys and numbers of the call with what the claim returned; what"
					 " was reported once cannot be reported again.")));
}

void
JobIdemAlreadyDone(int64 token, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_JI_ALREADY_DONE),
			 errmsg("claim " INT64_FORMAT " has completed this already", token),
			 errdetail("%s", detail),
			 errhint("Roll back: the writes of this transaction would be a second effect."
					 " job_idem.claim_status(token) tells what was done.")));
}

/* For those who only ask about a claim, or operate it. */
void
JobIdemNoSuchClaim(int64 token)
{
	ereport(ERROR,
			(errcode(ERRCODE_JI_STALE_TOKEN),
			 errmsg("claim " INT64_FORMAT " does not exist", token),
			 errdetail("It is still uncommitted elsewhere, was rolled back, or was never issued."),
			 errhint("job_idem.leases lists the claims there are.")));
}

static JobIdemStatement *
LockStatement(JobIdemLeaseLock lock)
{
	switch (lock)
	{
		case LEASE_READ:
			return &lease_read;
		case LEASE_KEY_SHARE:
			return &lease_key_share;
		case LEASE_UPDATE:
			return &lease_update;
		case LEASE_TRY_UPDATE:
			return &lease_try_update;
		case LEASE_TRY_NO_KEY:
			return &lease_try_no_key;
	}
	return NULL;
}

/* Locks a lease and reads it; false if there is none, or, when trying, if it is locked. */
bool
JobIdemLeaseGet(int64 token, JobIdemLeaseLock lock, JobIdemLease *lease)
{
	JobIdemArgs args = {.n = 0};
	bool is_null;

	memset(lease, 0, sizeof(*lease));
	lease->token = token;
	JobIdemArg(&args, Int64GetDatum(token));
	if (JobIdemRunLatest(LockStatement(lock), &args, 1) == 0)
		return false;
	lease->run_id = JobIdemInt64(0, 1);
	lease->is_slice = !JobIdemIsNull(0, 2);
	lease->slice_no = lease->is_slice ? JobIdemInt32(0, 2) : -1;
	lease->n_items = JobIdemInt32(0, 3);
	lease->outcome = OutcomeOf(JobIdemText(0, 4, CurrentMemoryContext));
	lease->claimed_at = DatumGetTimestampTz(JobIdemColumn(0, 5, &is_null));
	lease->deadline = DatumGetTimestampTz(JobIdemColumn(0, 6, &is_null));
	lease->hard_deadline = DatumGetTimestampTz(JobIdemColumn(0, 7, &is_null));
	return true;
}

/* Reads what the lease's run and job say, in a statement of its own after the lock. */
void
JobIdemLeaseContext(JobIdemLease *lease)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(lease->run_id));
	if (JobIdemRunLatest(&context, &args, 1) == 0)
		JobIdemRunGone(lease->run_id);
	lease->job_id = JobIdemInt64(0, 1);
	lease->job = JobIdemText(0, 2, CurrentMemoryContext);
	lease->job_owner = JobIdemOid(0, 3);
	lease->forced = JobIdemBool(0, 4);
	lease->batch_size = JobIdemInt32(0, 5);
	lease->retries_closed = JobIdemBool(0, 6);
	lease->first = lease->is_slice ? (int64) lease->slice_no * lease->batch_size + 1 : 1;
	lease->last = lease->is_slice ? ((int64) lease->slice_no + 1) * lease->batch_size : 0;
}

/*
 * The beginning of every verb of a claim's holder: locks the lease, checks the caller's right on
 * the job (tokens are guessable) and that the run was not cancelled with force. JI001 if there is
 * no such lease.
 */
void
JobIdemLeaseFence(int64 token, JobIdemLeaseLock lock, JobIdemLease *lease)
{
	if (!JobIdemLeaseGet(token, lock, lease))
		JobIdemStaleToken(token, "No committed claim has this token: it is still uncommitted"
								 " elsewhere, was rolled"
								 " back, or was never issued.");
	JobIdemLeaseContext(lease);
	JobIdemRequire(lease->job_id, lease->job_owner, lease->job, RIGHT_WORK);
	if (lease->forced)
		ereport(ERROR,
				(errcode(ERRCODE_JI_RUN_NOT_OPEN),
				 errmsg("run " INT64_FORMAT " was cancelled with force", lease->run_id),
				 errdetail("Claim " INT64_FORMAT " of job \"%s\" is void.", token, lease->job),
				 errhint("Roll back and drop this work.")));
}

/* The same for a verb about one item; the transaction's next mark need not do it again. */
JobIdemFenced *
JobIdemLeaseFenceItem(int64 token, JobIdemLease *lease)
{
	JobIdemFenced fenced = {.token = token, .caller = JobIdemCaller()};

	JobIdemLeaseFence(token, LEASE_KEY_SHARE, lease);
	fenced.run_id = lease->run_id;
	fenced.is_slice = lease->is_slice;
	fenced.first = lease->first;
	fenced.last = lease->last;
	JobIdemCurrentFence(&fenced);
	return JobIdemCurrentFenced(token, fenced.caller);
}

/* JI010 if the lease is completed, JI001 if it ended otherwise. */
void
JobIdemLeaseRequireOpen(const JobIdemLease *lease)
{
	if (lease->outcome == OUTCOME_COMPLETED)
		JobIdemAlreadyDone(lease->token, "Its lease is completed.");
	if (lease->outcome != OUTCOME_OPEN)
		JobIdemStaleToken(lease->token,
						  psprintf("Its lease is %s.", outcome_names[lease->outcome]));
}

/*
 * Some of these keys could not be marked. JI010 if all of them are done under this token by now,
 * so that the caller's writes would be a second effect; else JI001.
 */
void
JobIdemLeaseRefuse(int64 token, const char *const *keys, int n_keys)
{
	Datum *values = palloc(n_keys * sizeof(Datum));
	const char *detail;
	JobIdemLease lease;
	ArrayType *array;
	JobIdemArgs args = {.n = 0};
	int i;

	for (i = 0; i < n_keys; i++)
		values[i] = CStringGetTextDatum(keys[i]);
	JobIdemArg(&args, Int64GetDatum(token));
	array = construct_array(values, n_keys, TEXTOID, -1, false, TYPALIGN_INT);
	JobIdemArg(&args, PointerGetDatum(array));
	(void) JobIdemRunLatest(&count_done_keys, &args, 1);
	if (JobIdemInt64(0, 1) == n_keys)
		JobIdemAlreadyDone(token,
						   n_keys == 1 ? psprintf("Item \"%s\" is done under this token.",
												  JobIdemShown(keys[0]))
									   : "All items of the call that it did not complete now"
										 " were done under this token before.");
	detail = n_keys == 1 ? psprintf("Item \"%s\" is not to be finished under this token.",
									JobIdemShown(keys[0]))
						 : "An item of the call is not to be finished under this token.";
	if (JobIdemLeaseGet(token, LEASE_READ, &lease) && lease.outcome == OUTCOME_OPEN)
		JobIdemNotHeld(token, detail);
	JobIdemStaleToken(token, detail);
}

/* Locks an item that is unfinished under the lease; JI010 or JI001 if it is not, or no longer. */
void
JobIdemLeaseLockItem(const JobIdemLease *lease, const char *key, JobIdemItem *item)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(lease->run_id));
	JobIdemArg(&args, Int64GetDatum(lease->token));
	JobIdemArg(&args, CStringGetTextDatum(key));
	JobIdemArg(&args, Int64GetDatum(lease->first));
	JobIdemArg(&args, Int64GetDatum(lease->last));
	if (lease->outcome != OUTCOME_OPEN || JobIdemRunLatest(&lock_item, &args, 1) == 0)
		JobIdemLeaseRefuse(lease->token, &key, 1);
	item->item_no = JobIdemInt64(0, 1);
	item->attempts = JobIdemInt16(0, 2);
	item->lost = JobIdemInt16(0, 3);
}

/*
 * The beginning of a verb that does something under a claim without completing it: the lease, and
 * the item if one is named, are the transaction's until it ends, and the claim is one of its
 * current claims. Unlike a completion it is refused past the hard deadline (JI001), so that no
 * holder can go on for ever.
 */
void
JobIdemLeaseHold(int64 token, const char *key, JobIdemLease *lease)
{
	JobIdemItem item;

	JobIdemLeaseFence(token, LEASE_KEY_SHARE, lease);
	if (key != NULL)
		JobIdemLeaseLockItem(lease, key, &item);
	JobIdemLeaseRequireOpen(lease);
	if (JobIdemNow() > lease->hard_deadline)
	{
		const char *end = timestamptz_to_str(lease->hard_deadline);

		JobIdemStaleToken(token, psprintf("It is past its hard deadline, %s.", end));
	}
	JobIdemCurrentAdd(token, CURRENT_HOLD);
}

/*
 * Counts the lease's items that are unfinished and those done under it, as the newest snapshot
 * shows them.
 */
void
JobIdemLeaseCensus(const JobIdemLease *lease, int64 *n_left, int64 *n_done)
{
	JobIdemArgs args = {.n = 0};

	if (lease->is_slice)
	{
		JobIdemArg(&args, Int64GetDatum(lease->run_id));
		JobIdemArg(&args, Int64GetDatum(lease->token));
		JobIdemArg(&args, Int64GetDatum(lease->first));
		JobIdemArg(&args, Int64GetDatum(lease->last));
		(void) JobIdemRunLatest(&slice_census, &args, 1);
	}
	else
	{
		JobIdemArg(&args, Int64GetDatum(lease->token));
		(void) JobIdemRunLatest(&pick_census, &args, 1);
	}
	*n_left = JobIdemInt64(0, 1);
	*n_done = JobIdemInt64(0, 2);
}

/*
 * Closes an open lease under which n_done items were done, and of which n_left were moved just
 * now.
 */
bool
JobIdemLeaseClose(const JobIdemLease *lease, JobIdemOutcome outcome, int64 n_done, int64 n_left)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(lease->token));
	JobIdemArg(&args, CStringGetTextDatum(outcome_names[outcome]));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	JobIdemArg(&args, Int32GetDatum((int32) n_done));
	JobIdemArg(&args, Int32GetDatum((int32) n_left));
	JobIdemCurrentUnfence(lease->token);
	if (n_done + n_left == lease->n_items)
		return JobIdemRunLatest(&close_lease, &args, 0) == 1;
	return JobIdemRunLatest(&close_with_failures, &args, 0) == 1;
}

/*
 * The lazy close: whoever sees nothing left of an open lease completes it. Two threads may each
 * miss the other's last mark; then the next heartbeat, release or expiry does it.
 */
bool
JobIdemLeaseCloseIfFinished(const JobIdemLease *lease)
{
	int64 n_left;
	int64 n_done;

	JobIdemLeaseCensus(lease, &n_left, &n_done);
	return n_left == 0 && JobIdemLeaseClose(lease, OUTCOME_COMPLETED, n_done, 0);
}

/*
 * Is anything left of the lease, as far as this transaction sees? It looks only when it has
 * finished the item that it saw last; another thread may have finished that one meanwhile: then
 * the lease stays open for the next heartbeat, release or expiry to close.
 */
static bool
HasMore(JobIdemFenced *fenced, int64 finished)
{
	JobIdemArgs args = {.n = 0};
	JobIdemStatement *look = fenced->is_slice ? &last_of_slice : &last_of_picks;

	if (fenced->witness != 0 && fenced->witness != finished)
		return true;
	JobIdemArg(&args, Int64GetDatum(fenced->is_slice ? fenced->run_id : fenced->token));
	if (fenced->is_slice)
	{
		JobIdemArg(&args, Int64GetDatum(fenced->first));
		JobIdemArg(&args, Int64GetDatum(fenced->last));
	}
	fenced->witness = JobIdemRunLatest(look, &args, 1) == 1 ? JobIdemInt64(0, 1) : 0;
	return fenced->witness != 0;
}

/* After an item of the lease was finished: completes the lease if that was the last. */
void
JobIdemLeaseLazyClose(JobIdemFenced *fenced, int64 item_no)
{
	JobIdemLease lease;

	if (HasMore(fenced, item_no) || !JobIdemLeaseGet(fenced->token, LEASE_READ, &lease))
		return;
	JobIdemLeaseContext(&lease);
	(void) JobIdemLeaseCloseIfFinished(&lease);
}

/* Returns what is unfinished to waiting, due at once; the caller holds the lease FOR UPDATE. */
int64
JobIdemLeaseGiveBack(const JobIdemLease *lease)
{
	JobIdemArgs args = {.n = 0};

	if (lease->is_slice)
	{
		JobIdemArg(&args, Int64GetDatum(lease->run_id));
		JobIdemArg(&args, Int64GetDatum(lease->first));
		JobIdemArg(&args, Int64GetDatum(lease->last));
	}
	else
		JobIdemArg(&args, Int64GetDatum(lease->token));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	return (int64) JobIdemRunLatest(lease->is_slice ? &slice_give_back : &pick_give_back, &args, 0);
}

/* A deadline: start + lease, but never past the hard one. */
TimestampTz
JobIdemLeaseEnd(TimestampTz start, const Interval *lease, TimestampTz hard)
{
	return Min(JobIdemPlus(start, lease), hard);
}

/* A lease given by the caller; NULL if left out. */
Interval *
JobIdemLeaseArgument(FunctionCallInfo fcinfo, int i)
{
	if (PG_ARGISNULL(i))
		return NULL;
	if (JobIdemIntervalMicros(PG_GETARG_INTERVAL_P(i)) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lease must be positive"),
				 errhint("Leave it out to get the job's.")));
	return PG_GETARG_INTERVAL_P(i);
}
