#ifndef JOB_IDEM_HOLDER_H
#define JOB_IDEM_HOLDER_H

#include "lookup.h"

extern void JobIdemEndHoldersPastMax(const JobIdemJob *job, int64 run_id);

#endif
