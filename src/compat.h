/*
 * compat.h - every difference between server versions, each with its reason.
 */
#ifndef JOB_IDEM_COMPAT_H
#define JOB_IDEM_COMPAT_H

#include "fmgr.h"

/* 18 shows a module's name and version in pg_get_loaded_modules(). */
#if PG_VERSION_NUM >= 180000
#define JOB_IDEM_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "job_idem", .version = JOB_IDEM_VERSION)
#else
#define JOB_IDEM_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/* 18 has pg_noreturn in front of a declaration, in place of pg_attribute_noreturn() behind it. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn __attribute__((noreturn))
#endif

/* 16 moved the VAR... macros out of postgres.h. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 16 renamed the function that reads the status array of backends by place in it, from 1. */
#if PG_VERSION_NUM >= 160000
#define JobIdemBackendStatus(place) pgstat_get_local_beentry_by_index(place)
#else
#define JobIdemBackendStatus(place) pgstat_fetch_stat_local_beentry(place)
#endif

#endif
