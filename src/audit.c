/*
 * audit.c - the proof that a run kept to the protocol: one row for every invariant that is broken.
 *
 * One statement, and so one snapshot: no invariant is broken between two transactions of the
 * protocol, so whatever comes back is a finding, also while others work on the run. The statement
 * reads the run's rows set by set and holds each row to a list of named conditions. What the
 * tables' constraints say is asked again, since constraints can be dropped; what foreign keys would
 * say is asked here only.
 *
 * A purged run has nothing left to look at but its own row.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/tstoreReceiver.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "utils/tuplestore.h"

#include "access.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

/* The run, and what it has of each table. `pick` are the items that pick leases list. */
#define ROWS \
	"r AS MATERIALIZED (SELECT r.*, j.job_id IS NOT NULL AS has_job," \
	"  v.definition->>'kind' AS kind, t.run_id IS NOT NULL AS has_tally," \
	"  t.folded, t.behind, t.n_done AS t_done," \
	"  t.n_failed AS t_failed, t.n_lost AS t_lost, t.n_retried AS t_retried," \
	"  r.purged_at IS NOT NULL AS is_purged," \
	"  r.state IN ('done', 'partial') AS is_over" \
	" FROM job_idem.run r LEFT JOIN job_idem.job j USING (job_id)" \
	"  LEFT JOIN job_idem.job_version v ON (v.job_id, v.version) = (r.job_id, r.version)" \
	"  LEFT JOIN job_idem.tally t ON t.run_id = $1" \
	" WHERE r.run_id = $1)," \
	"l AS MATERIALIZED (SELECT l.*, r.state, r.is_over, r.n_slices, r.sealed_at," \
	"  CASE WHEN l.slice_no IS NULL THEN l.outcome <> 'open' AND l.pick_open IS NULL" \
	"   ELSE l.slice_no <= r.folded AND l.slice_no <> ALL (r.behind) END AS is_counted" \
	" FROM job_idem.lease l CROSS JOIN r WHERE l.run_id = $1 AND NOT r.is_purged)," \
	"pick AS MATERIALIZED (SELECT l.token, p.item_no FROM l, unnest(l.picks) AS p (item_no))," \
	"f AS MATERIALIZED (SELECT f.failure_id, f.item_key, f.token, f.kind, f.retry_at," \
	"  lag(f.token) OVER (" \
	"   PARTITION BY f.item_key ORDER BY f.failure_id) AS token_before" \
	" FROM job_idem.failure f CROSS JOIN r WHERE f.run_id = $1 AND NOT r.is_purged)," \
	"d AS MATERIALIZED (SELECT d.dead_letter_id, d.item_key, d.status" \
	" FROM job_idem.dead_letter d CROSS JOIN r WHERE d.run_id = $1 AND NOT r.is_purged)," \
	"e AS MATERIALIZED (SELECT e.item_key, e.step, e.token" \
	" FROM job_idem.item_step e CROSS JOIN r WHERE e.run_id = $1 AND NOT r.is_purged),"

/* The items, plain (p), and with the leases of slice (s) and token (t) and what is filed (i). */
#define ITEMS \
	"p AS NOT MATERIALIZED (SELECT item_no, item_key, state FROM job_idem.item" \
	" WHERE run_id = $1)," \
	"i AS NOT MATERIALIZED (SELECT i.item_no, i.item_key, i.state, i.token, i.due_at, i.done_at," \
	"  i.attempts, i.lost, r.is_over, s.token AS s_token, s.outcome AS s_outcome," \
	"  t.outcome AS t_outcome, pick.token IS NOT NULL AS is_picked," \
	"  i.item_no > 0 AND coalesce(t.slice_no = (i.item_no - 1) / r.batch_size, false)" \
	"   AS is_sliced," \
	"  i.state = 'done' OR (i.state = 'pending' AND coalesce(s.outcome, '') = 'completed')" \
	"   AS is_done," \
	"  tries.token AS last_try, letters.n_open, letters.last_status" \
	" FROM job_idem.item i CROSS JOIN r" \
	"  LEFT JOIN l s" \
	"   ON s.slice_no = CASE WHEN i.item_no > 0 THEN (i.item_no - 1) / r.batch_size END" \
	"  LEFT JOIN l t ON t.token = i.token" \
	"  LEFT JOIN pick ON pick.token = i.token AND pick.item_no = i.item_no" \
	"  LEFT JOIN (SELECT item_key, max(token) AS token FROM f GROUP BY item_key) AS tries" \
	"   ON tries.item_key = i.item_key" \
	"  LEFT JOIN (SELECT item_key, count(*) FILTER (WHERE status = 'open') AS n_open," \
	"    (array_agg(status ORDER BY dead_letter_id DESC))[1] AS last_status" \
	"   FROM d GROUP BY item_key) AS letters ON letters.item_key = i.item_key" \
	" WHERE i.run_id = $1 AND NOT r.is_purged),"

