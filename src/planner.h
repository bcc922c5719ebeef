#ifndef JOB_IDEM_PLANNER_H
#define JOB_IDEM_PLANNER_H

#include "lookup.h"
#include "open.h"
#include "schedule.h"

/* What becomes of fires found late. */
typedef enum JobIdemMisfire
{
	MISFIRE_CATCH_UP,
	MISFIRE_LATEST,
	MISFIRE_SKIP,
	MISFIRE_EXPIRE
} JobIdemMisfire;

/* How a job is planned now; its versions are in the schedule. */
typedef struct JobIdemPolicy
{
	JobIdemMisfire misfire;
	int64 grace; /* microseconds */
	int64 valid_for;
	int32 limit; /* rows a tick */
	bool overlap_waits;
	bool overlap_skips;
	char *calendar;
	TimestampTz from; /* everything up to here is planned */
	bool edited;	  /* since then */
} JobIdemPolicy;

extern void JobIdemReadPolicy(int64 job_id, TimestampTz now, JobIdemPolicy *policy);
extern bool JobIdemNewestFire(const JobIdemSchedule *schedule, TimestampTz after, TimestampTz upto,
							  JobIdemFire *newest);
extern JobIdemRunState JobIdemDecide(const JobIdemPolicy *policy, const JobIdemFire *fire,
									 TimestampTz newest, TimestampTz now, const char **reason);
extern int64 JobIdemPlanOne(const JobIdemJob *job, const JobIdemPolicy *policy,
							const JobIdemFire *fire, JobIdemRunState state, const char *reason,
							int64 waits_for);
extern int JobIdemPlan(int64 job_id);

#endif
