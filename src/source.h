#ifndef JOB_IDEM_SOURCE_H
#define JOB_IDEM_SOURCE_H

#include "lookup.h"

extern void JobIdemLoadFromSource(const JobIdemJob *job, int64 run_id);

#endif
