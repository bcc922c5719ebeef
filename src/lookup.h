#ifndef JOB_IDEM_LOOKUP_H
#define JOB_IDEM_LOOKUP_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/date.h"

#include "access.h"
#include "compat.h"
#include "state.h"

typedef struct JobIdemJob
{
	int64 job_id;
	char *name;
	bool keyed;
	Oid owner; /* InvalidOid if the role is gone or another one has its id */
	int32 version;
	bool live; /* enabled, owner there, not dropped */
	bool paused;
	bool dropped;
	Interval lease;
	Interval takeover_delay;
	Interval max_lease;
	int16 max_attempts;
	Interval backoff_base;
	double backoff_factor;
	Interval backoff_max;
	int32 batch_size;
	char *item_source;
	Interval close_after;
	bool terminate_at_max; /* at_max_lease */
	bool unknown_is_transient;
	double retry_budget;	  /* below 0: none */
	double failure_threshold; /* 0: none */
	Interval failure_window;
} JobIdemJob;

typedef struct JobIdemRunRow
{
	int64 run_id;
	int64 job_id;
	char *run_key;
	DateADT business_date;
	JobIdemRunState state;
	bool sealed;
	bool forced;   /* cancelled with force */
	bool finished; /* finished_at is set */
	int32 batch_size;
	int64 n_items;
	int32 n_slices;
	char *reason;
	int64 n_late;
	bool paused;
	bool retries_closed; /* the retry budget is spent */
	int64 retries_from;	 /* retries before it began anew */
	int32 version;
} JobIdemRunRow;

typedef enum JobIdemRunLock
{
	RUN_READ,
	RUN_FOR_UPDATE, /* waits */
	RUN_TRY_UPDATE	/* SKIP LOCKED */
} JobIdemRunLock;

extern JobIdemJob *JobIdemJobByName(const char *name);
extern JobIdemJob *JobIdemJobById(int64 job_id);
extern bool JobIdemFindRun(int64 run_id, JobIdemRunLock lock, JobIdemRunRow *run);
extern void JobIdemGetRun(int64 run_id, JobIdemRunLock lock, JobIdemRunRow *run);
extern JobIdemJob *JobIdemJobOfRun(int64 run_id, JobIdemRight right);
pg_noreturn extern void JobIdemRunGone(int64 run_id);
pg_noreturn extern void JobIdemRunNotOpen(const JobIdemRunRow *run, const char *hint);

/* The answer of a function that returns one row. */
extern Datum JobIdemRow(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
/* 25001: what a new key asks must be put to what is committed now. */
extern void JobIdemRequireReadCommitted(void);

/* Checked arguments of SQL-callable functions. */
extern char *JobIdemTextArgument(FunctionCallInfo fcinfo, int i, const char *name);
extern char *JobIdemTextArgumentOrNull(FunctionCallInfo fcinfo, int i);
extern char *JobIdemKeyArgument(FunctionCallInfo fcinfo, int i, const char *name);
extern int32 JobIdemInt32Argument(FunctionCallInfo fcinfo, int i, const char *name);
extern int64 JobIdemInt64Argument(FunctionCallInfo fcinfo, int i, const char *name);
extern DateADT JobIdemDateArgument(FunctionCallInfo fcinfo, int i, const char *name);
extern const char *JobIdemShown(const char *words);
extern void JobIdemCheckKey(const char *key, int length, const char *name);
extern void JobIdemCheckPayload(Datum payload, const char *name);
extern char *JobIdemReasonArgument(FunctionCallInfo fcinfo, int i, bool required);

#endif
