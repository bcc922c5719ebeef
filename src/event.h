#ifndef JOB_IDEM_EVENT_H
#define JOB_IDEM_EVENT_H

/*
 * Writes one event. Zero ids and NULL texts are left out; `detail` is the text of a JSON value
 * made by us, `reason` an operator's words, put into the detail under that name.
 */
extern void JobIdemEvent(const char *verb, int64 job_id, int64 run_id, const char *item_key,
						 const char *detail, const char *reason);

#endif
