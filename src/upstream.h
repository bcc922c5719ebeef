#ifndef JOB_IDEM_UPSTREAM_H
#define JOB_IDEM_UPSTREAM_H

#include "lookup.h"

extern const char *JobIdemUpstreamReason(const JobIdemJob *job, DateADT business_date);

#endif
