-- replay_run: returns what is dead in a run now, or the part that matches, each once; the rest of the run is left alone (R9,
-- C09). Items get new tries and keep their history (C42); what dies again is a new dead letter, which the next call finds.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('replay_run', batch_size => 12, max_attempts => 2);
SELECT run_id FROM job_idem.open_run('replay_run', '2026-11-30') \gset
SELECT n_new FROM job_idem.add_items(:run_id, '{a,b,c,d,e,f,g,h,i,j,k,l}');
SELECT n_slices FROM job_idem.seal_run(:run_id);
CREATE TEMP VIEW letters AS
SELECT item_key, status, sqlstate, error_class, resolved_at - job_idem.now() AS resolved, resolved_by = current_user AS by_me, note
FROM job_idem.dead_letters WHERE job = 'replay_run' AND run_key = '2026-11-30' ORDER BY dead_letter_id;
CREATE TEMP VIEW states AS
SELECT state, attempts, lost, due_at = job_idem.now() AS due, string_agg(item_key, ' ' ORDER BY item_no) AS items
FROM job_idem.items WHERE job = 'replay_run' AND run_key = '2026-11-30' GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
CREATE TEMP VIEW run AS SELECT state, n_done, n_dead, finished_at IS NOT NULL AS ended
FROM job_idem.runs WHERE job = 'replay_run' AND run_key = '2026-11-30';
CREATE TEMP VIEW events AS SELECT verb, detail FROM job_idem.event e JOIN job_idem.run r USING (run_id)
WHERE r.run_key = '2026-11-30' AND e.job_id = (SELECT job_id FROM job_idem.jobs WHERE job = 'replay_run')
	AND verb IN ('run_again', 'replay_run', 'finish') ORDER BY event_id;
SELECT max(token) AS token FROM job_idem.claim_items('replay_run') \gset
SELECT item_key, state FROM job_idem.mark_failed_many(:token, '{a,b,c,d,e,f,g,h,i,j}', '{secret}'::text[] || array_fill(NULL::text, '{9}'),
	'{08006,08006,08001,23514,23505,40P01,NULL,57014,NULL,8}',
	'{Net.Reset,Net.TimeOut,net.reset,Check,Unique,Lock,NULL,NULL,Net.*,Naïve}', array_fill(false, '{10}'));
SELECT job_idem.mark_all_done(:token, 2, '{a,b,c,d,e,f,g,h,i,j}');
CALL job_idem.tick();
TABLE run;

-- by class: case counts, ? is one character, not one byte; what has no class is not meant
SELECT job_idem.replay_run(:run_id, 'Net.?????', note => 'the line is up again');
TABLE run;
TABLE letters;
TABLE states;
SELECT job_idem.replay_run(:run_id, 'Na?ve');
SELECT job_idem.replay_run(:run_id, 'Net.**');
-- by SQLSTATE: a prefix; by both
SELECT job_idem.replay_run(:run_id, sqlstate => '23', error_class => '*k');
SELECT job_idem.replay_run(:run_id, sqlstate => '0800');
SELECT job_idem.replay_run(:run_id, sqlstate => '4', error_class => 'Unique');
SELECT job_idem.replay_run(:run_id, sqlstate => '%');
TABLE letters;
-- all that are left; and again: nothing is left
SELECT job_idem.replay_run(:run_id, '*');
SELECT job_idem.replay_run(:run_id);
SELECT job_idem.replay_run(:run_id), job_idem.replay_run(:run_id, 'Net.*');
SELECT status, count(*) FROM letters GROUP BY status;
TABLE states;
-- an event for each call that did something, with its filters; no message is in it
TABLE events;

-- new tries: one that fails transiently has a second; then it dies anew. Those that are done are done.
SELECT max(token) AS token, count(*) AS n FROM job_idem.claim_items('replay_run') \gset
SELECT :n AS claimed;
SELECT state FROM job_idem.mark_failed_many(:token, '{a,b}', sqlstates => '{40001,23514}');
SELECT job_idem.mark_done_many(:token, '{c,d,e,f,g,h,i,j}');
SET job_idem.clock_offset = 60;
SELECT token, item_key, attempt FROM job_idem.claim_items('replay_run') \gset
SELECT :'item_key' AS item_key, :attempt AS attempt;
SELECT state FROM job_idem.mark_failed(:token, 'a', sqlstate => '40001');
CALL job_idem.tick();
TABLE run;
SELECT item_key, status, count(*) FROM letters GROUP BY 1, 2 HAVING count(*) FILTER (WHERE item_key IN ('a', 'b')) > 0 ORDER BY 1, 2;
SELECT attempt, kind, retry_at IS NOT NULL AS retried FROM job_idem.failures WHERE run_id = :run_id AND item_key = 'a'
ORDER BY failure_id;
-- the next call has the new ones; one that was discarded is closed for good
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :run_id AND status = 'open' AND item_key = 'b';
SELECT job_idem.replay_run(:run_id);
SELECT token FROM job_idem.claim_items('replay_run') \gset
SELECT job_idem.mark_done(:token, 'a');
CALL job_idem.tick();
TABLE run;
SELECT item_key, status FROM letters WHERE item_key IN ('a', 'b');
-- done: there is nothing left
SELECT job_idem.replay_run(:run_id);
TABLE run;
-- while others run: the claim that they have is not touched
SELECT run_id AS second FROM job_idem.open_run('replay_run', '2026-12-01') \gset
SELECT n_new FROM job_idem.add_items(:second, '{a,b,c}');
SELECT n_slices FROM job_idem.seal_run(:second);
SELECT job_idem.replay_run(:second);
SELECT max(token) AS token FROM job_idem.claim_items('replay_run') \gset
SELECT state FROM job_idem.mark_failed(:token, 'b', transient => false);
SELECT job_idem.replay_run(:second);
SELECT job_idem.mark_done(:token, 'b');
SELECT token AS again, item_key FROM job_idem.claim_items('replay_run') \gset
SELECT :'item_key' AS item_key;
SELECT job_idem.mark_all_done(:token, 2, '{b}'), job_idem.mark_done(:again, 'b');
CALL job_idem.tick();
SELECT state, n_done FROM job_idem.runs WHERE run_id = :second;

