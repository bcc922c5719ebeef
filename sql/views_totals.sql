-- Totals: a run whose dead letters were discarded is whole, 100 percent, when it is done; a keyed run's total is the keys
-- that came; figures equal a recount and are never over (O5, C23).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('views_totals');
SELECT outcome FROM job_idem.define_job('views_totals keyed', kind => 'keyed', batch_size => 3, max_attempts => 2);
SELECT run_id FROM job_idem.open_run('views_totals', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d}');
SELECT job_idem.seal_run(:run_id);
SELECT min(token) AS token FROM job_idem.claim_items('views_totals') \gset
SELECT job_idem.mark_done_many(:token, '{a,b}');
SELECT state FROM job_idem.mark_failed(:token, 'c', transient => false);
SELECT state FROM job_idem.mark_failed(:token, 'd', transient => false);
CALL job_idem.tick();
SELECT state, done, dead, total, percent, bar FROM job_idem.progress WHERE run_id = :run_id;
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :run_id ORDER BY item_key;
SELECT state, done, dead, total, percent, bar FROM job_idem.progress WHERE run_id = :run_id;

CREATE TEMP VIEW differences AS
SELECT p.run_key, p.total, i.total AS real_total, p.done, i.done AS real_done, p.dead, i.dead AS real_dead
FROM job_idem.progress p,
	LATERAL (SELECT count(*) FILTER (WHERE state = 'done') AS done, count(*) FILTER (WHERE state = 'dead') AS dead,
		count(*) AS total FROM job_idem.items i WHERE i.run_id = p.run_id) i
WHERE p.job = 'views_totals keyed' AND (p.total <> i.total OR p.done <> i.done OR p.dead <> i.dead
	OR p.done + p.dead > p.total OR length(p.bar) <> 20 OR p.percent NOT BETWEEN 0 AND 100);
-- a keyed run: keys count as they come
SELECT token FROM job_idem.claim_item('views_totals keyed', '2026-11-30', 'k1') \gset
TABLE differences;
SELECT job_idem.mark_done(:token, 'k1');
SELECT token FROM job_idem.claim_item('views_totals keyed', '2026-11-30', 'k2') \gset
SELECT state FROM job_idem.mark_failed(:token, 'k2', transient => false);
SELECT token FROM job_idem.claim_item('views_totals keyed', '2026-11-30', 'k3') \gset
TABLE differences;
SELECT done, dead, total, percent, bar FROM job_idem.progress WHERE job = 'views_totals keyed';
SELECT job_idem.add_items(run_id, '{w1,w2,w3}') FROM job_idem.runs WHERE job = 'views_totals keyed';
TABLE differences;
SELECT token AS waiting FROM job_idem.claim_items('views_totals keyed') LIMIT 1 \gset
SELECT job_idem.mark_done(:waiting, 'w1');
TABLE differences;
SELECT job_idem.expire_lease(:waiting, 'x');
TABLE differences;
SELECT done, dead, total, percent, bar FROM job_idem.progress WHERE job = 'views_totals keyed';
SELECT job_idem.mark_done(:token, 'k3');
SET job_idem.clock_offset = 1000;
SELECT job_idem.mark_done(token, item_key) FROM job_idem.claim_items('views_totals keyed');
SELECT job_idem.mark_done(token, item_key) FROM job_idem.claim_items('views_totals keyed');
TABLE differences;
SELECT s.n_slices FROM job_idem.runs r, LATERAL job_idem.seal_run(r.run_id) s WHERE r.job = 'views_totals keyed';
CALL job_idem.tick();
TABLE differences;
SELECT p.state, p.done, p.dead, p.total, p.percent, r.n_items, r.n_done, r.n_dead
FROM job_idem.progress p JOIN job_idem.runs r USING (run_id) WHERE p.job = 'views_totals keyed';
SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'views_totals%';
