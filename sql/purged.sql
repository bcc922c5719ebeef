-- Keys stay refused after their items have gone (F6): the run row is the done marker and outlives them. The items are
-- removed by hand here, as retention will remove them: items, then leases, and the run row says when.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('purged batch', batch_size => 2);
SELECT outcome FROM job_idem.define_job('purged keyed', kind => 'keyed');
SELECT run_id AS batch FROM job_idem.open_run('purged batch', '2026-11-30') \gset
SELECT * FROM job_idem.add_items(:batch, '{a,b,c}');
SELECT * FROM job_idem.seal_run(:batch);
SELECT sum(job_idem.mark_all_done(token, n)) FROM (SELECT token, count(*) AS n
	FROM job_idem.claim_items('purged batch') GROUP BY token) c;
SELECT sum(job_idem.mark_all_done(token, n)) FROM (SELECT token, count(*) AS n
	FROM job_idem.claim_items('purged batch') GROUP BY token) c;
SELECT token FROM job_idem.claim_item('purged keyed', '2026-11-30', 'k') \gset
SELECT job_idem.mark_done(:token, 'k', '"paid"');
SELECT run_id AS keyed FROM job_idem.runs WHERE job = 'purged keyed' \gset
SELECT * FROM job_idem.seal_run(:keyed);
CALL job_idem.tick();
SELECT job, state, n_done FROM job_idem.runs WHERE job LIKE 'purged%' ORDER BY job;

DELETE FROM job_idem.item WHERE run_id IN (:batch, :keyed);
DELETE FROM job_idem.lease WHERE run_id IN (:batch, :keyed);
UPDATE job_idem.run SET purged_at = job_idem.now() WHERE run_id IN (:batch, :keyed);

SELECT outcome FROM job_idem.claim_item('purged keyed', '2026-11-30', 'k');
SELECT outcome FROM job_idem.claim_item('purged keyed', '2026-11-30', 'another');
SELECT outcome FROM job_idem.claim_item('purged batch', '2026-11-30', 'a');
SELECT * FROM job_idem.add_items(:batch, '{a}');
SELECT * FROM job_idem.add_items(:keyed, '{k}');
SELECT count(*) FROM job_idem.claim_items('purged batch');
SELECT outcome, state FROM job_idem.open_run('purged batch', '2026-11-30');
SELECT job_idem.is_done('purged batch', '2026-11-30'), job_idem.is_done('purged keyed', '2026-11-30');
SELECT a.* FROM unnest(ARRAY[:batch, :keyed]) AS r (id), job_idem.audit(r.id) a;
CALL job_idem.tick();
SELECT job, state, n_done FROM job_idem.runs WHERE job LIKE 'purged%' ORDER BY job;
