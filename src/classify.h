#ifndef JOB_IDEM_CLASSIFY_H
#define JOB_IDEM_CLASSIFY_H

typedef enum JobIdemFailureKind
{
	FAILURE_TRANSIENT,
	FAILURE_BUSINESS,
	FAILURE_LOST,
	FAILURE_UNKNOWN
} JobIdemFailureKind;

/* One of sqlstate (a prefix) and error_class (a pattern) is NULL. */
typedef struct JobIdemErrorRule
{
	const char *sqlstate;
	const char *error_class;
	bool of_job; /* else it is for all jobs */
	JobIdemFailureKind kind;
} JobIdemErrorRule;

extern int JobIdemErrorRank(const JobIdemErrorRule *rule, const char *sqlstate,
							const char *error_class);
extern const char *JobIdemFailureKindName(JobIdemFailureKind kind);
extern bool JobIdemGlobMatch(const char *pattern, const char *value);
extern JobIdemFailureKind JobIdemClassify(const char *sqlstate);

#endif
