/*
 * current.c - the transaction's current claims: which claims this transaction works under.
 *
 * Backend memory, but bound to the subtransaction that made a claim current: it passes to the
 * parent on release and dies on rollback, just as the row locks do that make it true. Guards look
 * here; PREPARE TRANSACTION is refused while a claim or hold is current, since the memory would
 * not follow the transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "current.h"
#include "job_idem.h"

typedef struct CurrentClaim
{
	int64 token;
	JobIdemCurrentKind kind;
	SubTransactionId owner;
	JobIdemFenced fenced; /* token is 0 where nothing is known */
} CurrentClaim;

/* in TopTransactionContext, the newest last */
static List *claims = NIL;

static CurrentClaim *
Find(int64 token, JobIdemCurrentKind kind)
{
	int i;

	for (i = list_length(claims) - 1; i >= 0; i--)
	{
		CurrentClaim *claim = list_nth(claims, i);

		if (claim->token == token && claim->kind >= kind)
			return claim;
	}
	return NULL;
}

/*
 * A claim made current twice stays with the older subtransaction, whose locks outlive the newer
 * one's.
 */
void
JobIdemCurrentAdd(int64 token, JobIdemCurrentKind kind)
{
	MemoryContext old;
	CurrentClaim *claim;

	if (Find(token, kind) != NULL)
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	claim = palloc0(sizeof(CurrentClaim));
	claim->token = token;
	claim->kind = kind;
	claim->owner = GetCurrentSubTransactionId();
	claims = lappend(claims, claim);
	MemoryContextSwitchTo(old);
}

/*
 * Notes that the lease is locked by this transaction, so that its next mark need not do it again:
 * no more than that can be known of it without a look at the rows.
 */
void
JobIdemCurrentFence(const JobIdemFenced *fenced)
{
	CurrentClaim *claim = Find(fenced->token, CURRENT_MARK);

	if (claim == NULL)
	{
		JobIdemCurrentAdd(fenced->token, CURRENT_MARK);
		claim = Find(fenced->token, CURRENT_MARK);
	}
	claim->fenced = *fenced;
}

/* This transaction has closed the lease: nothing more is to be marked under it without a look. */
void
JobIdemCurrentUnfence(int64 token)
{
	CurrentClaim *claim = Find(token, CURRENT_MARK);

	if (claim != NULL)
		claim->fenced.token = 0;
}

/* NULL: lock the lease, and check the caller's right, first. */
JobIdemFenced *
JobIdemCurrentFenced(int64 token, Oid caller)
{
	CurrentClaim *claim = Find(token, CURRENT_MARK);

	if (claim == NULL || claim->fenced.token != token || claim->fenced.caller != caller)
		return NULL;
	return &claim->fenced;
}

static void
RefusePrepare(void)
{
	ListCell *cell;

	foreach(cell, claims)
		if (((CurrentClaim *) lfirst(cell))->kind == CURRENT_HOLD)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has claimed or holds job_idem"
							" items"),
					 errhint("Commit the claim first, and only mark items in the prepared"
							 " transaction.")));
}

static void
AtTransactionEnd(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			RefusePrepare();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			claims = NIL;
			break;
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			break;
	}
}

static void
AtSubtransactionEnd(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	ListCell *cell;

	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			foreach(cell, claims)
				if (((CurrentClaim *) lfirst(cell))->owner == subid)
					((CurrentClaim *) lfirst(cell))->owner = parent;
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			foreach(cell, claims)
				if (((CurrentClaim *) lfirst(cell))->owner == subid)
					claims = foreach_delete_current(claims, cell);
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

void
JobIdemCurrentInit(void)
{
	RegisterXactCallback(AtTransactionEnd, NULL);
	RegisterSubXactCallback(AtSubtransactionEnd, NULL);
}
