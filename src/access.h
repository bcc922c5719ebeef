#ifndef JOB_IDEM_ACCESS_H
#define JOB_IDEM_ACCESS_H

#include "postgres_ext.h"

/* What a caller may do with a job; each includes the ones before it. */
typedef enum JobIdemRight
{
	RIGHT_VIEW,
	RIGHT_WORK,
	RIGHT_OPERATE
} JobIdemRight;

/* The time between JobIdemEnter and JobIdemLeave, when the backend acts as the tables' owner. */
typedef struct JobIdemScope
{
	Oid caller;
	int caller_context;
	int guc_level;
	Oid outer_caller;
} JobIdemScope;

extern void JobIdemEnter(JobIdemScope *scope);
extern void JobIdemLeave(JobIdemScope *scope);
extern void JobIdemPin(const char *name, const char *value);
extern void JobIdemPinLockTimeout(int most);
extern void JobIdemEnterConnected(JobIdemScope *scope);
extern void JobIdemLeaveConnected(JobIdemScope *scope);

/*
 * The time between JobIdemBecome and JobIdemUnbecome, when text of a job's owner runs as that
 * owner.
 */
typedef struct JobIdemDisguise
{
	Oid caller;
	Oid user;
	int context;
	int guc_level;
} JobIdemDisguise;

extern void JobIdemBecome(Oid role, JobIdemDisguise *before);
extern void JobIdemUnbecome(const JobIdemDisguise *before);

extern Oid JobIdemOwner(void);
extern Oid JobIdemCaller(void);
extern void JobIdemRestoreCaller(Oid caller);
extern const char *JobIdemCallerName(void);
extern bool JobIdemHasRight(int64 job_id, Oid job_owner, JobIdemRight right);
extern void JobIdemRequire(int64 job_id, Oid job_owner, const char *job, JobIdemRight right);
extern void JobIdemRequireOwner(const char *what);

#endif
