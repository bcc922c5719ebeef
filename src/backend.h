#ifndef JOB_IDEM_BACKEND_H
#define JOB_IDEM_BACKEND_H

#include "datatype/timestamp.h"

extern void JobIdemBackendsLook(void);
extern bool JobIdemBackendLives(int pid, TimestampTz start);
extern TimestampTz JobIdemBackendXactStart(int pid);

#endif
