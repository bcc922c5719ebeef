/*
 * run.c - open_run, add_items, load_items, seal_run, cancel_run, is_done.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "event.h"
#include "fault.h"
#include "job_idem.h"
#include "load.h"
#include "lookup.h"
#include "open.h"
#include "source.h"
#include "spi.h"
#include "upstream.h"

JOB_IDEM_STATEMENT(same_content,
				   "SELECT business_date = $2, params IS NOT DISTINCT FROM $3 FROM job_idem.run"
				   " WHERE run_id = $1",
				   3, INT8OID, DATEOID, JSONBOID);
JOB_IDEM_STATEMENT(cancel,
				   "UPDATE job_idem.run SET state = 'cancelled', reason = $2, cancel_forced = $3,"
				   " finished_at = coalesce(finished_at, $4) WHERE run_id = $1",
				   4, INT8OID, TEXTOID, BOOLOID, TIMESTAMPTZOID);

static void
RefuseOtherContent(int64 run_id, const JobIdemNewRun *run)
{
	JobIdemArgs args = {.n = 0};
	bool same_date;

	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, DateADTGetDatum(run->business_date));
	JobIdemArgNullable(&args, run->params.value, run->params.isnull);
	(void) JobIdemRunLatest(&same_content, &args, 1);
	same_date = JobIdemBool(0, 1);
	if (same_date && JobIdemBool(0, 2))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_JI_KEY_CONFLICT),
			 errmsg("run key \"%s\" is known with %s", run->run_key,
					same_date ? "other params" : "another business date"),
			 errdetail("It is run " INT64_FORMAT ".", run_id),
			 errhint("Repeat the first call's values, or give a run key of its own to other"
					 " work.")));
}

static void
RefuseDead(const JobIdemJob *job)
{
	const char *why = "disabled";

	if (job->dropped)
		why = "dropped";
	else if (!OidIsValid(job->owner))
		why = "without an owner";
	ereport(ERROR,
			(errcode(ERRCODE_JI_RUN_NOT_OPEN),
			 errmsg("job \"%s\" is %s", job->name, why),
			 errhint("Define it again, or see job_idem.jobs for what is wrong with it.")));
}

/* False: somebody else has opened it meanwhile. A run with unfinished upstreams is blocked. */
static bool
OpenNew(const JobIdemJob *job, JobIdemNewRun *run, int64 *run_id)
{
	job = JobIdemShareJob(job->job_id, true);
	if (!job->live)
		RefuseDead(job);
	run->version = job->version;
	run->reason = JobIdemUpstreamReason(job, run->business_date);
	run->state = run->reason != NULL ? RUN_BLOCKED : JobIdemFirstState(job);
	if (JobIdemInsertRun(job, run, run_id))
		return true;
	if (!JobIdemFindRunByKey(job->job_id, run->run_key, run_id))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("run \"%s\" of job \"%s\" came and went meanwhile", run->run_key,
						job->name),
				 errhint("Repeat the transaction.")));
	return false;
}

/* Finds or inserts the run and counts the trigger; true if it is new. */
static bool
Open(const JobIdemJob *job, JobIdemNewRun *run, int64 *run_id)
{
	bool is_new;

	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_WORK);
	is_new = !JobIdemFindRunByKey(job->job_id, run->run_key, run_id) &&
		OpenNew(job, run, run_id);
	if (!is_new)
		RefuseOtherContent(*run_id, run);
	JobIdemCountTrigger(*run_id);
	return is_new;
}

PG_FUNCTION_INFO_V1(job_idem_open_run);
Datum
job_idem_open_run(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	JobIdemNewRun new = {.business_date = JobIdemDateArgument(fcinfo, 1, "business_date"),
						 .scheduled_at = {.isnull = true}};
	JobIdemScope scope;
	JobIdemJob *job;
	JobIdemRunRow run;
	int64 run_id;
	bool is_new;
	Datum values[3];
	bool nulls[3] = {false, false, false};

	new.run_key = JobIdemRunKeyArgument(fcinfo, 2, new.business_date);
	new.params.value = PG_GETARG_DATUM(3);
	new.params.isnull = PG_ARGISNULL(3);
	new.priority = PG_ARGISNULL(4) ? 0 : PG_GETARG_INT32(4);
	if (!new.params.isnull)
		JobIdemCheckPayload(new.params.value, "params");
	JobIdemEnter(&scope);
	job = JobIdemJobByName(name);
	is_new = Open(job, &new, &run_id);
	JobIdemGetRun(run_id, RUN_READ, &run);
	if (job->item_source != NULL && job->live && run.state == RUN_LOADING)
	{
		JobIdemLeaveConnected(&scope);
		JobIdemLoadFromSource(job, run_id);
		JobIdemEnterConnected(&scope);
		JobIdemGetRun(run_id, RUN_READ, &run);
	}
	JobIdemLeave(&scope);
	values[0] = Int64GetDatum(run_id);
	values[1] = CStringGetTextDatum(is_new ? "new" : "known");
	values[2] = CStringGetTextDatum(JobIdemRunStateName(run.state));
	PG_RETURN_DATUM(JobIdemRow(fcinfo, values, nulls));
}

static Datum
LoadedRow(FunctionCallInfo fcinfo, const JobIdemLoad *load)
{
	Datum values[2] = {Int64GetDatum(load->n_new), Int64GetDatum(load->n_known)};
	bool nulls[2] = {false, false};

	return JobIdemRow(fcinfo, values, nulls);
}

