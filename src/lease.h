#ifndef JOB_IDEM_LEASE_H
#define JOB_IDEM_LEASE_H

#include "datatype/timestamp.h"

#include "compat.h"
#include "current.h"
#include "lookup.h"

typedef enum JobIdemOutcome
{
	OUTCOME_OPEN,
	OUTCOME_COMPLETED,
	OUTCOME_RELEASED,
	OUTCOME_EXPIRED
} JobIdemOutcome;

/* How a verb locks the lease row, the fence of everything that happens under it. */
typedef enum JobIdemLeaseLock
{
	LEASE_READ,		  /* looks only */
	LEASE_KEY_SHARE,  /* verbs about one item */
	LEASE_UPDATE,	  /* verbs about the whole lease: waits for those about one item */
	LEASE_TRY_UPDATE, /* expiry: SKIP LOCKED */
	LEASE_TRY_NO_KEY  /* heartbeat: passes KEY SHARE, skips what closes */
} JobIdemLeaseLock;

/*
 * A statement about the open leases of run $1: only those that the tally has not counted can be
 * open.
 */
#define JOB_IDEM_WITH_TALLY \
	"WITH t AS MATERIALIZED (SELECT folded, behind FROM job_idem.tally WHERE run_id = $1) "
#define JOB_IDEM_OPEN(cols, cond) \
	"SELECT " cols " FROM job_idem.lease l" \
	" WHERE l.run_id = $1 AND l.outcome = 'open' AND (" cond ")"
#define JOB_IDEM_OPEN_ABOVE(cols, cond) \
	JOB_IDEM_OPEN(cols, cond) \
	" AND l.slice_no > (SELECT folded FROM t) UNION ALL "
#define JOB_IDEM_OPEN_BEHIND(cols, cond) \
	JOB_IDEM_OPEN(cols, cond) \
	" AND l.slice_no = ANY ((SELECT behind FROM t)::integer[]) UNION ALL "
#define JOB_IDEM_OPEN_PICKS(cols, cond) JOB_IDEM_OPEN(cols, cond) " AND l.pick_open IS NOT NULL"
#define JOB_IDEM_OPEN_UNION(cols, cond) \
	JOB_IDEM_OPEN_ABOVE(cols, cond) \
	JOB_IDEM_OPEN_BEHIND(cols, cond) \
	JOB_IDEM_OPEN_PICKS(cols, cond)
#define JOB_IDEM_OPEN_LEASES(cols, cond) JOB_IDEM_WITH_TALLY JOB_IDEM_OPEN_UNION(cols, cond)

typedef struct JobIdemLease
{
	int64 token;
	int64 run_id;
	bool is_slice;
	int32 slice_no;
	int32 n_items;
	JobIdemOutcome outcome;
	TimestampTz claimed_at;
	TimestampTz deadline;
	TimestampTz hard_deadline;
	bool backend_gone; /* set by expiry: it was bound to a backend that is there no more */
	/* from the run and the job, read after the lock */
	int64 job_id;
	char *job;
	Oid job_owner;
	bool forced;
	bool retries_closed;
	int32 batch_size;
	/* items of a slice; an empty range for picks */
	int64 first;
	int64 last;
} JobIdemLease;

/* An item of a lease, locked and still to be finished under it. */
typedef struct JobIdemItem
{
	int64 item_no;
	int16 attempts;
	int16 lost;
} JobIdemItem;

extern bool JobIdemLeaseGet(int64 token, JobIdemLeaseLock lock, JobIdemLease *lease);
extern void JobIdemLeaseContext(JobIdemLease *lease);
extern void JobIdemLeaseFence(int64 token, JobIdemLeaseLock lock, JobIdemLease *lease);
extern JobIdemFenced *JobIdemLeaseFenceItem(int64 token, JobIdemLease *lease);
extern void JobIdemLeaseLazyClose(JobIdemFenced *fenced, int64 item_no);
extern void JobIdemLeaseRequireOpen(const JobIdemLease *lease);
extern void JobIdemLeaseLockItem(const JobIdemLease *lease, const char *key, JobIdemItem *item);
extern void JobIdemLeaseHold(int64 token, const char *key, JobIdemLease *lease);
extern void JobIdemLeaseRefuse(int64 token, const char *const *keys, int n_keys);

extern void JobIdemLeaseCensus(const JobIdemLease *lease, int64 *n_left, int64 *n_done);
extern bool JobIdemLeaseClose(const JobIdemLease *lease, JobIdemOutcome outcome, int64 n_done,
							  int64 n_left);
extern bool JobIdemLeaseCloseIfFinished(const JobIdemLease *lease);
extern int64 JobIdemLeaseGiveBack(const JobIdemLease *lease);

pg_noreturn extern void JobIdemStaleToken(int64 token, const char *detail);
pg_noreturn extern void JobIdemNotHeld(int64 token, const char *detail);
pg_noreturn extern void JobIdemNoSuchClaim(int64 token);
pg_noreturn extern void JobIdemAlreadyDone(int64 token, const char *detail);
extern const char *JobIdemOutcomeName(JobIdemOutcome outcome);
extern TimestampTz JobIdemLeaseEnd(TimestampTz start, const Interval *lease, TimestampTz hard);
extern Interval *JobIdemLeaseArgument(FunctionCallInfo fcinfo, int i);

#endif
