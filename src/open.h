#ifndef JOB_IDEM_OPEN_H
#define JOB_IDEM_OPEN_H

#include "lookup.h"

extern bool JobIdemFindRunByKey(int64 job_id, const char *run_key, int64 *run_id);
extern JobIdemJob *JobIdemShareJob(int64 job_id, bool wait);
extern bool JobIdemInsertRun(const JobIdemJob *job, const char *run_key, DateADT business_date,
							 NullableDatum params, int32 priority, int64 *run_id);
extern void JobIdemCountTrigger(int64 run_id);
extern char *JobIdemRunKeyOf(DateADT business_date);
extern char *JobIdemRunKeyArgument(FunctionCallInfo fcinfo, int i, DateADT business_date);

#endif
