#ifndef JOB_IDEM_FAULT_H
#define JOB_IDEM_FAULT_H

/* Steps at which a test may stop or break us; job_idem.fault_point names one. */
extern void JobIdemFaultPoint(const char *step);

#endif
