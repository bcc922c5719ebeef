-- Views show effective states, readable without knowing the protocol (O5), and their figures equal a full recount at
-- every step of a run's life: counts of items, done and dead, never over the total or below nothing (C23), before and
-- after the tally has counted.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('views', batch_size => 3, max_attempts => 2);
SELECT outcome FROM job_idem.define_job('views keyed', kind => 'keyed', batch_size => 3, max_attempts => 2);
SELECT outcome FROM job_idem.define_job('views dropped');
SELECT run_id FROM job_idem.open_run('views', '2026-11-30') \gset

-- an item's state by hand, from rows alone: what its row says, unless it is pending in a slice that has a lease
CREATE TEMP VIEW recount AS
SELECT r.run_id, count(i.*) AS total, count(*) FILTER (WHERE s.state = 'done') AS done,
	count(*) FILTER (WHERE s.state = 'dead') AS dead
FROM job_idem.run r JOIN job_idem.job j USING (job_id) LEFT JOIN job_idem.item i USING (run_id),
	LATERAL (SELECT CASE WHEN i.state = 'pending' THEN coalesce((
		SELECT CASE l.outcome WHEN 'open' THEN 'claimed' WHEN 'completed' THEN 'done' ELSE 'broken' END FROM job_idem.lease l
		WHERE l.run_id = r.run_id AND (i.item_no - 1) / r.batch_size = l.slice_no), 'pending') ELSE i.state END AS state) s
WHERE j.name = 'views' GROUP BY r.run_id;
-- where views and recount differ; discarded dead letters are no longer shown as dead
CREATE TEMP VIEW differences AS
SELECT p.run_key, p.total, c.total AS real_total, p.done, c.done AS real_done, p.dead, c.dead - d.n AS real_dead
FROM job_idem.progress p JOIN recount c USING (run_id) JOIN job_idem.runs r USING (run_id),
	LATERAL (SELECT count(*) AS n FROM job_idem.dead_letters d WHERE d.run_id = p.run_id AND d.status = 'discarded') d,
	LATERAL (SELECT count(*) FILTER (WHERE state = 'done') AS done, count(*) AS total
		FROM job_idem.items i WHERE i.run_id = p.run_id) i
WHERE p.job = 'views' AND r.job = 'views' AND (p.total <> c.total OR p.done <> c.done OR p.dead <> c.dead - d.n
	OR r.n_items <> c.total OR r.n_dead <> p.dead OR r.n_done <> c.done OR i.done <> c.done OR i.total <> c.total
	OR p.done + p.dead > p.total
	OR length(p.bar) <> 20 OR p.percent NOT BETWEEN 0 AND 100);
CREATE TEMP VIEW items AS
SELECT item_key, state, attempts AS tries, lost, worker, token IS NOT NULL AS token,
	deadline - job_idem.now() AS deadline,
	date_trunc('minute', due_at - job_idem.now()) AS due, done_at - job_idem.now() AS done, result
FROM job_idem.items WHERE job = 'views' AND run_key = '2026-11-30' ORDER BY item_no;
CREATE TEMP VIEW leases AS
SELECT lease_kind, slice_no, worker, outcome, n_items, n_done, claimed_at - job_idem.now() AS claimed,
	deadline - job_idem.now() AS deadline, closed_at - job_idem.now() AS closed, overdue
FROM job_idem.leases WHERE job = 'views' AND run_key = '2026-11-30' ORDER BY token;
CREATE TEMP VIEW progress AS
SELECT state, done, dead, total, percent, bar FROM job_idem.progress WHERE job = 'views' AND run_key = '2026-11-30';

