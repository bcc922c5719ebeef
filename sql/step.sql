-- step_done, steps: a step of an item is recorded once, in the transaction of its effect, by whoever holds the item; a rerun
-- skips what is recorded and gets its results, whichever claim they are of (X10, K61); it completes nothing, and is refused
-- as a hold is (F13, K50).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('step', batch_size => 3, max_lease => '1 hour', max_attempts => 2);
SELECT run_id FROM job_idem.open_run('step', '2026-11-30') \gset
SELECT n_new FROM job_idem.add_items(:run_id, '{a,b,c,d}');
SELECT n_slices FROM job_idem.seal_run(:run_id);
SELECT max(token) AS token FROM job_idem.claim_items('step') \gset
SELECT max(token) AS other FROM job_idem.claim_items('step') \gset

SELECT job_idem.step_done(:token, 'a', 'fetch', '{"rate": 1.25}');
SET job_idem.clock_offset = 1;
SELECT job_idem.step_done(:token, 'a', 'book');
SELECT job_idem.step_done(:token, 'b', 'fetch', '[]');
-- once, with the same result or another one; what is stored stays
SELECT job_idem.step_done(:token, 'a', 'fetch', '{"rate": 1.25}');
SELECT job_idem.step_done(:token, 'a', 'fetch', '{"rate": 9}');
SELECT job_idem.step_done(:token, 'a', 'book');
SELECT step, result, done_at - '2026-11-30 12:00:00+00' AS after, token = :token AS mine FROM job_idem.steps(:token, 'a');
SELECT step, result FROM job_idem.steps(:token, 'b');
-- any claim of the run may ask, of any item; there is nothing for what is not there
SELECT step, token = :token AS firsts FROM job_idem.steps(:other, 'a');
SELECT * FROM job_idem.steps(:token, 'c');
SELECT * FROM job_idem.steps(:token, 'no such key');
SELECT * FROM job_idem.steps(0, 'a');
SELECT * FROM job_idem.steps(NULL, 'a');
SELECT * FROM job_idem.steps(:token, NULL);
-- nothing is completed, and the step goes with its transaction
SELECT outcome, n_done, n_left FROM job_idem.claim_status(:token);
BEGIN;
SAVEPOINT s;
SELECT job_idem.step_done(:token, 'c', 'fetch', '1');
ROLLBACK TO s;
SELECT job_idem.step_done(:token, 'c', 'fetch', '2');
COMMIT;
SELECT step, result FROM job_idem.steps(:token, 'c');

