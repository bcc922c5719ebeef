-- Views: readable without knowing the protocol. Each shows the jobs its reader may see.

CREATE VIEW job_idem.jobs WITH (security_barrier) AS
SELECT j.name AS job, j.kind, j.tier, j.version,
	CASE
		WHEN j.dropped_at IS NOT NULL THEN 'dropped'
		WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_roles o WHERE o.oid = j.owner AND o.rolname = j.owner_name)
			THEN 'owner missing'
		WHEN NOT j.enabled THEN 'disabled'
		WHEN j.paused_at IS NOT NULL THEN 'paused'
		ELSE 'enabled'
	END AS state,
	j.owner_name AS owner, j.paused_at, j.paused_reason, j.schedule, j.timezone, j.calendar, j.business_date_offset,
	j.run_per, j.misfire, j.misfire_grace, j.valid_for, j.catch_up_limit, j.overlap, j.closed_day, j.lease, j.takeover_delay, j.max_lease, j.at_max_lease,
	j.max_attempts, j.backoff_base, j.backoff_factor, j.backoff_max, j.unknown_as, j.retry_budget,
	j.failure_threshold, j.failure_window, j.batch_size, j.item_source, j.close_after, j.created_at,
	j.changed_at, j.dropped_at, j.job_id
FROM job_idem.job j
WHERE job_idem.may_view(j.job_id);
COMMENT ON VIEW job_idem.jobs IS 'the jobs, with every part of their definition in force';
COMMENT ON COLUMN job_idem.jobs.state IS 'enabled, paused (pause_job), disabled, dropped, or owner missing: that role is gone or renamed';
COMMENT ON COLUMN job_idem.jobs.schedule IS 'cron, in timezone; NULL: its runs are opened by hand';
COMMENT ON COLUMN job_idem.jobs.business_date_offset IS 'days, or with a calendar open days, from the planned local date to the business date';
COMMENT ON COLUMN job_idem.jobs.run_per IS 'one run a date, or one a fire';
COMMENT ON COLUMN job_idem.jobs.misfire IS 'what becomes of fires found later than misfire_grace: catch_up, latest, skip or expire';
COMMENT ON COLUMN job_idem.jobs.catch_up_limit IS 'rows that one tick plans at most';
COMMENT ON COLUMN job_idem.jobs.overlap IS 'while an earlier run is not finished: allow, wait or skip';
COMMENT ON COLUMN job_idem.jobs.closed_day IS 'what becomes of a fire on a closed day of the calendar: skip, next or previous';
COMMENT ON COLUMN job_idem.jobs.takeover_delay IS 'how long after its deadline a claim is taken back';
COMMENT ON COLUMN job_idem.jobs.max_lease IS 'how long heartbeats can keep a claim';
COMMENT ON COLUMN job_idem.jobs.at_max_lease IS 'what becomes of a transaction that holds a claim past max_lease: wait or terminate';
COMMENT ON COLUMN job_idem.jobs.max_attempts IS 'tries of an item before it is a dead letter';
COMMENT ON COLUMN job_idem.jobs.backoff_max IS 'the wait before try n is at most backoff_base x backoff_factor^(n - 2), and never more than this';
COMMENT ON COLUMN job_idem.jobs.unknown_as IS 'how a failure is treated that no rule knows: business or transient';
COMMENT ON COLUMN job_idem.jobs.retry_budget IS 'retries of a run as a share of its items; NULL: no limit';
COMMENT ON COLUMN job_idem.jobs.failure_threshold IS 'share of failed tries that pauses a run; NULL: off';
COMMENT ON COLUMN job_idem.jobs.failure_window IS 'how far back failure_threshold looks';
COMMENT ON COLUMN job_idem.jobs.batch_size IS 'most items of one claim; a run keeps the one it was sealed with';
COMMENT ON COLUMN job_idem.jobs.close_after IS 'how long after its business date a run takes late items and new keys';

CREATE VIEW job_idem.runs WITH (security_barrier) AS
SELECT j.name AS job, r.business_date, r.run_key, r.state, r.priority, r.version, CASE WHEN j.kind <> 'keyed' THEN r.n_items + r.n_late
		WHEN r.state IN ('done', 'partial') THEN r.n_done + (SELECT pg_catalog.count(*) FROM job_idem.dead_letter d
			WHERE d.run_id = r.run_id AND d.status <> 'replayed') END AS n_items,
	r.n_done, (SELECT pg_catalog.count(*) FROM job_idem.dead_letter d WHERE d.run_id = r.run_id AND d.status = 'open')
		AS n_dead,
	(SELECT pg_catalog.count(*) FROM job_idem.run_trigger t WHERE t.run_id = r.run_id) AS trigger_count,
	r.reason, r.paused_at, r.paused_reason, r.retries_closed, r.params, r.batch_size, r.n_slices, r.opened_at, r.sealed_at, r.started_at, r.finished_at, r.purged_at,
	r.run_id
