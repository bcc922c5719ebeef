-- claim_item: an idempotency key for any caller, with each of its seven outcomes (F10): claimed, done with the
-- first result, busy, waiting, dead, closed, mismatch (another payload in every state, C64); in keyed jobs, where
-- the call opens the run, and in batch jobs, where an item done with its whole slice is done; the close of a keyed
-- run; bad keys (C12).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('claim_item', kind => 'keyed', backoff_base => '1 minute', batch_size => 10,
	close_after => '2 days');
CREATE FUNCTION pg_temp.claim(key text, payload jsonb DEFAULT NULL, date date DEFAULT '2026-11-30',
	job text DEFAULT 'claim_item', run_key text DEFAULT NULL)
RETURNS TABLE (outcome text, has_token boolean, attempt int, result jsonb, lease interval) LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	SELECT * INTO c FROM job_idem.claim_item(job, date, key, payload => payload, run_key => run_key);
	IF c.token IS NOT NULL THEN
		PERFORM set_config('test.token', c.token::text, false);
	END IF;
	RETURN QUERY SELECT c.outcome, c.token IS NOT NULL, c.attempt, c.result, c.deadline - job_idem.now();
END
$$;
CREATE FUNCTION pg_temp.token() RETURNS bigint LANGUAGE sql AS $$SELECT current_setting('test.token')::bigint$$;

-- claimed: the run is opened by the call, the item is there with its payload; then busy; then done with the result
SELECT count(*) FROM job_idem.runs WHERE job = 'claim_item';
SELECT * FROM pg_temp.claim('k1', '{"amount": 1}');
SELECT run_key, business_date, state, trigger_count FROM job_idem.runs WHERE job = 'claim_item';
SELECT item_key, state, attempts, payload, worker FROM job_idem.items WHERE job = 'claim_item';
SELECT * FROM pg_temp.claim('k1', '{"amount": 1}');
SELECT * FROM pg_temp.claim('k1');
SELECT job_idem.mark_done(pg_temp.token(), 'k1', '{"receipt": 7}');
SELECT * FROM pg_temp.claim('k1', '{"amount": 1}');
SELECT * FROM pg_temp.claim('k1');
-- a result of NULL is a result
SELECT * FROM pg_temp.claim('k2');
SELECT job_idem.mark_done(pg_temp.token(), 'k2');
SELECT * FROM pg_temp.claim('k2');

-- waiting: failed and not due yet; claimed again when due, as the second try; a different worker does not matter
SELECT * FROM pg_temp.claim('k3');
SELECT state FROM job_idem.mark_failed(pg_temp.token(), 'k3', transient => true);
SELECT * FROM pg_temp.claim('k3');
SET job_idem.clock_offset = 60;
SELECT * FROM pg_temp.claim('k3');
SELECT job_idem.release(pg_temp.token());
-- given back: due at once, and no try counted
SELECT * FROM pg_temp.claim('k3');
SELECT job_idem.postpone(pg_temp.token(), 'k3', '10 minutes') = job_idem.now() + interval '10 minutes' AS postponed;
SELECT * FROM pg_temp.claim('k3');
SET job_idem.clock_offset = 660;
SELECT * FROM pg_temp.claim('k3');
-- dead; alive again after a replay
SELECT state FROM job_idem.mark_failed(pg_temp.token(), 'k3', transient => false);
SELECT * FROM pg_temp.claim('k3');
SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE job = 'claim_item' AND item_key = 'k3';
SELECT * FROM pg_temp.claim('k3');

-- an overdue lease is busy until somebody ends it; then the item waits for its back-off
SELECT * FROM pg_temp.claim('k4');
SET job_idem.clock_offset = 100000;
SELECT * FROM pg_temp.claim('k4');
CALL job_idem.tick();
SELECT * FROM pg_temp.claim('k4');
SET job_idem.clock_offset = 100240;
SELECT * FROM pg_temp.claim('k4');
RESET job_idem.clock_offset;

