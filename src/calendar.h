#ifndef JOB_IDEM_CALENDAR_H
#define JOB_IDEM_CALENDAR_H

#include "utils/date.h"

#include "compat.h"

/*
 * All are to be called inside a scope, with a finite day, and raise 42704 if there is no such
 * calendar. Those that look for an open day raise 22023 if none comes within ten years, and 22008
 * past the end of dates.
 */
extern bool JobIdemCalendarIsOpen(const char *calendar, DateADT day);
/* The n-th open day after a day, or before it if n is negative; 0: that day itself, or the next. */
extern DateADT JobIdemCalendarShift(const char *calendar, DateADT day, int32 n);
/* The day itself if it is open, else the next, or the one before it, that is. */
extern DateADT JobIdemCalendarNextOpen(const char *calendar, DateADT day);
extern DateADT JobIdemCalendarPreviousOpen(const char *calendar, DateADT day);
/* False if there is none, else true, and nobody drops it before the transaction's end. */
extern bool JobIdemCalendarKeep(const char *calendar);

pg_noreturn extern void JobIdemCalendarUnknown(const char *calendar);

#endif
