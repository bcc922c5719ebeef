-- is_done: the done marker of a run has no end date, and a re-kick of finished work stops at once: claims give
-- nothing and read no page of the items (F3). True for state done only; a run that was never opened, is open,
-- cancelled or has dead letters is not done.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('is_done', batch_size => 50);
CREATE PROCEDURE pg_temp.fill(date date, n int) LANGUAGE sql AS $$
	SELECT job_idem.add_items(run_id, (SELECT array_agg('m' || i) FROM generate_series(1, n) i))
	FROM job_idem.open_run('is_done', date);
	SELECT job_idem.seal_run(run_id) FROM job_idem.open_run('is_done', date);
$$;
CREATE PROCEDURE pg_temp.work() LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	n bigint;
BEGIN
	LOOP
		SELECT min(token), count(*) INTO t, n FROM job_idem.claim_items('is_done');
		EXIT WHEN n = 0;
		PERFORM job_idem.mark_all_done(t, n);
	END LOOP;
END
$$;
SELECT job_idem.is_done('is_done', '2026-11-30');
SELECT outcome FROM job_idem.open_run('is_done', '2026-11-30');
SELECT job_idem.is_done('is_done', '2026-11-30');
CALL pg_temp.fill('2026-11-30', 1000);
SELECT job_idem.is_done('is_done', '2026-11-30');
CALL pg_temp.work();
-- the claim that found nothing left wrote in its transaction; the next idle one finishes the run, without any tick
SELECT count(*) FROM job_idem.claim_items('is_done');
SELECT job_idem.is_done('is_done', '2026-11-30');
SELECT state, n_done, n_dead, finished_at = job_idem.now() AS now FROM job_idem.runs WHERE job = 'is_done';

-- 400 days later: done, nothing to claim by either verb, no new key, and the run is known to whoever opens it
SET job_idem.clock_offset = 34560000;
SELECT job_idem.is_done('is_done', '2026-11-30');
SELECT count(*) FROM job_idem.claim_items('is_done');
SELECT count(*) FROM job_idem.claim_items('is_done', business_date => '2026-11-30');
SELECT count(*) FROM job_idem.claim_items('is_done', run_key => '2026-11-30');
SELECT outcome, token FROM job_idem.claim_item('is_done', '2026-11-30', 'm1');
SELECT outcome, token FROM job_idem.claim_item('is_done', '2026-11-30', 'new');
SELECT run_id, outcome, state FROM job_idem.open_run('is_done', '2026-11-30') \gset
SELECT :'outcome' AS outcome, :'state' AS state;
SELECT * FROM job_idem.add_items(:run_id, '{m1}');

-- no page of the items or their indexes is read by a re-kick
CREATE FUNCTION pg_temp.item_pages() RETURNS numeric LANGUAGE sql AS $$
	SELECT pg_stat_get_xact_blocks_fetched('job_idem.item'::regclass)
		+ (SELECT sum(pg_stat_get_xact_blocks_fetched(indexrelid)) FROM pg_index WHERE indrelid = 'job_idem.item'::regclass)
$$;
BEGIN;
SELECT pg_temp.item_pages() AS before \gset
SELECT job_idem.is_done('is_done', '2026-11-30');
SELECT count(*) FROM job_idem.claim_items('is_done');
SELECT count(*) FROM job_idem.claim_items('is_done', business_date => '2026-11-30');
SELECT count(*) FROM job_idem.claim_items('is_done', run_key => '2026-11-30');
SELECT outcome, state FROM job_idem.open_run('is_done', '2026-11-30');
SELECT pg_temp.item_pages() - :before AS item_pages;
-- the figure does count: an unknown key is looked for
SELECT outcome FROM job_idem.claim_item('is_done', '2026-11-30', 'new');
SELECT pg_temp.item_pages() > :before AS counts;
COMMIT;

-- done is done, whatever becomes of the job
SELECT job_idem.pause_job('is_done');
SELECT job_idem.is_done('is_done', '2026-11-30');
SELECT job_idem.resume_job('is_done');

-- not done: cancelled, or with dead letters; done when the last is discarded
CALL pg_temp.fill('2026-12-01', 2);
SELECT job_idem.cancel_run(run_id, 'not wanted') FROM job_idem.runs WHERE job = 'is_done' AND run_key = '2026-12-01';
SELECT job_idem.is_done('is_done', '2026-12-01');
CALL pg_temp.fill('2026-12-02', 2);
SELECT token FROM job_idem.claim_items('is_done') LIMIT 1 \gset
SELECT job_idem.mark_done(:token, 'm1');
SELECT state FROM job_idem.mark_failed(:token, 'm2', transient => false);
CALL job_idem.tick();
SELECT state FROM job_idem.runs WHERE job = 'is_done' AND run_key = '2026-12-02';
SELECT job_idem.is_done('is_done', '2026-12-02');
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE job = 'is_done';
SELECT job_idem.is_done('is_done', '2026-12-02');
-- other keys of the same date are other runs
SELECT job_idem.is_done('is_done', '2026-12-02', run_key => 'again');

SELECT job_idem.is_done('no such job', '2026-11-30');
SELECT job_idem.is_done('is_done', 'infinity');
SELECT job_idem.is_done('is_done', NULL);
SELECT job_idem.is_done(NULL, '2026-11-30');
SELECT job_idem.is_done('is_done', '2026-11-30', run_key => '');

SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) WHERE r.job = 'is_done';
-- a dropped job's runs stay done, and refused
SELECT job_idem.drop_job('is_done');
SELECT job_idem.is_done('is_done', '2026-11-30');