-- mismatch: another payload, whatever the state: busy, done, waiting, dead, and after the end; left out it is not
-- compared
SELECT * FROM pg_temp.claim('p busy', '{"a": 1}');
SELECT outcome FROM pg_temp.claim('p busy', '{"a": 2}');
SELECT outcome FROM pg_temp.claim('p busy', '{"a": 1.0}');
SELECT outcome FROM pg_temp.claim('p busy', 'null');
SELECT outcome FROM pg_temp.claim('p busy');
SELECT outcome FROM pg_temp.claim('k1', '{"amount": 2}');
SELECT outcome FROM pg_temp.claim('k2', '{"amount": 2}');
SELECT outcome FROM pg_temp.claim('p waiting', '1');
SELECT state FROM job_idem.mark_failed(pg_temp.token(), 'p waiting', transient => true);
SELECT outcome FROM pg_temp.claim('p waiting', '2');
SELECT outcome FROM pg_temp.claim('p waiting', '1');
SELECT outcome FROM pg_temp.claim('p dead', '1');
SELECT state FROM job_idem.mark_failed(pg_temp.token(), 'p dead', transient => false);
SELECT outcome FROM pg_temp.claim('p dead', '2');
SELECT outcome FROM pg_temp.claim('p dead', '1');
-- nothing was changed by any of them
SELECT item_key, state, attempts, payload FROM job_idem.items
WHERE job = 'claim_item' AND item_key LIKE 'p%' ORDER BY item_key;

-- bad keys, dates, leases: refused, and no run is opened for them; blanks are distinct keys
SELECT * FROM pg_temp.claim(NULL, date => '2026-12-01');
SELECT * FROM pg_temp.claim('', date => '2026-12-01');
SELECT * FROM pg_temp.claim(repeat('k', 513), date => '2026-12-01');
SELECT * FROM pg_temp.claim('k', to_jsonb(repeat('x', 1024 * 1024 + 1)), date => '2026-12-01');
SELECT * FROM pg_temp.claim('k', date => 'infinity');
SELECT * FROM pg_temp.claim('k', date => '-infinity');
SELECT * FROM pg_temp.claim('k', date => NULL);
SELECT * FROM pg_temp.claim('k', date => '2026-12-01', run_key => '');
SELECT * FROM pg_temp.claim('k', job => NULL);
SELECT * FROM pg_temp.claim('k', job => 'no such job');
SELECT outcome FROM job_idem.claim_item('claim_item', '2026-12-01', 'k', lease => '0');
SELECT outcome FROM job_idem.claim_item('claim_item', '2026-12-01', 'k', lease => '-1 s');
SELECT count(*) FROM job_idem.runs WHERE job = 'claim_item';
SELECT outcome FROM pg_temp.claim(' ');
SELECT outcome FROM pg_temp.claim('  ');
SELECT outcome FROM pg_temp.claim(' ');
SELECT outcome, deadline - job_idem.now() AS lease
FROM job_idem.claim_item('claim_item', '2026-11-30', 'own lease', lease => '90 s');
-- ten callers, one key without a channel, as one text: at most one item
SELECT outcome, count(*)
FROM generate_series(1, 10) g, LATERAL job_idem.claim_item('claim_item', '2026-11-30', 'm1|2025-03-01|', g::text)
GROUP BY outcome ORDER BY outcome;

-- the same key in another run is other work; run_key names it
SELECT outcome FROM pg_temp.claim('k1', date => '2026-12-01');
SELECT outcome FROM pg_temp.claim('k1', run_key => 'second');
SELECT outcome FROM pg_temp.claim('k1', run_key => 'second');
SELECT run_key, n_dead FROM job_idem.runs WHERE job = 'claim_item' ORDER BY run_key;

