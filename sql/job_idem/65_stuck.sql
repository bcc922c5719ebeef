-- What does not get on by itself, why, and what to do about it.

CREATE FUNCTION job_idem.lease_holders(token bigint) RETURNS integer[]
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'job_idem_lease_holders';
COMMENT ON FUNCTION job_idem.lease_holders(bigint) IS
$$for the view stuck: process ids of the backends whose open transactions hold a claim, found by the locks on it; 0 stands for a prepared transaction
Errors: JI001 no such claim; 42501.$$;

-- Reads unfinished runs only, and of their leases those that the tally has not counted.
CREATE VIEW job_idem.stuck WITH (security_barrier) AS
WITH open AS (
	SELECT j.name, j.takeover_delay, r.business_date, r.run_key, l.*
	FROM job_idem.run r
		JOIN job_idem.job j USING (job_id)
		JOIN job_idem.tally t USING (run_id)
		CROSS JOIN LATERAL (
			SELECT token, run_id, deadline, hard_deadline, backend FROM job_idem.lease l
			WHERE l.run_id = r.run_id AND l.slice_no > t.folded AND l.outcome = 'open'
			UNION ALL
			SELECT token, run_id, deadline, hard_deadline, backend FROM job_idem.lease l
			WHERE l.run_id = r.run_id AND l.slice_no = ANY (t.behind) AND l.outcome = 'open'
			UNION ALL
			SELECT token, run_id, deadline, hard_deadline, backend FROM job_idem.lease l
			WHERE l.run_id = r.run_id AND l.pick_open) AS l
	WHERE (r.finished_at IS NULL OR (r.state = 'cancelled' AND r.purged_at IS NULL))
		AND job_idem.may_view(r.job_id))

-- claims past their deadline
SELECT l.name AS job, l.business_date, l.run_key, CASE WHEN h.pid = '{}' THEN 'overdue' ELSE 'held' END AS what,
	l.deadline + l.takeover_delay AS since, h.pid,
	CASE WHEN h.pid = '{}' THEN 'nobody is at work under the claim, and nobody takes it back'
		WHEN 0 = ANY (h.pid) THEN 'a prepared transaction is at work under the claim'
		ELSE 'a transaction is at work under the claim' END
		|| CASE WHEN h.pid = '{}' THEN ''
			WHEN l.hard_deadline <= job_idem.now() THEN '; past its hard deadline, ' || l.hard_deadline
			ELSE '; its hard deadline is ' || l.hard_deadline END AS detail,
	CASE WHEN h.pid = '{}' THEN 'CALL job_idem.tick()'
		ELSE pg_catalog.format('SELECT job_idem.end_holder(%s)', l.token)
			|| CASE WHEN l.hard_deadline <= job_idem.now() THEN '' ELSE ' -- or wait' END END AS cure,
	l.token, l.run_id, NULL AS item_key
FROM open l CROSS JOIN LATERAL (SELECT job_idem.lease_holders(l.token) AS pid OFFSET 0) AS h
WHERE l.deadline + l.takeover_delay <= job_idem.now()
UNION ALL

-- workers that wait for somebody else's transaction, such as a frozen one that has written the same natural key
SELECT l.name, l.business_date, l.run_key, 'blocked', w.waitstart, b.pid,
	pg_catalog.format('backend %s, which claimed, waits for a lock', l.backend),
	pg_catalog.format('SELECT pg_terminate_backend(pid) FROM unnest(%L::integer[]) AS pid -- or wait', b.pid),
	l.token, l.run_id, NULL
FROM open l
	JOIN pg_catalog.pg_locks w ON w.pid = l.backend AND NOT w.granted
	CROSS JOIN LATERAL (SELECT pg_catalog.pg_blocking_pids(w.pid) AS pid OFFSET 0) AS b
WHERE w.waitstart <= job_idem.now() - interval '1 minute' AND b.pid <> '{}'
UNION ALL

SELECT j.name, r.business_date, r.run_key, 'upstream', r.opened_at, '{}', 'the run ' || coalesce(r.reason, 'is blocked'),
	pg_catalog.format('SELECT job_idem.unblock_run(%s, %L)', r.run_id, 'it need not wait'), NULL, r.run_id, NULL
