#ifndef JOB_IDEM_SCHEDULE_H
#define JOB_IDEM_SCHEDULE_H

#include "cron.h"
#include "lookup.h"

/* What a version of a job says about planning, and how long it was in force: (from, to]. */
typedef struct JobIdemScheduleVersion
{
	int32 version;
	TimestampTz from;
	TimestampTz to;
	bool has_schedule;
	JobIdemCron cron;
	pg_tz *zone;
	char *calendar; /* NULL: none */
	int32 offset;	/* of the business date */
	bool per_fire;
	int closed_day; /* where a fire on a closed day goes: 0 nowhere, 1 to the next, -1 back */
} JobIdemScheduleVersion;

typedef struct JobIdemSchedule
{
	JobIdemScheduleVersion *versions; /* oldest first */
	int n;
} JobIdemSchedule;

/* A planned instant. */
typedef struct JobIdemFire
{
	TimestampTz at;
	DateADT business_date;
	bool closed; /* a closed day: it does not take place */
	bool per_fire;
	int32 version;
} JobIdemFire;

typedef struct JobIdemFires
{
	JobIdemFire *fires; /* in order of time */
	int n;
	int size;
} JobIdemFires;

extern void JobIdemReadSchedule(int64 job_id, JobIdemSchedule *schedule);
extern void JobIdemFiresBetween(const JobIdemSchedule *schedule, TimestampTz after,
								TimestampTz upto, JobIdemFires *fires);
extern char *JobIdemFireKey(const JobIdemFire *fire);

#endif
