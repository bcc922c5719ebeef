#ifndef JOB_IDEM_TALLY_H
#define JOB_IDEM_TALLY_H

typedef struct JobIdemCounts
{
	int64 n_done;
	int64 n_failed;	 /* tries reported as failed; lost ones are not among them */
	int64 n_retried; /* of those, how many led to a retry */
} JobIdemCounts;

extern void JobIdemTallyFold(int64 run_id);
extern void JobIdemTallyCount(int64 run_id, JobIdemCounts *counts);

#endif
