#ifndef JOB_IDEM_CRON_H
#define JOB_IDEM_CRON_H

#include "datatype/timestamp.h"
#include "pgtime.h"

#define JOB_IDEM_CRON_WEEKS 5

/*
 * A schedule as it was understood: sets, in which bit n stands for the number n. It holds no
 * pointers and may be copied.
 */
typedef struct JobIdemCron
{
	uint64 seconds;
	uint64 minutes;
	uint64 hours;
	uint64 days;							  /* 1 to 31 */
	uint64 days_from_last;					  /* L-n, L being 0 */
	uint64 near_days;						  /* nW */
	uint64 near_from_last;					  /* L-nW, LW being 0 */
	uint64 months;							  /* 1 to 12 */
	uint64 weekdays;						  /* 0 to 6, Sunday being 0 */
	uint64 last_weekdays;					  /* nL */
	uint64 nth_weekdays[JOB_IDEM_CRON_WEEKS]; /* n#1, n#2 .. */
	bool any_day;							  /* the field says * or ? */
	bool any_weekday;
	bool elapsed; /* the hour is * or a step of it: follows elapsed time */
} JobIdemCron;

/* Why a schedule is refused. */
typedef struct JobIdemCronError
{
	char message[128]; /* begins with the field, if it is in one */
	int position;	   /* in characters, from 1 */
} JobIdemCronError;

/* cron.c */
extern bool JobIdemCronParse(const char *schedule, JobIdemCron *cron, JobIdemCronError *error);
extern uint64 JobIdemCronDays(const JobIdemCron *cron, int length, int first_weekday);

/* cron_next.c */
extern bool JobIdemCronNext(const JobIdemCron *cron, pg_tz *zone, TimestampTz after,
							TimestampTz *next);
extern bool JobIdemCronPrevious(const JobIdemCron *cron, pg_tz *zone, TimestampTz before,
								TimestampTz *previous);

/* cron_explain.c */
extern char *JobIdemCronExplain(const JobIdemCron *cron, pg_tz *zone);

#endif
