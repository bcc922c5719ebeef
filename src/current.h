#ifndef JOB_IDEM_CURRENT_H
#define JOB_IDEM_CURRENT_H

typedef enum JobIdemCurrentKind
{
	CURRENT_MARK, /* mark_done: may be prepared */
	CURRENT_HOLD  /* claim or hold: may not */
} JobIdemCurrentKind;

extern void JobIdemCurrentInit(void);
extern void JobIdemCurrentAdd(int64 token, int64 job_id, JobIdemCurrentKind kind);

#endif
