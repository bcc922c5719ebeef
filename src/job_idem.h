/*
 * job_idem.h - what every file needs: error codes, limits, settings.
 *
 * The layers of src/. A file includes its own header and those of lower layers, never a peer's
 * (test/t/004_layers.pl holds it to that).
 *
 *   layer 0: compat job_idem state classify sound zone cron cron_next cron_explain
 *   layer 1: clock fault spi lock_tag current backend
 *   layer 2: access backoff
 *   layer 3: event guarded lookup
 *   layer 4: lease open load dead_letter tally token calendar
 *   layer 5: expire take definition watch holder day_list source upstream schedule
 *   layer 6: release planner
 *   layer 7: finish
 *   layer 8: heal
 *   layer 9: job grant run claim claim_item complete fail giveback hold audit error_rule pause_run
 *   layer 9: replay step calendar_define dependency dag cron_sql plan tick init
 */
#ifndef JOB_IDEM_H
#define JOB_IDEM_H

#include "utils/elog.h"

#define ERRCODE_JI_STALE_TOKEN MAKE_SQLSTATE('J', 'I', '0', '0', '1')
#define ERRCODE_JI_JOB_NOT_FOUND MAKE_SQLSTATE('J', 'I', '0', '0', '2')
#define ERRCODE_JI_RUN_NOT_FOUND MAKE_SQLSTATE('J', 'I', '0', '0', '3')
#define ERRCODE_JI_RUN_NOT_OPEN MAKE_SQLSTATE('J', 'I', '0', '0', '4')
#define ERRCODE_JI_INVALID_DEFINITION MAKE_SQLSTATE('J', 'I', '0', '0', '5')
#define ERRCODE_JI_KEY_CONFLICT MAKE_SQLSTATE('J', 'I', '0', '0', '6')
#define ERRCODE_JI_UNCLAIMED_WRITE MAKE_SQLSTATE('J', 'I', '0', '0', '7')
#define ERRCODE_JI_ILLEGAL_TRANSITION MAKE_SQLSTATE('J', 'I', '0', '0', '8')
#define ERRCODE_JI_LIMIT_EXCEEDED MAKE_SQLSTATE('J', 'I', '0', '0', '9')
#define ERRCODE_JI_ALREADY_DONE MAKE_SQLSTATE('J', 'I', '0', '1', '0')

/* bytes */
#define JOB_IDEM_MAX_KEY 512
#define JOB_IDEM_MAX_JOB_NAME 200
#define JOB_IDEM_MAX_WORKER 200
#define JOB_IDEM_MAX_MESSAGE 8192
#define JOB_IDEM_MAX_CLASS 200
#define JOB_IDEM_MAX_REASON 1000
#define JOB_IDEM_MAX_SHOWN 100
/* days of business_date_offset; rows planned for a job by one tick */
#define JOB_IDEM_MAX_OFFSET 3660
#define JOB_IDEM_MAX_CATCH_UP 10000
/* items a claim */
#define JOB_IDEM_MAX_BATCH 100000
/*
 * leases that one transaction expires; with the one around it, below the 64 subtransaction ids a
 * backend can cache
 */
#define JOB_IDEM_EXPIRE_AT_ONCE 50

/* settings, defined in init.c */
extern double job_idem_clock_offset;
extern char *job_idem_clock_freeze;
extern char *job_idem_fault_point;
extern int job_idem_max_payload;
extern bool job_idem_try_locks;

/*
 * Test builds take one foundation away to prove that the suite notices when it is gone (ablation,
 * test/t). The condition is what a compare-and-swap compares.
 */
#ifdef JOB_IDEM_ABLATE_CAS
#define CAS(condition) "true"
#else
#define CAS(condition) condition
#endif

#endif
