-- postpone: gives one item back until later and counts no try, as often as one likes; one item far off holds up no
-- other (R14, as far as the verbs exist; the view `stuck` comes later); repeated it changes nothing; bad delays are
-- refused.
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

-- often: no try counted, the row as wide as before, and not claimable before its time
SELECT outcome FROM job_idem.define_job('postpone often', kind => 'keyed', max_attempts => 2);
SELECT token FROM job_idem.claim_item('postpone often', '2026-11-30', 'k') \gset
SELECT pg_column_size(i.*) AS width FROM job_idem.item i WHERE token = :token \gset
DO $$
DECLARE
	c record;
BEGIN
	SELECT token, 'claimed' AS outcome, 1 AS attempt INTO c FROM job_idem.items WHERE job = 'postpone often';
	FOR i IN 1..1000 LOOP
		ASSERT c.outcome = 'claimed' AND c.attempt = 1;
		PERFORM job_idem.postpone(c.token, 'k', '1 hour');
		ASSERT (SELECT outcome FROM job_idem.claim_item('postpone often', '2026-11-30', 'k')) = 'waiting';
		PERFORM set_config('job_idem.clock_offset', (i * 3600 - 0.000001)::text, false);
		ASSERT (SELECT outcome FROM job_idem.claim_item('postpone often', '2026-11-30', 'k')) = 'waiting';
		PERFORM set_config('job_idem.clock_offset', (i * 3600)::text, false);
		SELECT * INTO c FROM job_idem.claim_item('postpone often', '2026-11-30', 'k');
		COMMIT;
	END LOOP;
END
$$;
SELECT i.state, i.attempts, i.lost, pg_column_size(i.*) - :width AS grown
FROM job_idem.item i JOIN job_idem.runs r USING (run_id) WHERE r.job = 'postpone often';
SELECT count(*) FROM job_idem.failure f JOIN job_idem.runs r USING (run_id) WHERE r.job LIKE 'postpone%';
SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'postpone%';
