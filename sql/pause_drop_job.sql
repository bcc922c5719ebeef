-- pause_job, resume_job and drop_job: what stops, what may go on, what stays (S15, F3); each says whether it was this
-- call that did it, and leaves an event with the reason.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT job_version FROM job_idem.define_job('halt', batch_size => 2);
SELECT run_id FROM job_idem.open_run('halt', '2026-11-30') \gset
SELECT * FROM job_idem.add_items(:run_id, '{a,b,c,d}');
SELECT * FROM job_idem.seal_run(:run_id);
SELECT job_version FROM job_idem.define_job('halt keyed', 'keyed');

-- leases held before the pause may be finished; nothing is claimed during it
SELECT token FROM job_idem.claim_items('halt') LIMIT 1 \gset
SELECT outcome, token AS key_token FROM job_idem.claim_item('halt keyed', '2026-11-30', 'k') \gset
SELECT job_idem.pause_job('halt', 'data centre moves');
SELECT job_idem.pause_job('halt', 'again');
SELECT job_idem.pause_job('halt keyed');
SELECT job, state, paused_reason, paused_at IS NOT NULL AS paused FROM job_idem.jobs WHERE job LIKE 'halt%' ORDER BY job;
SELECT count(*) FROM job_idem.claim_items('halt');
SELECT outcome, token FROM job_idem.claim_item('halt keyed', '2026-11-30', 'other');
SELECT job_idem.heartbeat(:token) > job_idem.now() AS alive;
SELECT job_idem.mark_all_done(:token, 2);
SELECT job_idem.mark_done(:key_token, 'k');
SELECT count(*) FROM job_idem.claim_items('halt');

-- runs can be opened and loaded meanwhile
SELECT outcome, state FROM job_idem.open_run('halt', '2026-12-01');

SELECT job_idem.resume_job('halt', 'moved');
SELECT job_idem.resume_job('halt');
SELECT state, paused_at, paused_reason FROM job_idem.jobs WHERE job = 'halt';
SELECT token, count(*) OVER () AS n FROM job_idem.claim_items('halt') LIMIT 1 \gset
SELECT :n AS claimed;
SELECT job_idem.mark_all_done(:token, 2);
SELECT count(*) FROM job_idem.claim_items('halt');
SELECT job_idem.is_done('halt', '2026-11-30');

-- a job with an open run is not dropped
SELECT job_idem.drop_job('halt', 'too early');
SELECT job_idem.cancel_run(run_id, 'job goes away') FROM job_idem.runs WHERE job = 'halt' AND run_key = '2026-12-01';
SELECT job_idem.drop_job('halt', 'replaced');
SELECT job_idem.drop_job('halt', 'again');
SELECT state, dropped_at IS NOT NULL AS dropped FROM job_idem.jobs WHERE job = 'halt';

-- its run keys stay refused, and its history stays readable
SELECT job_idem.is_done('halt', '2026-11-30');
SELECT count(*) FROM job_idem.claim_items('halt');
SELECT outcome, state FROM job_idem.open_run('halt', '2026-11-30');
SELECT outcome FROM job_idem.open_run('halt', '2026-12-02');
SELECT count(*) FROM job_idem.items WHERE job = 'halt' AND state = 'done';
SELECT job_idem.pause_job('halt');
SELECT job_idem.resume_job('halt');
SELECT job_version, outcome FROM job_idem.define_job('halt', batch_size => 2);
SELECT outcome, state FROM job_idem.open_run('halt', '2026-11-30');
SELECT outcome, state FROM job_idem.open_run('halt', '2026-12-02');

-- a pause outlives drop and revival
SELECT job_idem.cancel_run(run_id, 'job goes away') FROM job_idem.runs WHERE job = 'halt keyed';
SELECT job_idem.drop_job('halt keyed');
SELECT outcome FROM job_idem.define_job('halt keyed', 'keyed');
SELECT state FROM job_idem.jobs WHERE job = 'halt keyed';

-- what there is no word of, and who may
SELECT job_idem.pause_job('no such job');
SELECT job_idem.resume_job('no such job');
SELECT job_idem.drop_job('no such job');
SELECT job_idem.pause_job(NULL);
SELECT job_idem.resume_job(NULL);
SELECT job_idem.drop_job(NULL);
CREATE ROLE halt_worker;
SELECT job_idem.grant_worker('halt', 'halt_worker');
GRANT EXECUTE ON FUNCTION job_idem.pause_job, job_idem.resume_job, job_idem.drop_job TO halt_worker;
SET ROLE halt_worker;
SELECT job_idem.pause_job('halt');
SELECT job_idem.resume_job('halt');
SELECT job_idem.drop_job('halt');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION job_idem.pause_job, job_idem.resume_job, job_idem.drop_job FROM halt_worker;
SELECT job_idem.revoke_worker('halt', 'halt_worker');
DROP ROLE halt_worker;

-- a reason of any length is kept as far as there is room
SELECT job_idem.pause_job('halt', repeat('结', 1000));
SELECT length(paused_reason), octet_length(paused_reason) <= 1000 AS fits FROM job_idem.jobs WHERE job = 'halt';

SELECT e.verb, left(e.detail->>'reason', 20) AS reason, e.by = current_user AS by_me
FROM job_idem.event e JOIN job_idem.job j USING (job_id)
WHERE j.name LIKE 'halt%' AND e.verb ~ '_job$' ORDER BY event_id;
SELECT run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'halt%';
