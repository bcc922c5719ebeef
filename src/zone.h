#ifndef JOB_IDEM_ZONE_H
#define JOB_IDEM_ZONE_H

#include "datatype/timestamp.h"
#include "pgtime.h"
#include "utils/date.h"

/*
 * No clock is further from UTC than this (seconds; what a zone file may say is 26 hours at most).
 * So it cannot be put back by more than twice as much.
 */
#define JOB_IDEM_ZONE_REACH (2 * SECS_PER_DAY)

/* What the clocks of a zone show until they are changed. Instants are seconds since 1970. */
typedef struct JobIdemZoneSpan
{
	int64 offset;  /* of local time, seconds east of UTC */
	pg_time_t end; /* first instant after it; PG_INT64_MAX if there is none */
} JobIdemZoneSpan;

extern pg_tz *JobIdemZone(const char *name);
extern JobIdemZoneSpan JobIdemZoneSpanAt(pg_tz *zone, pg_time_t at);
extern pg_time_t JobIdemZoneFirst(pg_tz *zone, int64 local);
extern int64 JobIdemZoneLatest(pg_tz *zone, pg_time_t at);

extern int64 JobIdemFloorDiv(int64 number, int64 by);
extern pg_time_t JobIdemSeconds(TimestampTz at);
extern bool JobIdemFromSeconds(pg_time_t seconds, TimestampTz *at);
extern DateADT JobIdemLocalDate(TimestampTz at, pg_tz *zone);

#endif
