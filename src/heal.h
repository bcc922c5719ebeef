#ifndef JOB_IDEM_HEAL_H
#define JOB_IDEM_HEAL_H

#include "lookup.h"

extern void JobIdemHeal(JobIdemJob *job);

#endif
