#ifndef JOB_IDEM_CLASSIFY_H
#define JOB_IDEM_CLASSIFY_H

typedef enum JobIdemFailureKind
{
	FAILURE_TRANSIENT,
	FAILURE_BUSINESS,
	FAILURE_LOST,
	FAILURE_UNKNOWN
} JobIdemFailureKind;

extern const char *JobIdemFailureKindName(JobIdemFailureKind kind);
extern bool JobIdemGlobMatch(const char *pattern, const char *value);
extern JobIdemFailureKind JobIdemClassify(const char *sqlstate);

#endif
