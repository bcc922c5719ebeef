#ifndef JOB_IDEM_TAKE_H
#define JOB_IDEM_TAKE_H

#include "datatype/timestamp.h"

#include "lookup.h"

/* A lease about to be taken. */
typedef struct JobIdemClaim
{
	const JobIdemJob *job;
	int64 run_id;
	int32 version; /* of the run */
	char *worker;
	const Interval *lease; /* NULL: the job's */
	bool bind;			   /* ends with this backend */
	/* set by the claim */
	int64 token;
	TimestampTz deadline;
} JobIdemClaim;

extern char *JobIdemWorkerArgument(FunctionCallInfo fcinfo, int i);
extern bool JobIdemTakeSlice(JobIdemClaim *claim, int32 slice_no, int32 n_items);
extern void JobIdemTakePicks(JobIdemClaim *claim, Datum *item_nos, int n);

#endif
