#ifndef JOB_IDEM_FINISH_H
#define JOB_IDEM_FINISH_H

extern bool JobIdemFinish(int64 run_id, int64 job_id);

#endif
