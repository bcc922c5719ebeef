-- A run keeps the version of its job that it was opened with, and an old worker gets no newer run (S16): a deploy in the
-- middle of a run, claims of one version only, what a version has touched, and the versions of planned runs.
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET timezone = 'UTC';
SET datestyle = iso;
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
-- a sealed run of items a1, a2 ...
CREATE FUNCTION pg_temp.fill(day date, key text, n int, letter text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	run bigint;
BEGIN
	SELECT run_id INTO run FROM job_idem.open_run('versions', day, run_key => key);
	PERFORM job_idem.add_items(run, ARRAY(SELECT letter || i FROM generate_series(1, n) i));
	PERFORM job_idem.seal_run(run);
	RETURN run;
END $$;
-- what a claim of a version gets: run key, items, and the version in its lease
CREATE FUNCTION pg_temp.claim(version int, worker text) RETURNS TABLE (run_key text, items text, lease_version int) LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	key text;
	keys text;
BEGIN
	SELECT min(c.token), min(c.run_key), string_agg(item_key, ' ' ORDER BY item_key) INTO t, key, keys
	FROM job_idem.claim_items('versions', worker, version => claim.version) c;
	RETURN QUERY SELECT key, keys, l.version FROM job_idem.leases l WHERE l.token = t;
END $$;
CREATE TEMP VIEW touched AS SELECT version, string_agg(DISTINCT run_key, ' ' ORDER BY run_key) AS run_keys, count(*) AS claims
FROM job_idem.leases WHERE job = 'versions' GROUP BY version;

SELECT job_version, outcome FROM job_idem.define_job('versions', batch_size => 2);
SELECT pg_temp.fill('2026-11-28', NULL, 5, 'a') AS old \gset
SELECT * FROM pg_temp.claim(1, 'old');
-- every deploy defines the job: the same content under the same version is no change, other content is refused
SELECT job_version, outcome FROM job_idem.define_job('versions', batch_size => 2);
SELECT job_version, outcome FROM job_idem.define_job('versions', batch_size => 2, version => 1);
SELECT job_version, outcome FROM job_idem.define_job('versions', batch_size => 4, version => 1);
SELECT version, batch_size FROM job_idem.jobs WHERE job = 'versions';
-- version 2 is published in the middle of a run, which stays what it was
SELECT job_version, outcome FROM job_idem.define_job('versions', batch_size => 4, version => 2);
SELECT job_version, outcome FROM job_idem.define_job('versions', batch_size => 4, version => 2);
SELECT job_version, outcome FROM job_idem.define_job('versions', batch_size => 2, version => 1);
SELECT pg_temp.fill('2026-11-29', NULL, 5, 'b') AS new, pg_temp.fill('2026-11-27', 'urgent', 3, 'c') AS newer \gset
SELECT run_key, version, batch_size, n_slices FROM job_idem.runs WHERE job = 'versions' ORDER BY run_key;
-- opened again after the deploy it is still the run that it was
SELECT outcome FROM job_idem.open_run('versions', '2026-11-28');
SELECT version FROM job_idem.runs WHERE run_id = :old;
-- a worker of version 1 gets runs of version 1 only, though older dates are open, and in the end nothing; the batches are the run's
SELECT * FROM pg_temp.claim(1, 'old');
SELECT * FROM pg_temp.claim(1, 'old');
SELECT * FROM pg_temp.claim(1, 'old');
-- one of version 2 only newer ones
SELECT * FROM pg_temp.claim(2, 'new');
SELECT * FROM pg_temp.claim(2, 'new');
-- a version that nobody has opened a run with; and who names none gets what there is
SELECT * FROM pg_temp.claim(3, 'newest');
SELECT * FROM pg_temp.claim(NULL, 'any');
SELECT * FROM pg_temp.claim(NULL, 'any');
-- a retry too is its run's: version 2 does not get it, version 1 does
SELECT job_idem.release(token) FROM job_idem.leases WHERE job = 'versions' AND slice_no = 1 AND run_id = :old;
SELECT * FROM pg_temp.claim(2, 'new');
SELECT * FROM pg_temp.claim(1, 'old');
SELECT job_idem.mark_all_done(token, n_items) FROM job_idem.leases WHERE job = 'versions' AND outcome = 'open' ORDER BY token;
CALL job_idem.tick();
SELECT run_key, state, version FROM job_idem.runs WHERE job = 'versions' ORDER BY run_key;
-- what version 1 touched, exactly: its runs, its claims, its items
SELECT * FROM touched ORDER BY version;
SELECT run_key FROM job_idem.runs WHERE job = 'versions' AND version = 1;
SELECT string_agg(item_key, ' ' ORDER BY item_key) FROM job_idem.items i JOIN job_idem.runs r USING (run_id)
WHERE r.job = 'versions' AND r.version = 1;
SELECT count(*) FROM job_idem.leases l JOIN job_idem.runs r USING (run_id) WHERE r.job = 'versions' AND l.version <> r.version;

-- keyed jobs: the claim of a key is of its run's version, and one of a new run of the job's
SELECT outcome FROM job_idem.define_job('versions keyed', 'keyed', close_after => '1000 years');
SELECT outcome FROM job_idem.claim_item('versions keyed', '2026-11-28', 'k1');
SELECT job_version FROM job_idem.define_job('versions keyed', 'keyed', close_after => '1000 years', lease => '1 minute');
SELECT outcome FROM job_idem.claim_item('versions keyed', '2026-11-28', 'k2');
SELECT outcome FROM job_idem.claim_item('versions keyed', '2026-11-29', 'k1');
SELECT outcome FROM job_idem.claim_item('versions keyed', '2026-11-28', 'k1', run_key => '2026-11-28#2');
SELECT run_key, version FROM job_idem.runs WHERE job = 'versions keyed' ORDER BY run_key;
SELECT run_key, version, count(*) FROM job_idem.leases WHERE job = 'versions keyed' GROUP BY run_key, version ORDER BY run_key;
-- one of two runs is given back: only who asks for its version gets it
SELECT job_idem.release(token) FROM job_idem.leases WHERE job = 'versions keyed' AND run_key IN ('2026-11-28', '2026-11-29') ORDER BY token;
SELECT run_key, count(*) FROM job_idem.claim_items('versions keyed', version => 2) GROUP BY run_key;
SELECT run_key, count(*) FROM job_idem.claim_items('versions keyed', version => 2) GROUP BY run_key;
SELECT run_key, count(*) FROM job_idem.claim_items('versions keyed', version => 1) GROUP BY run_key;

-- planned runs carry the version of their instant, however late they are planned, and so do those of a backfill
SET job_idem.clock_freeze = '2026-11-20 00:00:00+00';
SELECT job_version FROM job_idem.define_job('versions planned', 'keyed', close_after => '1000 years', schedule => '0 2 * * *');
SET job_idem.clock_freeze = '2026-11-22 12:00:00+00';
SELECT job_version FROM job_idem.define_job('versions planned', 'keyed', close_after => '1000 years', schedule => '0 2 * * *', batch_size => 7);
SET job_idem.clock_freeze = '2026-11-23 12:00:00+00';
SELECT job_version FROM job_idem.define_job('versions planned', 'keyed', close_after => '1000 years', schedule => '0 4 * * *', batch_size => 8);
SET job_idem.clock_freeze = '2026-11-25 12:00:00+00';
CALL job_idem.tick();
SELECT outcome FROM job_idem.backfill('versions planned', '2026-11-19', '2026-11-24');
SELECT run_key, r.version, scheduled_at::time, (SELECT definition->>'batch_size' FROM job_idem.job_version v
	WHERE v.job_id = r.job_id AND v.version = r.version) AS batch_size
FROM job_idem.run r JOIN job_idem.jobs j USING (job_id) WHERE j.job = 'versions planned' ORDER BY run_key;
-- two versions side by side: each run is worked on by those of its version
SELECT outcome FROM generate_series(date '2026-11-20', '2026-11-25', '1 day') AS day, job_idem.claim_item('versions planned', day::date, 'k');
SELECT version, string_agg(run_key, ' ' ORDER BY run_key) FROM job_idem.leases WHERE job = 'versions planned' GROUP BY version ORDER BY version;
SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job LIKE 'versions%';
SELECT job_idem.pause_job('versions planned');
SELECT count(job_idem.cancel_run(run_id, 'the end of this test', true)) > 0 AS cancelled FROM job_idem.runs
WHERE finished_at IS NULL AND job LIKE 'versions%';
