#ifndef JOB_IDEM_DEFINITION_H
#define JOB_IDEM_DEFINITION_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "lib/stringinfo.h"

/* What a caller of define_job asks for. A part that is NULL, and has no default, is a problem. */
typedef struct JobIdemDefinition
{
	char *name;
	char *kind;
	char *tier;
	char *schedule; /* NULL: none */
	char *timezone;
	char *calendar; /* NULL: none */
	int32 business_date_offset;
	char *run_per;
	char *misfire;
	Interval *misfire_grace;
	Interval *valid_for; /* NULL: none */
	int32 catch_up_limit;
	char *overlap;
	char *closed_day;
	Interval *lease;
	Interval *takeover_delay;
	Interval *max_lease;
	char *at_max_lease;
	int32 max_attempts;
	Interval *backoff_base;
	double backoff_factor;
	Interval *backoff_max;
	char *unknown_as;
	NullableDatum retry_budget;
	NullableDatum failure_threshold;
	Interval *failure_window;
	int32 batch_size;
	char *item_source;
	Interval *close_after;
	int32 version;			 /* 0: none named */
	StringInfoData problems; /* a line each */
} JobIdemDefinition;

extern void JobIdemDefinitionRead(FunctionCallInfo fcinfo, JobIdemDefinition *def);
extern void JobIdemDefinitionProblem(JobIdemDefinition *def, const char *part,
									 const char *what);
extern void JobIdemDefinitionRaise(const JobIdemDefinition *def);
extern void JobIdemDefinitionCheckSource(JobIdemDefinition *def, Oid owner);

#endif
