#ifndef JOB_IDEM_WATCH_H
#define JOB_IDEM_WATCH_H

#include "lookup.h"

extern void JobIdemWatch(const JobIdemJob *job, int64 run_id);
extern bool JobIdemPauseRun(const JobIdemJob *job, int64 run_id, const char *verb,
							const char *reason);
extern void JobIdemReopenRetries(const JobIdemRunRow *run);
extern void JobIdemRestartWindow(int64 run_id);

#endif
