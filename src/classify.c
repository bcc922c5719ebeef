/*
 * classify.c - is a failure worth another try? Pure.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

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

/*
 * Does the whole of a value match a pattern, in which * stands for any characters and ? for any
 * one? In time proportional to the product of the lengths at worst: only the last * is ever
 * gone back to.
 */
bool
JobIdemGlobMatch(const char *pattern, const char *value)
{
	const char *star = NULL;
	const char *retry = NULL;

	while (*value != '\0')
	{
		if (*pattern == '*')
		{
			star = pattern++;
			retry = value;
		}
		else if (*pattern == '?' || *pattern == *value)
		{
			value += *pattern++ == '?' ? pg_mblen(value) : 1;
		}
		else if (star != NULL)
		{
			pattern = star + 1;
			value = ++retry;
		}
		else
			return false;
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}
