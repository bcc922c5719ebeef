#ifndef JOB_IDEM_GUARDED_H
#define JOB_IDEM_GUARDED_H

#include "utils/elog.h"

typedef void (*JobIdemAction)(void *argument);

extern ErrorData *JobIdemTry(JobIdemAction action, void *argument);

#endif