FROM job_idem.run r JOIN job_idem.job j USING (job_id)
WHERE job_idem.may_view(r.job_id);
COMMENT ON VIEW job_idem.runs IS 'one row for each run key of a job; a finished run stays as the mark that its work is done';
COMMENT ON COLUMN job_idem.runs.state IS 'loading, blocked, running, done, partial (over, but dead letters are open), cancelled, skipped, expired';
COMMENT ON COLUMN job_idem.runs.priority IS 'larger is more urgent';
COMMENT ON COLUMN job_idem.runs.n_items IS 'items of the list, late ones included; not known for keyed jobs, whose items appear when they are claimed';
COMMENT ON COLUMN job_idem.runs.n_done IS 'items done; set when the run ends, before that see progress';
COMMENT ON COLUMN job_idem.runs.n_dead IS 'open dead letters';
COMMENT ON COLUMN job_idem.runs.trigger_count IS 'how often the run was asked for (open_run)';
COMMENT ON COLUMN job_idem.runs.paused_at IS 'set: nothing of the run is claimed until resume_run';
COMMENT ON COLUMN job_idem.runs.paused_reason IS 'what the breaker found, or who paused it said';
COMMENT ON COLUMN job_idem.runs.retries_closed IS 'set: its retry budget is spent, every further failure makes a dead letter';
COMMENT ON COLUMN job_idem.runs.purged_at IS 'when its items were removed by retention';

-- An item's effective state: a pending item in an open slice lease is claimed, in a completed one done.
CREATE VIEW job_idem.items WITH (security_barrier) AS
SELECT j.name AS job, r.business_date, r.run_key, i.item_key,
	CASE WHEN i.state <> 'pending' OR s.outcome IS NULL THEN i.state
		WHEN s.outcome = 'open' THEN 'claimed' WHEN s.outcome = 'completed' THEN 'done' ELSE i.state END AS state,
	i.attempts, i.lost, i.due_at,
	CASE WHEN i.state = 'pending' AND s.outcome = 'completed' THEN s.closed_at ELSE i.done_at END AS done_at,
	CASE WHEN i.state = 'pending' THEN s.worker WHEN i.state IN ('claimed', 'done') THEN p.worker END AS worker,
	CASE WHEN i.state = 'pending' THEN s.token ELSE i.token END AS token,
	CASE WHEN i.state = 'pending' AND s.outcome = 'open' THEN s.deadline
		WHEN i.state = 'claimed' THEN p.deadline END AS deadline,
	i.payload, i.result, i.run_id, i.item_no
FROM job_idem.item i
	JOIN job_idem.run r USING (run_id)
	JOIN job_idem.job j USING (job_id)
	LEFT JOIN job_idem.lease s ON s.run_id = i.run_id
		AND s.slice_no = CASE WHEN i.item_no > 0 THEN ((i.item_no - 1) / r.batch_size)::integer END
	LEFT JOIN job_idem.lease p ON p.token = i.token
WHERE job_idem.may_view(r.job_id);
COMMENT ON VIEW job_idem.items IS 'the items of all runs, with the state that they are in for those who work on them';
COMMENT ON COLUMN job_idem.items.state IS 'pending, waiting (due_at), claimed, done or dead (dead_letters)';
COMMENT ON COLUMN job_idem.items.attempts IS 'tries that failed';
COMMENT ON COLUMN job_idem.items.lost IS 'claims that ended before the item was finished';
COMMENT ON COLUMN job_idem.items.worker IS 'who has it, or has finished it';
COMMENT ON COLUMN job_idem.items.token IS 'of the claim that has it, or has finished it';
COMMENT ON COLUMN job_idem.items.deadline IS 'until when the claim that has it lasts without a heartbeat';
COMMENT ON COLUMN job_idem.items.item_no IS 'place in the list; negative for late items and those of keyed jobs';

