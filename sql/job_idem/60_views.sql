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
	j.owner_name AS owner, j.paused_at, j.paused_reason, j.lease, j.takeover_delay, j.max_lease, j.max_attempts,
	j.backoff_base, j.backoff_factor, j.backoff_max, j.batch_size, j.item_source, j.close_after, j.created_at,
	j.changed_at, j.dropped_at, j.job_id
FROM job_idem.job j
WHERE job_idem.may_view(j.job_id);

CREATE VIEW job_idem.runs WITH (security_barrier) AS
SELECT j.name AS job, r.business_date, r.run_key, r.state, r.priority, r.version, r.n_items + r.n_late AS n_items,
	r.n_done, (SELECT pg_catalog.count(*) FROM job_idem.dead_letter d WHERE d.run_id = r.run_id AND d.status = 'open')
		AS n_dead,
	(SELECT pg_catalog.count(*) FROM job_idem.run_trigger t WHERE t.run_id = r.run_id) AS trigger_count,
	r.reason, r.params, r.batch_size, r.n_slices, r.opened_at, r.sealed_at, r.started_at, r.finished_at, r.purged_at,
	r.run_id
FROM job_idem.run r JOIN job_idem.job j USING (job_id)
WHERE job_idem.may_view(r.job_id);

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
	LEFT JOIN job_idem.lease s ON i.item_no > 0 AND s.run_id = i.run_id
		AND s.slice_no = ((i.item_no - 1) / r.batch_size)::integer
	LEFT JOIN job_idem.lease p ON p.token = i.token
WHERE job_idem.may_view(r.job_id);

CREATE VIEW job_idem.leases WITH (security_barrier) AS
SELECT j.name AS job, r.business_date, r.run_key, l.token, l.worker, l.outcome, l.claimed_at, l.deadline,
	l.hard_deadline, l.closed_at, l.outcome = 'open' AND l.deadline + j.takeover_delay <= job_idem.now() AS overdue,
	CASE WHEN l.slice_no IS NULL THEN 'pick' ELSE 'slice' END AS lease_kind, l.slice_no, l.n_items, l.n_done,
	l.n_failed, l.n_lost, l.backend, l.run_id
FROM job_idem.lease l
	JOIN job_idem.run r USING (run_id)
	JOIN job_idem.job j USING (job_id)
WHERE job_idem.may_view(r.job_id);

-- Reads the tally and the leases not counted in it, and the item rows of open leases only.
CREATE VIEW job_idem.progress WITH (security_barrier) AS
SELECT p.job, p.business_date, p.run_key, p.state, p.done, p.dead, p.total,
	pg_catalog.round(100.0 * (p.done + p.dead) / nullif(p.total, 0), 1) AS percent,
	pg_catalog.repeat('#', (20 * (p.done + p.dead) / greatest(p.total, 1))::integer)
		|| pg_catalog.repeat('.', 20 - (20 * (p.done + p.dead) / greatest(p.total, 1))::integer) AS bar,
	p.run_id
FROM (
	SELECT j.name AS job, r.business_date, r.run_key, r.state, r.run_id, r.n_items + r.n_late AS total,
		CASE WHEN r.state IN ('done', 'partial') THEN r.n_done ELSE t.n_done + u.n_done END AS done,
		(SELECT pg_catalog.count(*) FROM job_idem.dead_letter d
			WHERE d.run_id = r.run_id AND d.status = 'open') AS dead
	FROM job_idem.run r
		JOIN job_idem.job j USING (job_id)
		JOIN job_idem.tally t USING (run_id)
		CROSS JOIN LATERAL (
			SELECT coalesce(pg_catalog.sum(CASE WHEN l.outcome <> 'open' THEN l.n_done ELSE (
				SELECT pg_catalog.count(*) FROM job_idem.item i
				WHERE i.run_id = r.run_id AND i.token = l.token AND i.state = 'done' AND (i.item_no = ANY (l.picks)
					OR i.item_no BETWEEN l.slice_no::bigint * r.batch_size + 1 AND (l.slice_no + 1)::bigint * r.batch_size)
				) END), 0)::bigint AS n_done
			FROM (
				SELECT * FROM job_idem.lease WHERE run_id = r.run_id AND slice_no > t.folded
				UNION ALL
				SELECT * FROM job_idem.lease WHERE run_id = r.run_id AND slice_no = ANY (t.behind)
				UNION ALL
				SELECT * FROM job_idem.lease WHERE run_id = r.run_id AND pick_open IS NOT NULL) AS l
			WHERE r.state NOT IN ('done', 'partial')) AS u
	WHERE job_idem.may_view(r.job_id)) AS p;

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