FROM job_idem.run r JOIN job_idem.job j USING (job_id)
WHERE r.finished_at IS NULL AND r.state = 'blocked' AND r.opened_at < job_idem.now() - interval '1 hour'
	AND job_idem.may_view(r.job_id)
UNION ALL
SELECT j.name, r.business_date, r.run_key, 'paused', r.paused_at, '{}',
	'the run is paused' || coalesce(': ' || r.paused_reason, ''),
	pg_catalog.format('SELECT job_idem.resume_run(%s)', r.run_id), NULL, r.run_id, NULL
FROM job_idem.run r JOIN job_idem.job j USING (job_id)
WHERE r.finished_at IS NULL AND r.paused_at IS NOT NULL AND job_idem.may_view(r.job_id)
UNION ALL

SELECT j.name, r.business_date, r.run_key, 'loading', r.opened_at, '{}', r.reason,
	pg_catalog.format('SELECT job_idem.open_run(%L, %L, run_key => %L)', j.name, r.business_date, r.run_key),
	NULL, r.run_id, NULL
FROM job_idem.run r JOIN job_idem.job j USING (job_id)
WHERE r.finished_at IS NULL AND r.state = 'loading' AND r.reason IS NOT NULL AND job_idem.may_view(r.job_id)
UNION ALL

-- runs that wait for far-off items and nothing else: every slice has a lease, and all leases are closed
SELECT j.name, r.business_date, r.run_key, 'waiting', NULL, '{}',
	pg_catalog.format('items left: %s, the next one due %s', (SELECT pg_catalog.count(*)
		FROM job_idem.item i WHERE i.run_id = r.run_id AND i.due_at IS NOT NULL), next.due_at),
	NULL, NULL, r.run_id, next.item_key
FROM job_idem.run r
	JOIN job_idem.job j USING (job_id)
	JOIN job_idem.tally t USING (run_id)
	CROSS JOIN LATERAL (SELECT i.item_key, i.due_at FROM job_idem.item i
		WHERE i.run_id = r.run_id AND i.due_at IS NOT NULL ORDER BY i.due_at LIMIT 1) AS next
WHERE r.finished_at IS NULL AND r.state = 'running' AND r.sealed_at IS NOT NULL AND r.paused_at IS NULL
	AND next.due_at > job_idem.now() + greatest(interval '1 hour', j.backoff_max)
	AND NOT EXISTS (SELECT FROM job_idem.lease l WHERE l.run_id = r.run_id AND l.pick_open)
	AND r.n_slices - 1 - t.folded = (SELECT pg_catalog.count(*) FROM job_idem.lease l
		WHERE l.run_id = r.run_id AND l.slice_no > t.folded AND l.outcome <> 'open')
	AND pg_catalog.cardinality(t.behind) = (SELECT pg_catalog.count(*) FROM job_idem.lease l
		WHERE l.run_id = r.run_id AND l.slice_no = ANY (t.behind) AND l.outcome <> 'open')
	AND job_idem.may_view(r.job_id);
COMMENT ON VIEW job_idem.stuck IS 'what does not get on by itself, why, and the statement that helps; costs the same however many items a run has done';
COMMENT ON COLUMN job_idem.stuck.what IS 'held (a claim past its deadline under which a transaction is open), overdue (one that nobody takes back), blocked (a worker that has waited a minute for a lock), upstream (a run that has been blocked for an hour), paused, loading (item_source failed), waiting (only items due in more than an hour, and more than backoff_max, are left)';
COMMENT ON COLUMN job_idem.stuck.since IS 'when that began; NULL where nobody has noted it';
COMMENT ON COLUMN job_idem.stuck.pid IS 'backends that stand in the way; 0 is a prepared transaction';
COMMENT ON COLUMN job_idem.stuck.cure IS 'the statement that helps; NULL: only time does';
COMMENT ON COLUMN job_idem.stuck.token IS 'of the claim, if there is one in question';
COMMENT ON COLUMN job_idem.stuck.item_key IS 'waiting: the item that is due next';