CREATE VIEW job_idem.leases WITH (security_barrier) AS
SELECT j.name AS job, r.business_date, r.run_key, l.token, l.worker, l.outcome, l.claimed_at, l.deadline,
	l.hard_deadline, l.closed_at, l.outcome = 'open' AND l.deadline + j.takeover_delay <= job_idem.now() AS overdue,
	CASE WHEN l.slice_no IS NULL THEN 'pick' ELSE 'slice' END AS lease_kind, l.slice_no, l.n_items, l.n_done,
	l.n_failed, l.n_retried, l.n_lost, l.version, l.backend, l.run_id
FROM job_idem.lease l
	JOIN job_idem.run r USING (run_id)
	JOIN job_idem.job j USING (job_id)
WHERE job_idem.may_view(r.job_id);

-- Reads the tally and the leases not counted in it, and the item rows of open leases only. The total of a keyed run is
COMMENT ON VIEW job_idem.leases IS 'every claim there was: who held which items until when, and how it ended';
COMMENT ON COLUMN job_idem.leases.outcome IS 'open, completed, released (given back) or expired (taken back)';
COMMENT ON COLUMN job_idem.leases.overdue IS 'open past its deadline and takeover_delay of the job: the next tick or idle claim takes it back';
COMMENT ON COLUMN job_idem.leases.hard_deadline IS 'past this no heartbeat helps';
COMMENT ON COLUMN job_idem.leases.lease_kind IS 'slice: a stretch of the list; pick: single items';
COMMENT ON COLUMN job_idem.leases.n_retried IS 'of n_failed, those that led to a retry';
COMMENT ON COLUMN job_idem.leases.backend IS 'process id that claimed; behind a pooler it may serve others by now';

-- what has come so far. Discarded items count in percent, not as dead.
CREATE VIEW job_idem.progress WITH (security_barrier) AS
SELECT p.job, p.business_date, p.run_key, p.state, p.done, p.dead, p.total,
	CASE WHEN p.state = 'done' THEN 100.0 ELSE pg_catalog.round(100.0 * (p.done + p.gone) / nullif(p.total, 0), 1) END
		AS percent,
	pg_catalog.rpad(pg_catalog.repeat('#', CASE WHEN p.state = 'done' THEN 20
		ELSE (20 * (p.done + p.gone) / greatest(p.total, 1))::integer END), 20, '.') AS bar,
	p.run_id
FROM (
	SELECT j.name AS job, r.business_date, r.run_key, r.state, r.run_id, c.done, d.open AS dead, d.gone,
		CASE j.kind WHEN 'keyed' THEN c.done + d.gone + w.waiting + c.held ELSE r.n_items + r.n_late END AS total
	FROM job_idem.run r
		JOIN job_idem.job j USING (job_id)
		JOIN job_idem.tally t USING (run_id)
		CROSS JOIN LATERAL (
			SELECT t.n_done + coalesce(pg_catalog.sum(u.done), 0)::bigint AS done,
				coalesce(pg_catalog.sum(u.held), 0)::bigint AS held
			FROM (
				SELECT l.n_done AS done, 0 AS held FROM job_idem.lease l
				WHERE l.run_id = r.run_id AND l.slice_no > t.folded AND l.outcome <> 'open'
				UNION ALL
				SELECT l.n_done, 0 FROM job_idem.lease l
				WHERE l.run_id = r.run_id AND l.slice_no = ANY (t.behind) AND l.outcome <> 'open'
				UNION ALL
				SELECT l.n_done, 0 FROM job_idem.lease l
				WHERE l.run_id = r.run_id AND l.pick_open IS NOT NULL AND NOT l.pick_open
				UNION ALL
				SELECT o.done, 0
				FROM (
					SELECT l.token, l.slice_no FROM job_idem.lease l
					WHERE l.run_id = r.run_id AND l.slice_no > t.folded AND l.outcome = 'open'
					UNION ALL
					SELECT l.token, l.slice_no FROM job_idem.lease l
					WHERE l.run_id = r.run_id AND l.slice_no = ANY (t.behind) AND l.outcome = 'open') AS l
					CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS done FROM job_idem.item i
						WHERE i.run_id = r.run_id AND i.item_no > l.slice_no::bigint * r.batch_size
						AND i.item_no <= (l.slice_no + 1)::bigint * r.batch_size
						AND i.state = 'done' AND i.token = l.token) AS o
				UNION ALL
				SELECT o.done, o.held
				FROM job_idem.lease l
					CROSS JOIN LATERAL (SELECT pg_catalog.count(*) FILTER (WHERE i.state = 'done') AS done,
						pg_catalog.count(*) FILTER (WHERE i.state = 'claimed') AS held FROM job_idem.item i
						WHERE i.run_id = r.run_id AND i.item_no = ANY (l.picks) AND i.token = l.token) AS o
				WHERE l.run_id = r.run_id AND l.pick_open) AS u) AS c
		CROSS JOIN LATERAL (
			SELECT pg_catalog.count(*) FILTER (WHERE d.status = 'open') AS open,
				pg_catalog.count(*) FILTER (WHERE d.status <> 'replayed') AS gone
			FROM job_idem.dead_letter d WHERE d.run_id = r.run_id) AS d
		CROSS JOIN LATERAL (
			SELECT pg_catalog.count(*) AS waiting FROM job_idem.item i
			WHERE i.run_id = r.run_id AND i.due_at IS NOT NULL AND j.kind = 'keyed') AS w
	WHERE job_idem.may_view(r.job_id)) AS p;
