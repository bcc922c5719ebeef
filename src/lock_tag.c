/*
 * lock_tag.c - transaction-level locks in a space of our own.
 *
 * Try-locks save waiting for another's open transaction; constraints and compare-and-swap decide.
 * With job_idem.try_locks off every try succeeds without a lock, and the ledger must still come
 * out right (test/t, ablation).
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "job_idem.h"
#include "lock_tag.h"

static void
SetTag(LOCKTAG *tag, JobIdemLockClass kind, uint32 high, uint32 low)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, high, low, (uint16) kind);
}

static LOCKMODE
ModeOf(bool exclusive)
{
	return exclusive ? ExclusiveLock : ShareLock;
}

bool
JobIdemTryLock(JobIdemLockClass kind, uint32 high, uint32 low, bool exclusive)
{
	LOCKTAG tag;

	if (!job_idem_try_locks && (kind == LOCK_SLICE || kind == LOCK_KEY || kind == LOCK_RUN_KEY))
		return true;
	SetTag(&tag, kind, high, low);
	return LockAcquire(&tag, ModeOf(exclusive), false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Waits. */
void
JobIdemLock(JobIdemLockClass kind, uint32 high, uint32 low, bool exclusive)
{
	LOCKTAG tag;

	SetTag(&tag, kind, high, low);
	(void) LockAcquire(&tag, ModeOf(exclusive), false, false);
}

uint32
JobIdemFold(int64 id)
{
	return hash_bytes_uint32((uint32) id) ^ (uint32) (id >> 32);
}

uint32
JobIdemHashKey(const char *key)
{
	return hash_bytes((const unsigned char *) key, strlen(key)) % JOB_IDEM_KEY_TAGS;
}
