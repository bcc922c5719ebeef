-- release: gives back what is unfinished of a claim, due at once, and costs no try (F21): attempts and lost stay as
-- they were, the next claim gets the rest under a larger token; what was done stays done. Of a completed claim it
-- gives back nothing; a second one, or one of an expired claim, is JI001. Counts never go below or above (C23).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('release', batch_size => 5);
SELECT run_id FROM job_idem.open_run('release', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,a,a,b,c,d,e}');
SELECT job_idem.seal_run(:run_id);
CREATE TEMP VIEW state AS
SELECT item_key, state, attempts, lost, due_at = job_idem.now() AS due_now
FROM job_idem.items WHERE job = 'release' ORDER BY item_no;
CREATE TEMP VIEW progress AS
SELECT state, done, dead, total, percent FROM job_idem.progress WHERE job = 'release' AND run_key = '2026-11-30';

SELECT min(token) AS token FROM job_idem.claim_items('release', worker => 'W1') \gset
SELECT job_idem.mark_done(:token, 'b');
SELECT state FROM job_idem.mark_failed(:token, 'c', transient => true);
SELECT state FROM job_idem.mark_failed(:token, 'd', transient => false);
SELECT job_idem.release(:token);
TABLE state;
SELECT outcome, n_items, n_done, n_failed FROM job_idem.leases WHERE token = :token;
SELECT outcome, n_items, n_done, n_left FROM job_idem.claim_status(:token);
TABLE progress;
-- every later verb under the token
SELECT job_idem.release(:token);
SELECT job_idem.mark_done(:token, 'a');
SELECT job_idem.mark_done(:token, 'b');
SELECT job_idem.mark_all_done(:token, 2);
SELECT state FROM job_idem.mark_failed(:token, 'a');
SELECT job_idem.postpone(:token, 'a', '1 s');
SELECT job_idem.heartbeat(:token);
SELECT job_idem.hold(:token);
SELECT job_idem.release(0);
SELECT job_idem.release(NULL);

-- the next worker gets the rest at once; the first one's late mark is refused and counts nothing
SELECT token AS other, string_agg(item_key || attempt, ' ' ORDER BY item_key) AS items
FROM job_idem.claim_items('release', worker => 'W2') GROUP BY token \gset
SELECT :other > :token AS larger, :'items' AS items;
SELECT job_idem.mark_done(:token, 'a');
TABLE progress;
SELECT job_idem.mark_done(:other, 'a');
SELECT job_idem.mark_done(:token, 'a');
TABLE progress;
-- a pick lease given back, again and again
SELECT job_idem.release(:other);
DO $$
DECLARE
	t bigint;
BEGIN
	FOR i IN 1..50 LOOP
		SELECT token INTO STRICT t FROM job_idem.claim_items('release');
		ASSERT job_idem.release(t) = 1;
		COMMIT;
	END LOOP;
END
$$;
TABLE state;
TABLE progress;
-- the last of it done; a release then gives back nothing, without error, as often as it is called
SELECT min(token) AS token FROM job_idem.claim_items('release') \gset
SELECT job_idem.mark_done(:token, 'e');
SELECT job_idem.release(:token), job_idem.release(:token);
SET job_idem.clock_offset = 300;
SELECT min(token) AS token FROM job_idem.claim_items('release') \gset
SELECT job_idem.mark_all_done(:token, 1);
SELECT job_idem.release(:token);
CALL job_idem.tick();
TABLE progress;
SELECT count(*) FROM job_idem.event WHERE run_id = :run_id AND verb = 'finish';
-- an expired one is JI001; an overdue one that nobody took may be given back
SELECT run_id AS second FROM job_idem.open_run('release', '2026-12-01') \gset
SELECT job_idem.add_items(:second, '{a,b,c,d,e,f,g}');
SELECT job_idem.seal_run(:second);
SELECT min(token) AS token FROM job_idem.claim_items('release') \gset
SELECT min(token) AS other FROM job_idem.claim_items('release') \gset
SET job_idem.clock_offset = 10000;
SELECT job_idem.release(:other);
CALL job_idem.tick();
SELECT job_idem.release(:token);
SELECT item_key, state, attempts, lost FROM job_idem.items WHERE run_id = :second ORDER BY item_no;
-- rolled back, it did not happen
SET job_idem.clock_offset = 11000;
SELECT min(token) AS token, count(*) FROM job_idem.claim_items('release') \gset
BEGIN;
SELECT job_idem.release(:token);
ROLLBACK;
SELECT outcome, n_left FROM job_idem.claim_status(:token);
SELECT job_idem.release(:token);
-- after a cancel what is held is given back as usual, after a forced one not
SELECT min(token) AS token FROM job_idem.claim_items('release') \gset
SELECT min(token) AS other FROM job_idem.claim_items('release') \gset
SELECT job_idem.cancel_run(:second, 'x');
SELECT job_idem.release(:token) > 0 AS given_back;
SELECT job_idem.cancel_run(:second, 'x', force => true);
SELECT job_idem.release(:other);
SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'release%';
