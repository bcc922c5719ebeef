#ifndef JOB_IDEM_RELEASE_H
#define JOB_IDEM_RELEASE_H

#include "lookup.h"

extern bool JobIdemRelease(int64 run_id);
extern void JobIdemUnblock(const JobIdemJob *job, int64 run_id, const char *verb,
						   const char *reason);
extern void JobIdemReleaseWaiting(int64 job_id);

#endif
