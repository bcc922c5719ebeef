#ifndef JOB_IDEM_EXPIRE_H
#define JOB_IDEM_EXPIRE_H

#include "lease.h"

extern int JobIdemExpireOverdue(const JobIdemJob *job, int64 run_id, bool all, int limit,
								bool *more);
extern int64 JobIdemExpireHeld(const JobIdemJob *job, JobIdemLease *lease);

#endif
