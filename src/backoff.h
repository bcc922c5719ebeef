#ifndef JOB_IDEM_BACKOFF_H
#define JOB_IDEM_BACKOFF_H

extern int64 JobIdemBackoff(int attempt, int64 base, double factor, int64 max, const char *key);

#endif