-- a spent budget begins anew (design: an operator has looked)
SELECT outcome FROM job_idem.define_job('replay_run budget', batch_size => 30, retry_budget => 0.1, backoff_base => '0');
SELECT run_id AS budget FROM job_idem.open_run('replay_run budget', '2026-11-30') \gset
SELECT n_new FROM job_idem.add_items(:budget, ARRAY(SELECT 'k' || n FROM generate_series(1, 30) n));
SELECT n_slices FROM job_idem.seal_run(:budget);
SELECT max(token) AS token FROM job_idem.claim_items('replay_run budget') \gset
SELECT state, count(*) FROM job_idem.mark_failed_many(:token, ARRAY(SELECT 'k' || n FROM generate_series(1, 20) n),
	sqlstates => array_fill('40001'::text, '{20}')) GROUP BY state;
CALL job_idem.tick();
SELECT state, count(*) FROM job_idem.mark_failed_many(:token, ARRAY(SELECT 'k' || n FROM generate_series(21, 30) n),
	sqlstates => array_fill('40001'::text, '{10}')) GROUP BY state;
SELECT retries_closed IS NOT NULL AS spent FROM job_idem.runs WHERE run_id = :budget;
SELECT job_idem.replay_run(:budget, sqlstate => '40001');
SELECT retries_closed IS NOT NULL AS spent FROM job_idem.runs WHERE run_id = :budget;
SELECT max(token) AS token FROM job_idem.claim_items('replay_run budget') \gset
SELECT state FROM job_idem.mark_failed(:token, 'k1', sqlstate => '40001');

-- what cannot be replayed
SELECT job_idem.replay_run(0);
SELECT job_idem.replay_run(NULL);
SELECT job_idem.replay_run(:run_id, '');
SELECT job_idem.replay_run(:run_id, sqlstate => '');
SELECT job_idem.replay_run(:run_id, repeat('*', 201));
SELECT job_idem.replay_run(:run_id, repeat('*', 200), repeat('4', 200), repeat('n', 5000));
SELECT run_id AS third FROM job_idem.open_run('replay_run', '2026-12-02') \gset
SELECT job_idem.replay_run(:third);
SELECT n_new FROM job_idem.add_items(:third, '{a,b}');
SELECT n_slices FROM job_idem.seal_run(:third);
SELECT max(token) AS token FROM job_idem.claim_items('replay_run') \gset
SELECT state FROM job_idem.mark_failed_many(:token, '{a,b}', transients => '{f,f}');
-- an item that is not dead although its letter is open, or is not there: nothing of the run is moved
BEGIN;
UPDATE job_idem.item SET state = 'waiting', due_at = job_idem.now() WHERE run_id = :third AND item_key = 'b';
SAVEPOINT s;
SELECT job_idem.replay_run(:third);
ROLLBACK TO s;
DELETE FROM job_idem.item WHERE run_id = :third AND item_key = 'b';
SELECT job_idem.replay_run(:third);
ROLLBACK;
SELECT item_key, status FROM job_idem.dead_letters WHERE run_id = :third ORDER BY 1;
SELECT job_idem.cancel_run(:third, 'x');
SELECT job_idem.replay_run(:third);
SELECT count(*) FROM job_idem.dead_letters WHERE run_id = :third AND status = 'open';

-- a keyed run; its items are moved in order of their numbers, which go down
SELECT outcome FROM job_idem.define_job('replay_run keyed', 'keyed', close_after => '1000 years');
SELECT count(f) FROM generate_series(1, 5) n, job_idem.claim_item('replay_run keyed', '2026-11-30', 'k' || n) c,
	job_idem.mark_failed(c.token, 'k' || n, sqlstate => '23514') f;
SELECT run_id AS keyed FROM job_idem.runs WHERE job = 'replay_run keyed' \gset
SELECT job_idem.replay_run(:keyed);
SELECT string_agg(item_key || ' ' || state, ', ' ORDER BY item_key) FROM job_idem.items WHERE run_id = :keyed;

-- more than a statement moves at once; in a list of which one part was never dead
SELECT outcome FROM job_idem.define_job('replay_run many', batch_size => 2600);
SELECT run_id AS many FROM job_idem.open_run('replay_run many', '2026-11-30') \gset
SELECT n_new FROM job_idem.add_items(:many, ARRAY(SELECT 'k' || n FROM generate_series(1, 2600) n));
SELECT n_slices FROM job_idem.seal_run(:many);
SELECT max(token) AS token FROM job_idem.claim_items('replay_run many') \gset
SELECT count(*) FROM job_idem.mark_failed_many(:token, ARRAY(SELECT 'k' || n FROM generate_series(1, 2500) n),
	error_classes => ARRAY(SELECT CASE WHEN n % 5 = 0 THEN 'Other' ELSE 'Bad' END FROM generate_series(1, 2500) n));
SELECT job_idem.replay_run(:many, 'Bad');
SELECT i.state, d.status, d.error_class, count(*) FROM job_idem.items i LEFT JOIN job_idem.dead_letters d USING (run_id, item_key)
WHERE i.run_id = :many GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
SELECT job_idem.replay_run(:many);
SELECT status, count(*) FROM job_idem.dead_letters WHERE run_id = :many GROUP BY 1;
SELECT r.job, r.run_key, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job LIKE 'replay_run%';
