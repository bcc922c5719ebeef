#ifndef JOB_IDEM_LOAD_H
#define JOB_IDEM_LOAD_H

#include "lookup.h"
#include "spi.h"

/* A load of items into one run, which it has locked. */
typedef struct JobIdemLoad
{
	JobIdemRunRow run;
	bool keyed;
	bool late;			  /* negative numbers, waiting, due at once */
	bool all_keys_locked; /* of a keyed run */
	int64 n_new;
	int64 n_known;
} JobIdemLoad;

/* Where the items come from: a query of the caller's, or, with an owner, of a job's. */
typedef struct JobIdemSource
{
	const char *query;
	Oid owner;
	int n_args;
	Oid types[2];
	Datum values[2];
	char nulls[2];
} JobIdemSource;

extern void JobIdemLoadBegin(JobIdemLoad *load, const JobIdemJob *job, int64 run_id);
extern void JobIdemLoadChunk(JobIdemLoad *load, Datum *keys, const bool *key_nulls, Datum *payloads,
							 const bool *payload_nulls, int n);
extern void JobIdemLoadEnd(JobIdemLoad *load);
extern void JobIdemLoadSource(JobIdemLoad *load, const JobIdemSource *source);
extern void JobIdemSeal(const JobIdemJob *job, JobIdemRunRow *run);

#endif