/* What the rows add up to: items done and failures by lease, items of the run, counted leases. */
#define SUMS \
	"done AS MATERIALIZED (SELECT CASE state WHEN 'pending' THEN s_token ELSE token END AS token," \
	"  count(*) AS n FROM i WHERE is_done GROUP BY 1)," \
	"failed AS MATERIALIZED (SELECT token, count(*) FILTER (WHERE kind <> 'lost') AS n_failed," \
	"  count(*) FILTER (WHERE kind = 'lost') AS n_lost," \
	"  count(retry_at) FILTER (WHERE kind <> 'lost') AS n_retried FROM f GROUP BY token)," \
	"n AS MATERIALIZED (SELECT count(*) FILTER (WHERE item_no > 0) AS n_items," \
	"  greatest(max(item_no), 0) AS last_no, count(*) FILTER (WHERE item_no < 0) AS n_late," \
	"  count(*) FILTER (WHERE is_done) AS n_done," \
	"  (SELECT count(*) FROM d WHERE status = 'open') AS n_dead FROM i)," \
	"c AS MATERIALIZED (SELECT coalesce(sum(n_done), 0) AS n_done," \
	"  coalesce(sum(n_failed), 0) AS n_failed, coalesce(sum(n_lost), 0) AS n_lost," \
	"  coalesce(sum(n_retried), 0) AS n_retried," \
	"  (SELECT count(*) FROM l WHERE NOT is_counted) AS n_uncounted FROM l WHERE is_counted)"

#define ITEM_VIOLATIONS \
	"SELECT unnest(array_remove(ARRAY[" \
	"  CASE WHEN state = 'claimed' AND NOT (is_picked AND coalesce(t_outcome, '') = 'open')" \
	"   THEN 'claimed_is_held' END," \
	"  CASE WHEN state = 'pending' AND s_outcome IN ('released', 'expired')" \
	"   THEN 'closed_leaves_none' END," \
	"  CASE WHEN state = 'pending' AND item_no < 0 THEN 'pending_has_slice' END," \
	"  CASE WHEN state = 'pending' AND (token IS NOT NULL OR attempts <> 0 OR lost <> 0" \
	"   OR last_try IS NOT NULL) THEN 'pending_is_untouched' END," \
	"  CASE WHEN (state = 'waiting') <> (due_at IS NOT NULL) THEN 'waiting_is_due' END," \
	"  CASE WHEN (state = 'done') <> (done_at IS NOT NULL) THEN 'done_has_time' END," \
	"  CASE WHEN state = 'done' AND NOT (is_picked OR is_sliced) THEN 'done_has_lease' END," \
	"  CASE WHEN state IN ('claimed', 'done') AND token <= last_try THEN 'token_grows' END," \
	"  CASE WHEN state = 'dead' AND NOT (coalesce(n_open, 0) = 1" \
	"   OR (coalesce(n_open, 0) = 0 AND coalesce(last_status, '') = 'discarded'))" \
	"   THEN 'dead_has_letter' END," \
	"  CASE WHEN is_over AND NOT is_done AND state <> 'dead' THEN 'ended_is_over' END" \
	" ], NULL)) AS invariant, item_key, coalesce(token, s_token) AS token," \
	" format('item %s is %s; lease of its slice: %s, of its token: %s', item_no, state," \
	"  coalesce(s_outcome, 'none'), coalesce(t_outcome, 'none')) AS detail FROM i" \
	" UNION ALL SELECT 'key_is_once', item_key, NULL, format('%s items have this key', count(*))" \
	" FROM p GROUP BY item_key HAVING count(*) > 1"

