#ifndef JOB_IDEM_TOKEN_H
#define JOB_IDEM_TOKEN_H

extern int64 JobIdemDrawToken(void);
extern int64 JobIdemNextValue(const char *sequence);

#endif
