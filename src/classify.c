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

/* characters of a pattern that stand for themselves */
static int
Literals(const char *pattern)
{
	int n = 0;

	for (; *pattern != '\0'; pattern++)
		n += *pattern != '*' && *pattern != '?' ? 1 : 0;
	return n;
}

/*
 * How specific a rule is for this error, or -1 if it is not about it. First come rules that name
 * the whole error: five characters of SQLSTATE, or a class without * and ?. Then counts how many
 * characters the rule gives; then a job's own rule comes before one for all, and one about the
 * class before one about the SQLSTATE.
 */
int
JobIdemErrorRank(const JobIdemErrorRule *rule, const char *sqlstate, const char *error_class)
{
	const char *pattern = rule->error_class ? rule->error_class : rule->sqlstate;
	int literals = Literals(pattern);
	bool whole;

	if (rule->error_class != NULL)
	{
		if (error_class == NULL || !JobIdemGlobMatch(pattern, error_class))
			return -1;
		whole = literals == (int) strlen(pattern);
	}
	else
	{
		if (sqlstate == NULL || strncmp(sqlstate, pattern, literals) != 0)
			return -1;
		whole = literals == 5;
	}
	return (whole ? 1 << 20 : literals << 2) + (rule->of_job ? 2 : 0) +
		(rule->error_class != NULL ? 1 : 0);
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
