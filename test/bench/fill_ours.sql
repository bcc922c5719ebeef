-- a sealed run of job bench with :items items in batches of :batch; what was there before is cleared
\o /dev/null
UPDATE job_idem.run SET state = 'cancelled', finished_at = now(), purged_at = now() WHERE finished_at IS NULL;
TRUNCATE job_idem.item, job_idem.lease;
SELECT * FROM job_idem.define_job('bench', batch_size => :batch);
SELECT run_id FROM job_idem.open_run('bench', '2026-11-30', gen_random_uuid()::text) \gset
SELECT * FROM job_idem.load_items(:run_id,
	'SELECT ''merchant-'' || g, jsonb_build_object(''n'', g) FROM generate_series(1, ' || :items || ') g');
SELECT * FROM job_idem.seal_run(:run_id);
VACUUM ANALYZE job_idem.item, job_idem.lease, job_idem.run, job_idem.tally;
CHECKPOINT;
