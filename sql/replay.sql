-- replay and discard: a dead letter is resolved once (R8, R9): replay returns its item under its own key with new
-- tries (C42), as often as it dies anew; a second call changes nothing and says so; the last one discarded, a
-- partial run is done. History stays.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('replay', batch_size => 4, max_attempts => 2);
SELECT run_id FROM job_idem.open_run('replay', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d}', ARRAY['{"amount": 1}', NULL, NULL, NULL]::jsonb[]);
SELECT job_idem.seal_run(:run_id);
CREATE TEMP VIEW letters AS
SELECT item_key, status, attempts, payload, resolved_at - job_idem.now() AS resolved, resolved_by = current_user AS by_me,
	note
FROM job_idem.dead_letters WHERE job = 'replay' ORDER BY dead_letter_id;
CREATE TEMP VIEW state AS
SELECT item_key, state, attempts, lost, due_at = job_idem.now() AS due, payload
FROM job_idem.items WHERE job = 'replay' ORDER BY item_no;
CREATE TEMP VIEW run AS SELECT state, n_done, n_dead, finished_at IS NOT NULL AS ended
FROM job_idem.runs WHERE job = 'replay';
SELECT min(token) AS token FROM job_idem.claim_items('replay') \gset
SELECT state FROM job_idem.mark_failed(:token, 'a', 'first death', '23514');
SELECT state FROM job_idem.mark_failed(:token, 'b', transient => false);
SELECT state FROM job_idem.mark_failed(:token, 'c', transient => false);
SELECT job_idem.mark_all_done(:token, 1, '{a,b,c}');
CALL job_idem.tick();
TABLE run;
TABLE letters;
SELECT dead_letter_id AS a FROM job_idem.dead_letters WHERE job = 'replay' AND item_key = 'a' \gset
SELECT dead_letter_id AS b FROM job_idem.dead_letters WHERE job = 'replay' AND item_key = 'b' \gset
SELECT dead_letter_id AS c FROM job_idem.dead_letters WHERE job = 'replay' AND item_key = 'c' \gset

-- one of them, with another payload: the run is running again, the item is due with all its tries; the others stay
SELECT job_idem.replay(:a, 'amount mended', '{"amount": 2}');
TABLE run;
TABLE letters;
TABLE state;
-- again: nothing changes, and it says so
SELECT job_idem.replay(:a, 'once more');
SELECT job_idem.discard(:a, 'or not');
TABLE letters;
TABLE state;
SELECT verb, item_key, detail - 'dead_letter_id' AS detail FROM job_idem.event
WHERE run_id = :run_id AND verb IN ('replay', 'run_again', 'finish', 'discard') ORDER BY event_id;
-- it fails once, and has a second try; then it dies anew, under a new dead letter; the old one stays resolved
SELECT token, attempt, payload FROM job_idem.claim_items('replay') \gset
SELECT :attempt AS attempt, :'payload' AS payload;
SELECT state FROM job_idem.mark_failed(:token, 'a', 'first of two', '40001');
SET job_idem.clock_offset = 60;
SELECT token, attempt FROM job_idem.claim_items('replay') \gset
SELECT :attempt AS attempt;
SELECT state FROM job_idem.mark_failed(:token, 'a', 'second of two', '40001');
CALL job_idem.tick();
TABLE letters;
TABLE run;
SELECT attempt, message FROM job_idem.failure WHERE run_id = :run_id AND item_key = 'a' ORDER BY failure_id;
SELECT job_idem.replay(:a, 'the old one');
TABLE run;
-- the new one: replayed too, and done under its own key
SELECT dead_letter_id AS a2 FROM job_idem.dead_letters WHERE job = 'replay' AND item_key = 'a' AND status = 'open' \gset
SELECT job_idem.replay(:a2);
SELECT token, attempt FROM job_idem.claim_items('replay') \gset
SELECT job_idem.mark_done(:token, 'a');
SELECT job_idem.replay(:a2);
TABLE state;
-- discarded for good: not replayed any more
CALL job_idem.tick();
SELECT job_idem.discard(:b, 'written off');
SELECT job_idem.replay(:b);
SELECT job_idem.discard(:b);
TABLE run;
-- the last one: done, and the counts stand
SELECT job_idem.discard(:c);
TABLE run;
SELECT job_idem.is_done('replay', '2026-11-30');
SELECT job_idem.replay(:c);
TABLE letters;
SELECT verb, count(*) FROM job_idem.event
WHERE run_id = :run_id AND verb IN ('finish', 'run_again', 'replay', 'discard') GROUP BY verb ORDER BY verb;
SELECT done, dead, total FROM job_idem.progress WHERE run_id = :run_id;

-- while the run is running: the item goes to whoever claims next; the last one discarded there, the run ends done
SELECT run_id AS second FROM job_idem.open_run('replay', '2026-12-01') \gset
SELECT job_idem.add_items(:second, '{a,b,c,d,e}');
SELECT job_idem.seal_run(:second);
SELECT min(token) AS token FROM job_idem.claim_items('replay') \gset
SELECT state FROM unnest('{a,b}'::text[]) k, LATERAL job_idem.mark_failed(:token, k, transient => false);
SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :second AND item_key = 'a';
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :second AND item_key = 'b';
-- the claim that held it before it died has nothing to do with it any more
SELECT job_idem.mark_done(:token, 'a');
SELECT token AS again, string_agg(item_key, ' ') AS items FROM job_idem.claim_items('replay') GROUP BY token \gset
SELECT :'items' AS items;
SELECT job_idem.mark_done(:again, 'a');
SELECT job_idem.mark_all_done(:token, 2, '{a,b}');
SELECT min(token) AS token FROM job_idem.claim_items('replay') \gset
SELECT job_idem.mark_all_done(:token, 1);
CALL job_idem.tick();
SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = :second;
SELECT done, dead, total FROM job_idem.progress WHERE run_id = :second;

-- what cannot be replayed or discarded
SELECT job_idem.replay(0);
SELECT job_idem.replay(-9223372036854775808);
SELECT job_idem.replay(NULL);
SELECT job_idem.discard(0);
SELECT job_idem.discard(NULL);
SELECT run_id AS third FROM job_idem.open_run('replay', '2026-12-02') \gset
SELECT job_idem.add_items(:third, '{a}');
SELECT job_idem.seal_run(:third);
SELECT min(token) AS token FROM job_idem.claim_items('replay') \gset
SELECT state FROM job_idem.mark_failed(:token, 'a', transient => false);
SELECT dead_letter_id AS d FROM job_idem.dead_letters WHERE run_id = :third \gset
SELECT job_idem.replay(:d, payload => to_jsonb(repeat('x', 1024 * 1024 + 1)));
SELECT job_idem.cancel_run(:third, 'x');
SELECT job_idem.replay(:d);
SELECT job_idem.discard(:d);
SELECT state FROM job_idem.runs WHERE run_id = :third;
SELECT count(*) FROM job_idem.dead_letters WHERE job = 'replay' AND status = 'open';
SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job = 'replay';
