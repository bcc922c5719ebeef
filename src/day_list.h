#ifndef JOB_IDEM_DAY_LIST_H
#define JOB_IDEM_DAY_LIST_H

#include "access.h"

/* Days that a query listed, each with what it says of it, as three arrays of one length. */
typedef struct JobIdemDayList
{
	Datum days;	   /* date[] */
	Datum is_open; /* boolean[] */
	Datum notes;   /* text[] */
} JobIdemDayList;

extern JobIdemDayList *JobIdemListDays(JobIdemScope *scope, const char *query);

#endif