-- closed: new keys after close_after of the date, to the microsecond; known ones are answered, and worked, all the
-- same
SET job_idem.clock_freeze = '2026-12-02 00:00:00+00';
SELECT outcome FROM pg_temp.claim('k5');
SELECT state FROM job_idem.mark_failed(pg_temp.token(), 'k5', transient => true);
SET job_idem.clock_freeze = '2026-12-02 00:00:00.000001+00';
SELECT outcome FROM pg_temp.claim('k6');
SELECT outcome, result FROM pg_temp.claim('k1');
SELECT outcome FROM pg_temp.claim('k5');
SET job_idem.clock_freeze = '2026-12-02 00:05:00+00';
SELECT outcome, attempt FROM pg_temp.claim('k5');
SELECT job_idem.mark_done(pg_temp.token(), 'k5');
-- a date that is past already when it is first named: closed, and no run is opened that would look done later
SELECT outcome FROM pg_temp.claim('k1', date => '1999-01-01');
SELECT count(*) FROM job_idem.runs WHERE job = 'claim_item' AND business_date < '2000-01-01';
-- closed by a seal, before its time
SELECT job_idem.seal_run(run_id) IS NOT NULL AS sealed FROM job_idem.runs
WHERE job = 'claim_item' AND run_key = '2026-12-01';
SELECT outcome FROM pg_temp.claim('new', date => '2026-12-01');
SELECT outcome FROM pg_temp.claim('k1', date => '2026-12-01');
-- closed by a cancel: what is known as done or dead is answered, and nothing else
SELECT outcome FROM pg_temp.claim('done', date => '2026-12-03');
SELECT job_idem.mark_done(pg_temp.token(), 'done', '3');
SELECT outcome FROM pg_temp.claim('dead', '1', date => '2026-12-03');
SELECT state FROM job_idem.mark_failed(pg_temp.token(), 'dead', transient => false);
SELECT outcome FROM pg_temp.claim('busy', date => '2026-12-03');
SELECT job_idem.cancel_run(run_id, 'not wanted') FROM job_idem.runs
WHERE job = 'claim_item' AND run_key = '2026-12-03';
SELECT key, c.*
FROM unnest('{done,dead,busy,new}'::text[]) AS key, LATERAL pg_temp.claim(key, date => '2026-12-03') c;
SELECT outcome FROM pg_temp.claim('dead', '2', date => '2026-12-03');
-- and by the end of the run
SELECT outcome FROM pg_temp.claim('only', '1', date => '2026-12-04');
SELECT job_idem.mark_done(pg_temp.token(), 'only', '4');
SELECT job_idem.seal_run(run_id) IS NOT NULL AS sealed FROM job_idem.runs
WHERE job = 'claim_item' AND run_key = '2026-12-04';
CALL job_idem.tick();
SELECT state FROM job_idem.runs WHERE job = 'claim_item' AND run_key = '2026-12-04';
SELECT key, c.outcome, c.result
FROM unnest('{only,new}'::text[]) AS key, LATERAL pg_temp.claim(key, date => '2026-12-04') c;
SELECT outcome FROM pg_temp.claim('only', '2', date => '2026-12-04');
-- a new key above READ COMMITTED is refused, known ones are answered
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM pg_temp.claim('done', date => '2026-12-03');
SELECT outcome FROM pg_temp.claim('rr', date => '2026-12-05');
ROLLBACK;
SELECT outcome FROM pg_temp.claim('first', date => '2026-12-05');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM pg_temp.claim('rr', date => '2026-12-05');
ROLLBACK;

-- a paused job gives nothing, but answers for what it knows
SELECT job_idem.pause_job('claim_item');
SELECT key, c.outcome FROM unnest('{k1,k5,new,p dead}'::text[]) AS key, LATERAL pg_temp.claim(key) c;
SELECT outcome FROM pg_temp.claim('new', date => '2026-12-05');
SELECT job_idem.resume_job('claim_item');
SELECT outcome FROM pg_temp.claim('new', date => '2026-12-05');

-- batch jobs: the run must be there, new keys are not taken; an item of a slice is waiting until its slice is
-- claimed, busy while that is open, and done with it, although no row of it was written
SELECT outcome FROM job_idem.define_job('claim_item batch', batch_size => 3);
SELECT outcome FROM pg_temp.claim('a', job => 'claim_item batch');
SELECT run_id FROM job_idem.open_run('claim_item batch', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d}', ARRAY['1', NULL, NULL, NULL]::jsonb[]);
SELECT key, c.outcome FROM unnest('{a,new}'::text[]) AS key, LATERAL pg_temp.claim(key, job => 'claim_item batch') c;
SELECT job_idem.seal_run(:run_id);
SELECT key, c.outcome
FROM unnest('{a,d,new}'::text[]) AS key, LATERAL pg_temp.claim(key, job => 'claim_item batch') c;
SELECT DISTINCT token FROM job_idem.claim_items('claim_item batch') \gset
SELECT key, c.outcome
FROM unnest('{a,b,d,new}'::text[]) AS key, LATERAL pg_temp.claim(key, job => 'claim_item batch') c;
SELECT outcome FROM pg_temp.claim('a', '2', job => 'claim_item batch');
SELECT job_idem.mark_done(:token, 'b', '"first"');
SELECT state FROM job_idem.mark_failed(:token, 'c', transient => true);
SELECT job_idem.mark_all_done(:token, 1, '{b,c}');
SELECT key, c.outcome, c.result
FROM unnest('{a,b,c,d,new}'::text[]) AS key, LATERAL pg_temp.claim(key, job => 'claim_item batch') c;
SELECT outcome FROM pg_temp.claim('a', '2', job => 'claim_item batch');
SELECT item_key, state FROM job_idem.item WHERE run_id = :run_id ORDER BY item_no;
SET job_idem.clock_offset = 300;
SELECT outcome, attempt FROM pg_temp.claim('c', job => 'claim_item batch');
SELECT job_idem.add_items(:run_id, '{late}');
SELECT outcome, attempt FROM pg_temp.claim('late', job => 'claim_item batch');

SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'claim_item%';
