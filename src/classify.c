/*
 * classify.c - is a failure worth another try? Pure.
 */
#include "postgres.h"

#include "classify.h"

/* Prefixes of SQLSTATEs that another try may cure; 57 includes 57014, a time-out. */
static const char *const transient_prefixes[] = {"08", "40", "53", "55P03", "57", "58"};

const char *
JobIdemFailureKindName(JobIdemFailureKind kind)
{
	switch (kind)
	{
		case FAILURE_TRANSIENT:
			return "transient";
		case FAILURE_BUSINESS:
			return "business";
		case FAILURE_LOST:
			return "lost";
		case FAILURE_UNKNOWN:
			return "unknown";
	}
	return NULL;
}

/* NULL: the caller gave no SQLSTATE. */
JobIdemFailureKind
JobIdemClassify(const char *sqlstate)
{
	int i;

	if (sqlstate == NULL || sqlstate[0] == '\0')
		return FAILURE_UNKNOWN;
	for (i = 0; i < (int) lengthof(transient_prefixes); i++)
		if (strncmp(sqlstate, transient_prefixes[i], strlen(transient_prefixes[i])) == 0)
			return FAILURE_TRANSIENT;
	return FAILURE_BUSINESS;
}
