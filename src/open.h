#ifndef JOB_IDEM_OPEN_H
#define JOB_IDEM_OPEN_H

#include "lookup.h"

/* A run to be opened. */
typedef struct JobIdemNewRun
{
	const char *run_key;
	DateADT business_date;
	NullableDatum params;
	int32 priority;
	int32 version;
	JobIdemRunState state;
	const char *reason; /* NULL: none */
	NullableDatum scheduled_at;
	int64 waits_for; /* a run; 0: none */
} JobIdemNewRun;

extern bool JobIdemFindRunByKey(int64 job_id, const char *run_key, int64 *run_id);
extern JobIdemJob *JobIdemShareJob(int64 job_id, bool wait);
extern bool JobIdemInsertRun(const JobIdemJob *job, const JobIdemNewRun *run, int64 *run_id);
extern JobIdemRunState JobIdemFirstState(const JobIdemJob *job);
extern void JobIdemCountTrigger(int64 run_id);
extern char *JobIdemRunKeyOf(DateADT business_date);
extern char *JobIdemRunKeyArgument(FunctionCallInfo fcinfo, int i, DateADT business_date);

#endif