#define LEASE_VIOLATIONS \
	" UNION ALL SELECT unnest(array_remove(ARRAY[" \
	"  CASE WHEN (slice_no IS NULL) <> (picks IS NOT NULL) THEN 'slice_or_picks' END," \
	"  CASE WHEN slice_no >= n_slices OR (slice_no >= 0 AND sealed_at IS NULL)" \
	"   THEN 'slice_exists' END," \
	"  CASE WHEN n_items <> cardinality(picks) THEN 'picks_are_counted' END," \
	"  CASE WHEN outcome = 'open' AND picks IS NOT NULL AND pick_open IS NOT TRUE" \
	"   OR outcome <> 'open' AND pick_open IS TRUE OR picks IS NULL AND pick_open IS NOT NULL" \
	"   THEN 'open_is_marked' END," \
	"  CASE WHEN num_nulls(closed_at, n_done, l.n_failed, l.n_lost, l.n_retried)" \
	"   <> CASE outcome WHEN 'open' THEN 5 ELSE 0 END THEN 'closed_has_counts' END," \
	"  CASE WHEN n_done + l.n_failed + l.n_lost > n_items THEN 'counts_fit' END," \
	"  CASE WHEN outcome <> 'open' AND n_done <> coalesce(done.n, 0) THEN 'done_is_counted' END," \
	"  CASE WHEN outcome <> 'open' AND (l.n_failed <> coalesce(failed.n_failed, 0)" \
	"   OR l.n_lost <> coalesce(failed.n_lost, 0)" \
	"   OR l.n_retried <> coalesce(failed.n_retried, 0)) THEN 'failed_is_counted' END," \
	"  CASE WHEN outcome <> 'expired' AND l.n_lost > 0 THEN 'lost_is_expired' END," \
	"  CASE WHEN deadline > hard_deadline THEN 'deadline_is_bounded' END," \
	"  CASE WHEN is_over AND outcome = 'open' THEN 'ended_has_no_lease' END," \
	"  CASE WHEN state NOT IN ('running', 'done', 'partial', 'cancelled')" \
	"   THEN 'claims_need_running' END" \
	" ], NULL)), NULL, token," \
	" format('%s lease, %s, of %s items: %s done, %s failed, %s lost, %s retried;" \
	" rows say %s, %s, %s, %s'," \
	"  CASE WHEN slice_no IS NULL THEN 'pick' ELSE 'slice ' || slice_no END, outcome, n_items," \
	"  coalesce(n_done::text, '?'), coalesce(l.n_failed::text, '?')," \
	"  coalesce(l.n_lost::text, '?'), coalesce(l.n_retried::text, '?')," \
	"  coalesce(done.n, 0), coalesce(failed.n_failed, 0), coalesce(failed.n_lost, 0)," \
	"  coalesce(failed.n_retried, 0))" \
	" FROM l LEFT JOIN done USING (token) LEFT JOIN failed USING (token)" \
	" UNION ALL SELECT 'slice_is_leased_once', NULL, max(token)," \
	"  format('slice %s has %s leases', slice_no, count(*))" \
	" FROM l WHERE slice_no IS NOT NULL GROUP BY slice_no HAVING count(*) > 1" \
	" UNION ALL SELECT 'pick_has_item', NULL, pick.token, format('no item %s', pick.item_no)" \
	" FROM pick LEFT JOIN p USING (item_no) WHERE p.item_no IS NULL"

