/*
 * finish.c - ends a run when every item of it is terminal. Never waits.
 *
 * Locks by trying: the run lock, which claims of new keys and late loads hold shared, then the run
 * row; folds; and only then asks, in one statement and so in one snapshot, whether anything is
 * left. READ COMMITTED only: the question must be put to what is committed now.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "event.h"
#include "fault.h"
#include "finish.h"
#include "lock_tag.h"
#include "lookup.h"
#include "release.h"
#include "spi.h"
#include "tally.h"

/* Nothing of run r, with tally t, is open, uncounted or waiting. */
#define IS_OVER \
	" r.state = 'running' AND r.sealed_at IS NOT NULL AND t.folded = r.n_slices - 1" \
	" AND t.behind = '{}' AND NOT EXISTS (SELECT FROM job_idem.lease l" \
	"  WHERE l.run_id = r.run_id AND l.pick_open IS NOT NULL)" \
	" AND NOT EXISTS (SELECT FROM job_idem.item i" \
	"  WHERE i.run_id = r.run_id AND i.due_at IS NOT NULL)"

JOB_IDEM_STATEMENT(is_over,
				   "SELECT 1 FROM job_idem.run r JOIN job_idem.tally t USING (run_id)"
				   " WHERE r.run_id = $1 AND" IS_OVER,
				   1, INT8OID);
JOB_IDEM_STATEMENT(end_run,
				   "UPDATE job_idem.run r SET state = CASE WHEN d.n = 0 THEN 'done' ELSE"
				   " 'partial' END,"
				   " finished_at = $2, n_done = t.n_done, n_dead = d.n, started_at ="
				   " coalesce(r.started_at,"
				   "  (SELECT claimed_at FROM job_idem.lease WHERE run_id = $1 AND slice_no ="
				   " 0), r.sealed_at)"
				   " FROM job_idem.tally t, (SELECT count(*) AS n FROM job_idem.dead_letter"
				   "  WHERE run_id = $1 AND status = 'open') d"
				   " WHERE r.run_id = $1 AND t.run_id = $1 AND" IS_OVER " RETURNING r.state,"
				   " t.n_done, d.n",
				   2, INT8OID, TIMESTAMPTZOID);

static bool
LooksOver(int64 run_id)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int64GetDatum(run_id));
	return JobIdemRun(&is_over, &args, 1) == 1;
}

/*
 * The state that the run is in afterwards is written with its event, in the caller's transaction.
 */
bool
JobIdemFinish(int64 run_id, int64 job_id)
{
	JobIdemRunRow run;
	const char *state;
	const char *detail;
	JobIdemArgs args = {.n = 0};

	JobIdemTallyFold(run_id);
	if (!LooksOver(run_id))
		return false;
	if (!JobIdemTryLock(LOCK_RUN, JobIdemFold(run_id), 0, true))
		return false;
	if (!JobIdemFindRun(run_id, RUN_TRY_UPDATE, &run))
		return false;
	JobIdemTallyFold(run_id);
	JobIdemFaultPoint("finish");
	JobIdemArg(&args, Int64GetDatum(run_id));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	if (JobIdemRun(&end_run, &args, 0) == 0)
		return false;
	state = JobIdemText(0, 1, CurrentMemoryContext);
	detail = psprintf("{\"state\": \"%s\", \"n_done\": " INT64_FORMAT ", \"n_dead\": " INT64_FORMAT
					  "}",
					  state, JobIdemInt64(0, 2), JobIdemInt64(0, 3));
	JobIdemEvent("finish", job_id, run_id, NULL, detail, NULL);
	if (strcmp(state, "done") == 0)
		JobIdemReleaseWaiting(job_id);
	return true;
}