-- whose the item is not, or not any more
SELECT job_idem.step_done(:token, 'd', 'fetch');
SELECT job_idem.step_done(:token, 'no such key', 'fetch');
SELECT job_idem.step_done(0, 'a', 'fetch');
SELECT job_idem.mark_done(:token, 'b');
SELECT job_idem.step_done(:token, 'b', 'book');
SELECT state FROM job_idem.mark_failed(:token, 'a', transient => true);
SELECT job_idem.step_done(:token, 'a', 'post');
-- bad input
SELECT job_idem.step_done(:token, 'c', NULL);
SELECT job_idem.step_done(:token, 'c', '');
SELECT job_idem.step_done(:token, 'c', repeat('s', 513));
SELECT job_idem.step_done(:token, 'c', 'large', to_jsonb(repeat('x', 1024 * 1024)));
SELECT job_idem.step_done(:token, NULL, 'fetch');
SELECT job_idem.step_done(NULL, 'c', 'fetch');
SELECT job_idem.step_done(:token, 'c', step) FROM unnest(ARRAY[repeat('s', 512), ' ', '''', '%s', E'\n', '步骤', E'\u00e9', E'e\u0301']) AS step;
SELECT count(*), sum(octet_length(step)) AS bytes FROM job_idem.steps(:token, 'c');

-- a rerun under another claim: two steps are there, the others are its own
SET job_idem.clock_offset = 60;
SELECT token AS again, item_key, attempt FROM job_idem.claim_items('step') \gset
SELECT :'item_key' AS item_key, :attempt AS attempt;
SELECT step, result FROM job_idem.steps(:again, 'a');
SELECT job_idem.step_done(:again, 'a', 'book');
SELECT job_idem.step_done(:again, 'a', 'post', '"4711"');
SELECT step, result, token > :token AS second FROM job_idem.steps(:again, 'a');
-- a replay keeps them, and a third holder goes on
SELECT state FROM job_idem.mark_failed(:again, 'a', transient => false);
SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :run_id;
SELECT token AS third FROM job_idem.claim_items('step') \gset
SELECT step, result FROM job_idem.steps(:third, 'a');
SELECT job_idem.step_done(:third, 'a', 'tell'), job_idem.mark_done(:third, 'a', '"told"');
SELECT job_idem.step_done(:third, 'a', 'tell');
SELECT job_idem.step_done(:third, 'a', 'more');
SELECT string_agg(step, ' ') AS steps FROM job_idem.steps(:third, 'a');
SELECT outcome FROM job_idem.claim_status(:third);

-- the claim is the transaction's current one: lease and item are locked, and it may not be prepared
CREATE TEMP VIEW locks AS
SELECT l.xmax::text = pg_current_xact_id_if_assigned()::xid::text AS lease_locked, i.item_key,
	i.xmax::text = pg_current_xact_id_if_assigned()::xid::text AS item_locked
FROM job_idem.lease l JOIN job_idem.item i ON i.run_id = l.run_id
WHERE l.run_id = (SELECT run_id FROM job_idem.runs WHERE job = 'step') AND l.slice_no = 0 AND i.item_key = 'c';
BEGIN;
SELECT job_idem.step_done(:token, 'c', 'locked');
TABLE locks;
PREPARE TRANSACTION 'step';
SELECT count(*) FROM job_idem.steps(:token, 'c') WHERE step = 'locked';

-- overdue it is still good, past claimed_at + max_lease not, though the item may be completed
SET job_idem.clock_offset = 3600;
SELECT job_idem.step_done(:other, 'd', 'overdue');
SET job_idem.clock_offset = 3600.000001;
SELECT job_idem.step_done(:other, 'd', 'late');
SELECT job_idem.mark_done(:other, 'd');
SELECT job_idem.step_done(:other, 'd', 'late');
-- expired
CALL job_idem.tick();
SELECT job_idem.step_done(:token, 'c', 'late');
SELECT count(*) FROM job_idem.steps(:token, 'c') WHERE step = 'late';

-- a key of another run has steps of its own; a keyed job has them too
SELECT run_id AS second FROM job_idem.open_run('step', '2026-12-01') \gset
SELECT n_new FROM job_idem.add_items(:second, '{a,b}');
SELECT n_slices FROM job_idem.seal_run(:second);
SELECT max(token) AS token FROM job_idem.claim_items('step', run_key => '2026-12-01') \gset
SELECT count(*) FROM job_idem.steps(:token, 'a');
SELECT job_idem.step_done(:token, 'a', 'fetch');
SELECT outcome FROM job_idem.define_job('step keyed', 'keyed');
SELECT token AS key FROM job_idem.claim_item('step keyed', '2026-11-30', 'a') \gset
SELECT job_idem.step_done(:key, 'a', 'fetch', 'null');
SELECT step, result, result IS NULL AS none FROM job_idem.steps(:key, 'a');
-- in a cancelled run what is held may go on; cancelled with force it may not; the steps can be read
SELECT job_idem.cancel_run(:second, 'x');
SELECT job_idem.step_done(:token, 'a', 'book');
SELECT job_idem.cancel_run(:second, 'x', force => true);
SELECT job_idem.step_done(:token, 'a', 'post');
SELECT string_agg(step, ' ' ORDER BY step) AS steps FROM job_idem.steps(:token, 'a');
-- large results come out whole
SELECT job_idem.step_done(:key, 'a', 'large', to_jsonb(repeat(md5('x'), 10000)));
SELECT octet_length(result::text) FROM job_idem.steps(:key, 'a') WHERE step = 'large';
SELECT r.job, a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a WHERE r.job LIKE 'step%';