#define FILE_VIOLATIONS \
	" UNION ALL SELECT unnest(array_remove(ARRAY[" \
	"  CASE WHEN l.token IS NULL THEN 'failure_has_lease' END," \
	"  CASE WHEN p.item_key IS NULL THEN 'failure_has_item' END," \
	"  CASE WHEN f.token <= f.token_before THEN 'token_grows' END" \
	" ], NULL)), f.item_key, f.token, format('failure %s', f.failure_id)" \
	" FROM f LEFT JOIN l USING (token) LEFT JOIN p USING (item_key)" \
	" UNION ALL SELECT unnest(array_remove(ARRAY[" \
	"  CASE WHEN p.item_key IS NULL THEN 'letter_has_item' END," \
	"  CASE WHEN d.status = 'open' AND p.state <> 'dead' THEN 'letter_is_dead' END" \
	" ], NULL)), d.item_key, NULL, format('dead letter %s is %s', d.dead_letter_id, d.status)" \
	" FROM d LEFT JOIN p USING (item_key)" \
	" UNION ALL SELECT unnest(array_remove(ARRAY[" \
	"  CASE WHEN l.token IS NULL THEN 'step_has_lease' END," \
	"  CASE WHEN p.item_key IS NULL THEN 'step_has_item' END" \
	" ], NULL)), e.item_key, e.token, format('step %s', e.step)" \
	" FROM e LEFT JOIN l USING (token) LEFT JOIN p USING (item_key)"

#define RUN_VIOLATIONS \
	" UNION ALL SELECT v.invariant, NULL, NULL, v.detail FROM r, n, c, LATERAL (VALUES" \
	"  ('job_exists', NOT has_job, format('job %s', job_id))," \
	"  ('version_exists', kind IS NULL, format('version %s', version))," \
	"  ('purged_is_over', is_purged AND (state NOT IN ('done', 'cancelled', 'skipped', 'expired')" \
	"    OR EXISTS (SELECT FROM job_idem.lease x WHERE x.run_id = $1 AND x.outcome = 'open')" \
	"    OR EXISTS (SELECT FROM job_idem.dead_letter x" \
	"     WHERE x.run_id = $1 AND x.status = 'open'))," \
	"   format('purged, %s, with open leases or dead letters', state))," \
	"  ('ended_has_time', is_over AND (sealed_at IS NULL OR finished_at IS NULL)," \
	"   format('sealed %s, finished %s', sealed_at, finished_at))" \
	" ) AS v (invariant, is_broken, detail) WHERE v.is_broken" \
	" UNION ALL SELECT v.invariant, NULL, NULL, v.detail FROM r, n, c, LATERAL (VALUES" \
	"  ('numbers_have_no_holes', n.n_items <> r.n_items OR n.last_no <> r.n_items," \
	"   format('%s items up to number %s; the run says %s', n.n_items, n.last_no, r.n_items))," \
	"  ('slices_fit', n_slices <> CASE WHEN sealed_at IS NULL THEN 0" \
	"    ELSE (r.n_items + batch_size - 1) / batch_size END," \
	"   format('%s slices of %s for %s items', n_slices, batch_size, r.n_items))," \
	"  ('late_is_counted', r.n_late <> CASE kind WHEN 'keyed' THEN 0 ELSE n.n_late END," \
	"   format('%s late items; the run says %s', n.n_late, r.n_late))," \
	"  ('run_counts_done', is_over AND r.n_done IS DISTINCT FROM n.n_done," \
	"   format('%s items are done; the run says %s', n.n_done, r.n_done))," \
	"  ('run_counts_dead', is_over AND (r.n_dead IS DISTINCT FROM n.n_dead" \
	"    OR (state = 'done') <> (n.n_dead = 0))," \
	"   format('%s dead letters are open; the %s run says %s', n.n_dead, state, r.n_dead))," \
	"  ('tally_exists', NOT has_tally, '')," \
	"  ('tally_is_sum', (t_done, t_failed, t_lost, t_retried)" \
	"    <> (c.n_done, c.n_failed, c.n_lost, c.n_retried)," \
	"   format('counted leases: %s done, %s failed, %s lost, %s retried;" \
	" the tally says %s, %s, %s, %s', c.n_done, c.n_failed, c.n_lost, c.n_retried," \
	"    t_done, t_failed, t_lost, t_retried))," \
	"  ('behind_is_sound', cardinality(behind) <> (SELECT count(DISTINCT b)" \
	"    FROM unnest(behind) AS b WHERE b BETWEEN 0 AND folded)," \
	"   format('folded %s, behind %s', folded, behind))," \
	"  ('ended_is_counted', is_over AND (folded <> n_slices - 1 OR behind <> '{}'" \
	"    OR c.n_uncounted > 0)," \
	"   format('folded %s, behind %s', folded, behind))" \
	" ) AS v (invariant, is_broken, detail) WHERE v.is_broken AND NOT is_purged" \
	" UNION ALL SELECT 'folded_is_closed', NULL, NULL, format('slice %s', s.slice_no)" \
	" FROM r CROSS JOIN generate_series(0, r.folded) AS s (slice_no)" \
	"  LEFT JOIN l ON l.slice_no = s.slice_no AND l.outcome <> 'open'" \
	" WHERE l.token IS NULL AND s.slice_no <> ALL (r.behind) AND NOT r.is_purged" \
	" UNION ALL SELECT 'run_exists', NULL, NULL, format('rows of %s', v.name) FROM (VALUES" \
	"  ('item', EXISTS (SELECT FROM job_idem.item WHERE run_id = $1))," \
	"  ('lease', EXISTS (SELECT FROM job_idem.lease WHERE run_id = $1))," \
	"  ('failure', EXISTS (SELECT FROM job_idem.failure WHERE run_id = $1))," \
	"  ('dead_letter', EXISTS (SELECT FROM job_idem.dead_letter WHERE run_id = $1))," \
	"  ('item_step', EXISTS (SELECT FROM job_idem.item_step WHERE run_id = $1))," \
	"  ('run_trigger', EXISTS (SELECT FROM job_idem.run_trigger WHERE run_id = $1))," \
	"  ('tally', EXISTS (SELECT FROM job_idem.tally WHERE run_id = $1))" \
	" ) AS v (name, has_rows) WHERE v.has_rows AND NOT EXISTS (SELECT FROM r)"

