#ifndef JOB_IDEM_STATE_H
#define JOB_IDEM_STATE_H

typedef enum JobIdemRunState
{
	RUN_LOADING,
	RUN_BLOCKED,
	RUN_RUNNING,
	RUN_DONE,
	RUN_PARTIAL,
	RUN_CANCELLED,
	RUN_SKIPPED,
	RUN_EXPIRED
} JobIdemRunState;

extern const char *JobIdemRunStateName(JobIdemRunState state);
extern JobIdemRunState JobIdemRunStateOf(const char *name);
extern bool JobIdemRunStateEnded(JobIdemRunState state);
extern bool JobIdemRunMay(const char *verb, JobIdemRunState from, JobIdemRunState to);

#endif
