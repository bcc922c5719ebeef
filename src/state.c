/*
 * state.c - the state machines as data.
 *
 * Pure. What stands here is what the protocol may do: run verbs ask JobIdemRunMay before they
 * write, audit() and the regress output of the two dump functions hold the rest to it. An item's
 * state is its effective one (design: what a pending row means depends on its slice's lease).
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"

#include "compat.h"
#include "state.h"

typedef struct Transition
{
	const char *from;
	const char *to;
	const char *verb;
} Transition;

/* "-" stands for an item or run that is not there yet. */
static const Transition item_transitions[] = {
	{"-", "pending", "add_items"},
	{"-", "waiting", "add_items"},
	{"-", "claimed", "claim_item"},
	{"pending", "claimed", "claim_items"},
	{"waiting", "claimed", "claim_items"},
	{"waiting", "claimed", "claim_item"},
	{"claimed", "done", "mark_all_done"},
	{"claimed", "done", "mark_done"},
	{"claimed", "done", "mark_done_many"},
	{"claimed", "waiting", "mark_failed"},
	{"claimed", "dead", "mark_failed"},
	{"claimed", "waiting", "postpone"},
	{"claimed", "waiting", "release"},
	{"claimed", "waiting", "expiry"},
	{"claimed", "dead", "expiry"},
	{"claimed", "waiting", "expire_lease"},
	{"claimed", "dead", "expire_lease"},
	{"dead", "waiting", "replay"},
	{"dead", "waiting", "replay_run"},
};

static const Transition run_transitions[] = {
	{"-", "loading", "open_run"},
	{"-", "running", "open_run"},
	{"-", "blocked", "open_run"},
	{"-", "loading", "tick"},
	{"-", "running", "tick"},
	{"-", "blocked", "tick"},
	{"-", "skipped", "tick"},
	{"-", "expired", "tick"},
	{"-", "loading", "backfill"},
	{"-", "running", "backfill"},
	{"-", "blocked", "backfill"},
	{"-", "running", "claim_item"},
	{"-", "blocked", "claim_item"},
	{"blocked", "loading", "release"},
	{"blocked", "running", "release"},
	{"blocked", "loading", "unblock_run"},
	{"blocked", "running", "unblock_run"},
	{"loading", "running", "seal_run"},
	{"running", "done", "finish"},
	{"running", "partial", "finish"},
	{"partial", "running", "replay"},
	{"partial", "running", "replay_run"},
	{"partial", "done", "discard"},
	{"loading", "cancelled", "cancel_run"},
	{"blocked", "cancelled", "cancel_run"},
	{"running", "cancelled", "cancel_run"},
	{"partial", "cancelled", "cancel_run"},
};

static const char *const run_state_names[] = {
	[RUN_LOADING] = "loading",
	[RUN_BLOCKED] = "blocked",
	[RUN_RUNNING] = "running",
	[RUN_DONE] = "done",
	[RUN_PARTIAL] = "partial",
	[RUN_CANCELLED] = "cancelled",
	[RUN_SKIPPED] = "skipped",
	[RUN_EXPIRED] = "expired",
};

const char *
JobIdemRunStateName(JobIdemRunState state)
{
	return run_state_names[state];
}

JobIdemRunState
JobIdemRunStateOf(const char *name)
{
	int i;

	for (i = 0; i < (int) lengthof(run_state_names); i++)
		if (strcmp(run_state_names[i], name) == 0)
			return (JobIdemRunState) i;
	elog(ERROR, "unknown run state \"%s\"", name);
}

/* Partial counts as ended: nothing happens there until an operator acts. */
bool
JobIdemRunStateEnded(JobIdemRunState state)
{
	switch (state)
	{
		case RUN_LOADING:
		case RUN_BLOCKED:
		case RUN_RUNNING:
			return false;
		case RUN_DONE:
		case RUN_PARTIAL:
		case RUN_CANCELLED:
		case RUN_SKIPPED:
		case RUN_EXPIRED:
			return true;
	}
	return true;
}

bool
JobIdemRunMay(const char *verb, JobIdemRunState from, JobIdemRunState to)
{
	int i;

	for (i = 0; i < (int) lengthof(run_transitions); i++)
		if (strcmp(run_transitions[i].verb, verb) == 0 &&
			strcmp(run_transitions[i].from, run_state_names[from]) == 0 &&
			strcmp(run_transitions[i].to, run_state_names[to]) == 0)
			return true;
	return false;
}

static void
Dump(FunctionCallInfo fcinfo, const Transition *transitions, int n)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int i;

	InitMaterializedSRF(fcinfo, 0);
	for (i = 0; i < n; i++)
	{
		Datum values[3] = {CStringGetTextDatum(transitions[i].from),
						   CStringGetTextDatum(transitions[i].to),
						   CStringGetTextDatum(transitions[i].verb)};
		bool nulls[3] = {false, false, false};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

PG_FUNCTION_INFO_V1(job_idem_item_transitions);
Datum
job_idem_item_transitions(PG_FUNCTION_ARGS)
{
	Dump(fcinfo, item_transitions, lengthof(item_transitions));
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(job_idem_run_transitions);
Datum
job_idem_run_transitions(PG_FUNCTION_ARGS)
{
	Dump(fcinfo, run_transitions, lengthof(run_transitions));
	return (Datum) 0;
}