#define ALL_VIOLATIONS ITEM_VIOLATIONS LEASE_VIOLATIONS FILE_VIOLATIONS RUN_VIOLATIONS

JOB_IDEM_STATEMENT(violations,
				   "WITH " ROWS ITEMS SUMS
				   " SELECT * FROM (" ALL_VIOLATIONS ") AS v ORDER BY 1, 2, 3, 4",
				   1, INT8OID);

/* Who may see all jobs may also see what has lost its job. True if the run's row is there. */
static bool
RequireView(int64 run_id)
{
	bool sees_all = JobIdemHasRight(0, InvalidOid, RIGHT_VIEW);
	JobIdemRunRow run;
	JobIdemJob *job;

	if (!JobIdemFindRun(run_id, RUN_READ, &run))
	{
		if (!sees_all)
			JobIdemRunGone(run_id);
		return false;
	}
	if (!sees_all)
	{
		job = JobIdemJobById(run.job_id);
		JobIdemRequire(job->job_id, job->owner, job->name, RIGHT_VIEW);
	}
	return true;
}

PG_FUNCTION_INFO_V1(job_idem_audit);
Datum
job_idem_audit(PG_FUNCTION_ARGS)
{
	int64 run_id = JobIdemInt64Argument(fcinfo, 0, "run_id");
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DestReceiver *receiver = CreateDestReceiver(DestTuplestore);
	JobIdemScope scope;
	JobIdemArgs args = {.n = 0};
	bool is_there;
	uint64 n;

	InitMaterializedSRF(fcinfo, 0);
	SetTuplestoreDestReceiverParams(receiver, result->setResult, CurrentMemoryContext, false, NULL,
									NULL);
	JobIdemEnter(&scope);
	is_there = RequireView(run_id);
	/* they look cheap for a run that statistics do not know yet, and never end on a big one */
	JobIdemPin("enable_nestloop", "off");
	JobIdemArg(&args, Int64GetDatum(run_id));
	n = JobIdemRunInto(&violations, &args, receiver);
	JobIdemLeave(&scope);
	receiver->rDestroy(receiver);
	if (n == 0 && !is_there)
		JobIdemRunGone(run_id);
	return (Datum) 0;
}
