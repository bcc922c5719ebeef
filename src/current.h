#ifndef JOB_IDEM_CURRENT_H
#define JOB_IDEM_CURRENT_H

typedef enum JobIdemCurrentKind
{
	CURRENT_MARK, /* a mark: may be prepared */
	CURRENT_HOLD  /* claim or hold: may not */
} JobIdemCurrentKind;

/* A lease that this transaction has locked and whose rights it has checked. */
typedef struct JobIdemFenced
{
	int64 token;
	Oid caller;
	int64 run_id;
	bool is_slice;
	int64 first; /* items of a slice */
	int64 last;
	int64 witness; /* an item that was left at the last look; 0: look */
} JobIdemFenced;

extern void JobIdemCurrentInit(void);
extern void JobIdemCurrentAdd(int64 token, JobIdemCurrentKind kind);
extern void JobIdemCurrentFence(const JobIdemFenced *fenced);
extern void JobIdemCurrentUnfence(int64 token);
extern JobIdemFenced *JobIdemCurrentFenced(int64 token, Oid caller);

#endif