static void
RefuseDifferentLengths(int n_keys, int n_payloads)
{
	if (n_keys != n_payloads)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("payloads must be as many as keys"),
				 errdetail("There are %d keys and %d payloads.", n_keys, n_payloads),
				 errhint("Pass one payload for each key, NULL where there is none, or leave"
						 " payloads out.")));
}

PG_FUNCTION_INFO_V1(job_idem_add_items);
Datum
job_idem_add_items(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	Datum *keys;
	bool *key_nulls;
	int n_keys;
	Datum *payloads = NULL;
	bool *payload_nulls = NULL;
	int n_payloads;
	JobIdemScope scope;
	JobIdemLoad load;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("keys must not be null"),
				 errhint("Pass an array of keys.")));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &keys,
					  &key_nulls, &n_keys);
	if (!PG_ARGISNULL(2))
	{
		deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), JSONBOID, -1, false, TYPALIGN_INT, &payloads,
						  &payload_nulls, &n_payloads);
		RefuseDifferentLengths(n_keys, n_payloads);
	}
	JobIdemEnter(&scope);
	JobIdemLoadBegin(&load, JobIdemJobOfRun(run_id, RIGHT_WORK), run_id);
	JobIdemLoadChunk(&load, keys, key_nulls, payloads, payload_nulls, n_keys);
	JobIdemLoadEnd(&load);
	JobIdemFaultPoint("add_items");
	JobIdemLeave(&scope);
	PG_RETURN_DATUM(LoadedRow(fcinfo, &load));
}

PG_FUNCTION_INFO_V1(job_idem_load_items);
Datum
job_idem_load_items(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	JobIdemSource source = {.query = JobIdemTextArgument(fcinfo, 1, "query")};
	JobIdemScope scope;
	JobIdemLoad load;

	JobIdemEnter(&scope);
	JobIdemLoadBegin(&load, JobIdemJobOfRun(run_id, RIGHT_WORK), run_id);
	JobIdemLeaveConnected(&scope);
	JobIdemLoadSource(&load, &source);
	JobIdemEnterConnected(&scope);
	JobIdemLoadEnd(&load);
	JobIdemFaultPoint("add_items");
	JobIdemLeave(&scope);
	PG_RETURN_DATUM(LoadedRow(fcinfo, &load));
}

PG_FUNCTION_INFO_V1(job_idem_seal_run);
Datum
job_idem_seal_run(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	JobIdemScope scope;
	JobIdemJob *job;
	JobIdemRunRow run;
	Datum values[2];
	bool nulls[2] = {false, false};

	JobIdemEnter(&scope);
	job = JobIdemJobOfRun(run_id, RIGHT_WORK);
	JobIdemGetRun(run_id, RUN_FOR_UPDATE, &run);
	if (!run.sealed)
	{
		if (run.state != RUN_LOADING && run.state != RUN_RUNNING)
			JobIdemRunNotOpen(&run, "It can no longer be sealed.");
		JobIdemSeal(job, &run);
		JobIdemFaultPoint("seal_run");
	}
	JobIdemLeave(&scope);
	values[0] = Int64GetDatum(run.n_items);
	values[1] = Int32GetDatum(run.n_slices);
	PG_RETURN_DATUM(JobIdemRow(fcinfo, values, nulls));
}

/* Writes the row even where nothing changes in it: a finish under way must meet the change. */
static bool
Cancel(JobIdemRunRow *run, char *reason, bool force)
{
	JobIdemArgs args = {.n = 0};

	if (run->state == RUN_CANCELLED && (run->forced || !force))
		return false;
	if (run->state != RUN_CANCELLED && !JobIdemRunMay("cancel_run", run->state, RUN_CANCELLED))
		JobIdemRunNotOpen(run, "A run that has ended cannot be cancelled.");
	JobIdemArg(&args, Int64GetDatum(run->run_id));
	JobIdemArg(&args, CStringGetTextDatum(reason));
	JobIdemArg(&args, BoolGetDatum(force));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	(void) JobIdemRun(&cancel, &args, 0);
	JobIdemEvent("cancel_run", run->job_id, run->run_id, NULL,
				 force ? "{\"force\": true}" : NULL, reason);
	return true;
}

PG_FUNCTION_INFO_V1(job_idem_cancel_run);
Datum
job_idem_cancel_run(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	char *reason = JobIdemReasonArgument(fcinfo, 1, true);
	bool force = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	JobIdemScope scope;
	JobIdemRunRow run;
	bool changed;

	JobIdemEnter(&scope);
	(void) JobIdemJobOfRun(run_id, RIGHT_OPERATE);
	JobIdemGetRun(run_id, RUN_FOR_UPDATE, &run);
	changed = Cancel(&run, reason, force);
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(changed);
}

PG_FUNCTION_INFO_V1(job_idem_is_done);
Datum
job_idem_is_done(PG_FUNCTION_ARGS)
{
	char *name = JobIdemTextArgument(fcinfo, 0, "job");
	DateADT business_date = JobIdemDateArgument(fcinfo, 1, "business_date");
	char *run_key = JobIdemRunKeyArgument(fcinfo, 2, business_date);
	JobIdemScope scope;
	JobIdemJob *job;
	JobIdemRunRow run;
	int64 run_id;
	bool done;

	JobIdemEnter(&scope);
	job = JobIdemJobByName(name);
	JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_VIEW);
	done = JobIdemFindRunByKey(job->job_id, run_key, &run_id) &&
		JobIdemFindRun(run_id, RUN_READ, &run) && run.state == RUN_DONE;
	JobIdemLeave(&scope);
	PG_RETURN_BOOL(done);
}
