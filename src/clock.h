#ifndef JOB_IDEM_CLOCK_H
#define JOB_IDEM_CLOCK_H

#include "datatype/timestamp.h"

extern TimestampTz JobIdemNow(void);
extern TimestampTz JobIdemPlus(TimestampTz at, const Interval *span);
extern int64 JobIdemIntervalMicros(const Interval *span);
extern Interval *JobIdemMicrosInterval(int64 micros);

#endif
