#ifndef JOB_IDEM_SPI_H
#define JOB_IDEM_SPI_H

#include "executor/spi.h"
#include "tcop/dest.h"

/*
 * A statement of ours: its text, the types of its parameters, and the plan once it is prepared.
 * Define one with JOB_IDEM_STATEMENT at the top of the file of the verb that uses it.
 */
#define JOB_IDEM_MAX_ARGS 48

typedef struct JobIdemStatement
{
	const char *text;
	int n_args;
	Oid types[JOB_IDEM_MAX_ARGS];
	SPIPlanPtr plan;
} JobIdemStatement;

#define JOB_IDEM_STATEMENT(name, sql, count, ...) \
	static JobIdemStatement name = {.text = (sql), .n_args = (count), .types = {__VA_ARGS__}}

/* A bound argument list. Unset arguments are NULL. */
typedef struct JobIdemArgs
{
	Datum values[JOB_IDEM_MAX_ARGS];
	char nulls[JOB_IDEM_MAX_ARGS];
	int n;
} JobIdemArgs;

/* A connection of its own; what was read under it goes with it. */
extern void JobIdemConnect(void);
extern void JobIdemDisconnect(void);

extern void JobIdemArg(JobIdemArgs *args, Datum value);
extern void JobIdemArgNullable(JobIdemArgs *args, Datum value, bool is_null);
/* NULL is an SQL NULL. */
extern void JobIdemArgText(JobIdemArgs *args, const char *value);

extern uint64 JobIdemRun(JobIdemStatement *statement, const JobIdemArgs *args, uint64 limit);
extern uint64 JobIdemRunLatest(JobIdemStatement *statement, const JobIdemArgs *args, uint64 limit);
extern uint64 JobIdemRunInto(JobIdemStatement *statement, const JobIdemArgs *args,
							 DestReceiver *dest);

/* Frees the rows that the last statement read; for loops. */
extern void JobIdemFreeRows(void);

/* Columns of row `row` of the last statement's result, numbered from 1 as in its text. */
extern Datum JobIdemColumn(uint64 row, int column, bool *is_null);
extern int64 JobIdemInt64(uint64 row, int column);
extern int32 JobIdemInt32(uint64 row, int column);
extern int16 JobIdemInt16(uint64 row, int column);
extern bool JobIdemBool(uint64 row, int column);
extern bool JobIdemIsNull(uint64 row, int column);
extern Oid JobIdemOid(uint64 row, int column);
extern char *JobIdemText(uint64 row, int column, MemoryContext context);

#endif