COMMENT ON VIEW job_idem.progress IS 'how far each run is; costs the same however many items a run has';
COMMENT ON COLUMN job_idem.progress.done IS 'items done';
COMMENT ON COLUMN job_idem.progress.dead IS 'open dead letters';
COMMENT ON COLUMN job_idem.progress.total IS 'items of the run';
COMMENT ON COLUMN job_idem.progress.percent IS 'done and dead, of total';

CREATE VIEW job_idem.dead_letters WITH (security_barrier) AS
SELECT d.dead_letter_id, j.name AS job, r.business_date, r.run_key, d.item_key, d.status, d.reason, d.kind, d.sqlstate,
	d.error_class, d.attempts, d.dead_at,
	(SELECT f.message FROM job_idem.failure f WHERE f.run_id = d.run_id AND f.item_key = d.item_key
		AND f.failed_at <= d.dead_at ORDER BY f.failure_id DESC LIMIT 1) AS message,
	d.payload, d.resolved_at, d.resolved_by, d.note, d.run_id
FROM job_idem.dead_letter d
	JOIN job_idem.run r USING (run_id)
	JOIN job_idem.job j USING (job_id)
WHERE job_idem.may_view(r.job_id);
COMMENT ON VIEW job_idem.dead_letters IS 'items that are not tried again by themselves; replay or discard resolves one for good';
COMMENT ON COLUMN job_idem.dead_letters.status IS 'open, replayed or discarded';
COMMENT ON COLUMN job_idem.dead_letters.kind IS 'of the last failure: transient, business, lost or unknown';
COMMENT ON COLUMN job_idem.dead_letters.attempts IS 'tries that failed';
COMMENT ON COLUMN job_idem.dead_letters.message IS 'of the last failure';
COMMENT ON COLUMN job_idem.dead_letters.payload IS 'of the item when it died';
COMMENT ON COLUMN job_idem.dead_letters.note IS 'what the one who resolved it said';

CREATE VIEW job_idem.failures WITH (security_barrier) AS
SELECT j.name AS job, r.business_date, r.run_key, f.item_key, f.attempt, f.failed_at, f.kind, f.sqlstate,
	f.error_class, f.message, f.retry_at, l.worker, f.token, f.run_id, f.failure_id
FROM job_idem.failure f
	JOIN job_idem.run r USING (run_id)
	JOIN job_idem.job j USING (job_id)
	LEFT JOIN job_idem.lease l ON l.token = f.token
WHERE job_idem.may_view(r.job_id);
COMMENT ON VIEW job_idem.failures IS 'every failed or lost try of an item';
COMMENT ON COLUMN job_idem.failures.attempt IS 'counted tries up to this one; a loss in company counts as none';
COMMENT ON COLUMN job_idem.failures.kind IS 'transient (tried again), business, lost (the claim ended first) or unknown (no SQLSTATE, no rule)';
COMMENT ON COLUMN job_idem.failures.retry_at IS 'from when it is tried again; NULL: it made a dead letter';

CREATE VIEW job_idem.error_rules WITH (security_barrier) AS
SELECT j.name AS job, e.sqlstate, e.error_class, e.kind, e.note, e.set_at, e.set_by
FROM job_idem.error_rule e
	LEFT JOIN job_idem.job j USING (job_id)
WHERE e.job_id IS NULL OR job_idem.may_view(e.job_id);
COMMENT ON VIEW job_idem.error_rules IS 'what kind of failure an error is, where the SQLSTATE alone does not decide';
COMMENT ON COLUMN job_idem.error_rules.job IS 'NULL: for all jobs';
COMMENT ON COLUMN job_idem.error_rules.sqlstate IS 'what the SQLSTATE begins with';
COMMENT ON COLUMN job_idem.error_rules.error_class IS 'a pattern, in which * stands for any characters and ? for any one';
