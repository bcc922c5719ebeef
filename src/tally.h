#ifndef JOB_IDEM_TALLY_H
#define JOB_IDEM_TALLY_H

extern void JobIdemTallyFold(int64 run_id);

#endif
