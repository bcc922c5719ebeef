#ifndef JOB_IDEM_DEAD_LETTER_H
#define JOB_IDEM_DEAD_LETTER_H

#include "classify.h"
#include "lookup.h"

/* One failed or lost try, as it is put on record. Texts may be NULL. */
typedef struct JobIdemFailure
{
	int64 run_id;
	int64 item_no;
	const char *item_key;
	int64 token;
	int attempts; /* counted tries, this one included if it counts */
	int lost;
	JobIdemFailureKind kind;
	bool retry;		   /* the kind allows another try */
	bool budget_spent; /* the run has no retries left */
	bool at_once;	   /* without a back-off */
	const char *sqlstate;
	const char *error_class;
	const char *message;
} JobIdemFailure;

extern bool JobIdemFail(const JobIdemJob *job, const JobIdemFailure *failure,
						TimestampTz *retry_at);

#endif