-- loading, then sealed
TABLE progress;
SELECT job_idem.add_items(:run_id, '{a,b,c,d,e,f,g,h,i,j}');
TABLE differences;
SELECT job_idem.seal_run(:run_id);
TABLE progress;
-- three slices claimed: pending rows are shown as claimed, with worker and deadline; the fourth is pending
SELECT min(token) AS whole FROM job_idem.claim_items('views', worker => 'W1') \gset
SELECT min(token) AS part FROM job_idem.claim_items('views', worker => 'W2') \gset
SELECT min(token) AS lost FROM job_idem.claim_items('views', worker => 'W3') \gset
TABLE items;
TABLE leases;
TABLE progress;
TABLE differences;
-- one completed whole: done, at the time it was; one by one: as reported
SET job_idem.clock_offset = 60;
SELECT job_idem.mark_all_done(:whole, 3);
SELECT job_idem.mark_done(:part, 'd', '"result"');
SELECT state FROM job_idem.mark_failed(:part, 'e', 'out of range', '22003', 'DataError');
SELECT job_idem.postpone(:part, 'f', '1 hour') IS NOT NULL AS postponed;
SELECT job_idem.mark_done(:lost, 'g');
TABLE items;
TABLE progress;
TABLE differences;
-- the third overdue, then expired, the fourth claimed meanwhile
SET job_idem.clock_offset = 300;
TABLE leases;
SELECT min(token) AS fourth FROM job_idem.claim_items('views', worker => 'W4') \gset
CALL job_idem.tick();
TABLE leases;
TABLE items;
TABLE progress;
TABLE differences;
-- picks
SET job_idem.clock_offset = 4000;
SELECT min(token) AS picks, count(*) AS picked FROM job_idem.claim_items('views', worker => 'W5') \gset
TABLE differences;
CALL job_idem.tick();
TABLE differences;
SELECT job_idem.mark_all_done(:picks, :picked);
TABLE differences;
DO $$
DECLARE
	c record;
BEGIN
	LOOP
		SELECT token, count(*) AS n INTO c FROM job_idem.claim_items('views', worker => 'W6') GROUP BY token;
		EXIT WHEN c.token IS NULL;
		IF EXISTS (SELECT FROM differences) THEN RAISE EXCEPTION 'differs under claim'; END IF;
		PERFORM job_idem.mark_all_done(c.token, c.n);
		IF EXISTS (SELECT FROM differences) THEN RAISE EXCEPTION 'differs after completion'; END IF;
		PERFORM set_config('job_idem.clock_offset', (current_setting('job_idem.clock_offset')::float8 + 1000)::text, true);
		COMMIT;
	END LOOP;
END
$$;
SET job_idem.clock_offset = 20000;
SELECT job_idem.add_items(:run_id, '{late}');
TABLE differences;
DO $$
DECLARE
	c record;
BEGIN
	LOOP
		SELECT token, count(*) AS n INTO c FROM job_idem.claim_items('views', worker => 'W6') GROUP BY token;
		EXIT WHEN c.token IS NULL;
		PERFORM job_idem.mark_all_done(c.token, c.n);
		COMMIT;
	END LOOP;
END
$$;
CALL job_idem.tick();
SELECT item_key, state, worker FROM items;
TABLE progress;
TABLE differences;
SELECT job, business_date, run_key, state, priority, n_items, n_done, n_dead, trigger_count, batch_size, n_slices,
	started_at - '2026-11-30 12:00:00+00' AS started, finished_at - '2026-11-30 12:00:00+00' AS finished
FROM job_idem.runs WHERE run_id = :run_id;
SELECT job, run_key, item_key, status, reason, kind, sqlstate, error_class, attempts, message
FROM job_idem.dead_letters WHERE run_id = :run_id;
-- the dead one discarded: the run is done
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :run_id;
SELECT state, done, dead, total FROM progress;
TABLE differences;

-- jobs, in each of their states
SELECT job_idem.drop_job('views dropped');
SELECT job_idem.pause_job('views keyed', 'for a while');
SELECT job, kind, tier, version, state, owner = current_user AS mine, paused_reason, lease, batch_size
FROM job_idem.jobs WHERE job LIKE 'views%' ORDER BY job;
SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'views%';
