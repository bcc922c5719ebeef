#ifndef JOB_IDEM_LOCK_TAG_H
#define JOB_IDEM_LOCK_TAG_H

/*
 * Our transaction-level locks live in the advisory lock space under class numbers that users'
 * functions cannot reach. Two things may share a tag: that only costs a false "taken".
 */
typedef enum JobIdemLockClass
{
	LOCK_RUN = 16, /* new keys shared, finish exclusive */
	LOCK_SLICE,
	LOCK_KEY,
	LOCK_RUN_KEY, /* opening a keyed run */
	LOCK_EPOCH,
	LOCK_TICK, /* a run that a tick is working on */
	LOCK_GRAPH /* adding a dependency; waits, after job rows and before a run lock */
} JobIdemLockClass;

/* keys of a run share so many tags, so that a transaction cannot fill the shared lock table */
#define JOB_IDEM_KEY_TAGS 1024

extern bool JobIdemTryLock(JobIdemLockClass kind, uint32 high, uint32 low, bool exclusive);
extern void JobIdemLock(JobIdemLockClass kind, uint32 high, uint32 low, bool exclusive);
extern uint32 JobIdemFold(int64 id);
extern uint32 JobIdemHashKey(const char *key);

#endif
