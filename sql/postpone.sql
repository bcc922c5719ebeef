-- postpone: gives one item back until later and counts no try, as often as one likes; one item far off holds up no
-- other (R14, with test/t/029_postpone.pl and sql/stuck.sql); repeated it changes nothing; bad delays are refused.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('postpone', batch_size => 400);
SELECT run_id FROM job_idem.open_run('postpone', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, 301) i));
SELECT job_idem.seal_run(:run_id);
SELECT min(token) AS token FROM job_idem.claim_items('postpone') \gset

-- bad delays change nothing
SELECT job_idem.postpone(:token, 'm1', NULL);
SELECT job_idem.postpone(:token, 'm1', '-1 microsecond');
SELECT job_idem.postpone(:token, 'm1', '1 month -31 days');
SELECT job_idem.postpone(:token, 'm1', '178000000 years');
SELECT job_idem.postpone(:token, NULL, '1 hour');
SELECT job_idem.postpone(NULL, 'm1', '1 hour');
SELECT job_idem.postpone(:token, 'no such key', '1 hour');
SELECT job_idem.postpone(0, 'm1', '1 hour');
SELECT state, count(*) FROM job_idem.items WHERE run_id = :run_id GROUP BY state;
-- one for ten years, one for as long as there are dates, one for no time at all
SELECT job_idem.postpone(:token, 'm1', '10 years') = job_idem.now() + interval '86400 hours' AS months_of_30_days;
SELECT job_idem.postpone(:token, 'm2', '296530 years') > '294276-12-01' AS at_the_end;
SELECT job_idem.postpone(:token, 'm3', '0') = job_idem.now() AS at_once;
SELECT item_key, state, attempts, lost, token IS NULL AS free FROM job_idem.item
WHERE run_id = :run_id AND item_key IN ('m1', 'm2', 'm3') ORDER BY item_key;
-- again: no longer the caller's; due_at unchanged
SELECT job_idem.postpone(:token, 'm1', '1 hour');
SELECT job_idem.mark_done(:token, 'm1');
SELECT due_at - job_idem.now() AS wait FROM job_idem.items WHERE run_id = :run_id AND item_key = 'm1';
-- done items: JI010
SELECT job_idem.mark_done(:token, 'm4');
SELECT job_idem.postpone(:token, 'm4', '1 hour');
-- the rest goes back: 299 are claimed at once, the two far-off ones hold up nobody
SELECT job_idem.release(:token);
SELECT count(*), bool_or(item_key IN ('m1', 'm2')) AS far_off, bool_and(attempt = 1) AS first_try, min(token) AS token
FROM job_idem.claim_items('postpone') \gset
SELECT :'count' AS n, :'far_off' AS far_off, :'first_try' AS first_try;
SELECT job_idem.mark_all_done(:token, :count);
SELECT count(*) FROM job_idem.claim_items('postpone');
CALL job_idem.tick();
SELECT state, done, dead, total FROM job_idem.progress WHERE run_id = :run_id;
SET job_idem.clock_offset = 311040000;
SELECT item_key, attempt FROM job_idem.claim_items('postpone');
RESET job_idem.clock_offset;

SELECT count(*) FROM job_idem.failure f JOIN job_idem.runs r USING (run_id) WHERE r.job LIKE 'postpone%';
SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'postpone%';
