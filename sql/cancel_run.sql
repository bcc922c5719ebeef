-- cancel_run: ends a run for good, in every state that allows it; no claims from then on, one documented end for
-- the work in hand: without force it may be completed, with force every later verb on it is JI004 and tick expires
-- it (F26, C60); one event each; a second call changes nothing unless it adds force; ended runs are refused.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('cancel_run', batch_size => 2);
CREATE FUNCTION pg_temp.open(key text, seal boolean DEFAULT true) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	SELECT run_id INTO id FROM job_idem.open_run('cancel_run', '2026-11-30', key);
	PERFORM job_idem.add_items(id, '{a,b,c,d,e,f}');
	IF seal THEN
		PERFORM job_idem.seal_run(id);
	END IF;
	RETURN id;
END
$$;
CREATE TEMP VIEW runs AS
SELECT run_key, state, n_done, reason, finished_at IS NOT NULL AS ended
FROM job_idem.runs WHERE job = 'cancel_run' ORDER BY run_id;

-- refused: no reason, no run
SELECT pg_temp.open('held') AS held \gset
SELECT job_idem.cancel_run(:held, NULL);
SELECT job_idem.cancel_run(:held, '');
SELECT job_idem.cancel_run(NULL, 'x');
SELECT job_idem.cancel_run(0, 'x');
TABLE runs;

-- without force: claims get nothing from then on, in the same transaction already; what is held goes on to its end
SELECT min(token) AS token FROM job_idem.claim_items('cancel_run') \gset
SELECT min(token) AS other FROM job_idem.claim_items('cancel_run') \gset
BEGIN;
SELECT job_idem.cancel_run(:held, 'wrong file');
SELECT count(*) FROM job_idem.claim_items('cancel_run');
ROLLBACK;
TABLE runs;
SELECT job_idem.cancel_run(:held, 'wrong file');
TABLE runs;
SELECT count(*) FROM job_idem.claim_items('cancel_run');
SELECT outcome FROM job_idem.claim_item('cancel_run', '2026-11-30', 'e', run_key => 'held');
SELECT job_idem.hold(:token);
SELECT job_idem.heartbeat(:token) - job_idem.now() AS lease;
SELECT job_idem.mark_done(:token, 'a');
SELECT state FROM job_idem.mark_failed(:token, 'b', transient => true);
SELECT job_idem.mark_all_done(:other, 2);
SELECT item_key, state FROM job_idem.items WHERE run_id = :held ORDER BY item_no;
-- a second call changes nothing; a run stays cancelled
SELECT job_idem.cancel_run(:held, 'another reason');
CALL job_idem.tick();
TABLE runs;
SELECT * FROM job_idem.seal_run(:held);
SELECT * FROM job_idem.add_items(:held, '{g}');
SELECT outcome, state FROM job_idem.open_run('cancel_run', '2026-11-30', 'held');
SELECT verb, detail FROM job_idem.event WHERE run_id = :held AND verb NOT IN ('open_run', 'seal_run') ORDER BY event_id;

-- with force: every verb on what is held is JI004, and tick gives up the lease, before its deadline
SELECT pg_temp.open('forced') AS forced \gset
SELECT min(token) AS token FROM job_idem.claim_items('cancel_run') \gset
SELECT job_idem.mark_done(:token, 'a');
SELECT token AS other FROM job_idem.claim_items('cancel_run') LIMIT 1 \gset
SELECT job_idem.release(:other);
SELECT token AS picks FROM job_idem.claim_item('cancel_run', '2026-11-30', 'c', run_key => 'forced') \gset
SELECT job_idem.cancel_run(:forced, 'stop at once', force => true);
SELECT job_idem.hold(:token);
SELECT job_idem.hold(:token, 'b');
SELECT job_idem.heartbeat(:token);
SELECT job_idem.mark_done(:token, 'b');
SELECT job_idem.mark_done(:token, 'a');
SELECT job_idem.mark_done_many(:token, '{b}');
SELECT job_idem.mark_all_done(:token, 1, '{a}');
SELECT state FROM job_idem.mark_failed(:token, 'b');
SELECT job_idem.postpone(:token, 'b', '1 s');
SELECT job_idem.release(:token);
SELECT job_idem.mark_done(:picks, 'c');
SELECT outcome, n_done, n_left FROM job_idem.claim_status(:token);
CALL job_idem.tick();
SELECT outcome, n_done, n_left FROM job_idem.claim_status(:token);
SELECT outcome FROM job_idem.claim_status(:picks);
SELECT state, count(*) FROM job_idem.items WHERE run_id = :forced GROUP BY state ORDER BY state;
SELECT verb, detail
FROM job_idem.event WHERE run_id = :forced AND verb NOT IN ('open_run', 'seal_run') ORDER BY event_id;
-- force after one without does change something, once; not the other way round
SELECT pg_temp.open('first without') AS twice \gset
SELECT min(token) AS token FROM job_idem.claim_items('cancel_run') \gset
SELECT job_idem.cancel_run(:twice, 'gently');
SELECT finished_at AS ended FROM job_idem.runs WHERE run_id = :twice \gset
SET job_idem.clock_offset = 60;
SELECT job_idem.cancel_run(:twice, 'now', force => true);
SELECT job_idem.cancel_run(:twice, 'now', force => true);
SELECT job_idem.cancel_run(:twice, 'gently');
SELECT finished_at = :'ended' AS ended_then, reason FROM job_idem.runs WHERE run_id = :twice;
SELECT job_idem.mark_done(:token, 'a');

-- without force, what nobody completes expires as usual, and waits there for ever
SELECT pg_temp.open('left alone') AS alone \gset
SELECT min(token) AS token FROM job_idem.claim_items('cancel_run') \gset
SELECT job_idem.cancel_run(:alone, 'x');
CALL job_idem.tick();
SELECT outcome FROM job_idem.claim_status(:token);
SET job_idem.clock_offset = 1000;
CALL job_idem.tick();
SELECT outcome FROM job_idem.claim_status(:token);
SET job_idem.clock_offset = 100000;
SELECT count(*) FROM job_idem.claim_items('cancel_run');
CALL job_idem.tick();
RESET job_idem.clock_offset;

-- the states it may be called in: loading, running, partial (then dead letters are discarded only); not done
SELECT pg_temp.open('loading', false) AS loading \gset
SELECT job_idem.cancel_run(:loading, 'x');
SELECT run_id AS empty FROM job_idem.open_run('cancel_run', '2026-11-30', 'empty') \gset
SELECT job_idem.seal_run(:empty);
CALL job_idem.tick();
SELECT job_idem.cancel_run(:empty, 'x');
SELECT job_idem.cancel_run(:empty, 'x', force => true);
SELECT run_id AS partial FROM job_idem.open_run('cancel_run', '2026-11-30', 'partial') \gset
SELECT job_idem.add_items(:partial, '{a}');
SELECT job_idem.seal_run(:partial);
SELECT min(token) AS token FROM job_idem.claim_items('cancel_run') \gset
SELECT state FROM job_idem.mark_failed(:token, 'a', transient => false);
CALL job_idem.tick();
SELECT job_idem.cancel_run(:partial, 'x');
SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :partial;
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :partial;
-- a keyed run, and the business date's next run has a key of its own
SELECT outcome FROM job_idem.define_job('cancel_run keyed', kind => 'keyed');
SELECT token FROM job_idem.claim_item('cancel_run keyed', '2026-11-30', 'k') \gset
SELECT job_idem.cancel_run(run_id, 'x') FROM job_idem.runs WHERE job = 'cancel_run keyed';
SELECT outcome FROM job_idem.claim_item('cancel_run keyed', '2026-11-30', 'new');
SELECT job_idem.mark_done(:token, 'k');
SELECT outcome FROM job_idem.claim_item('cancel_run keyed', '2026-11-30', 'k');
SELECT outcome FROM job_idem.claim_item('cancel_run keyed', '2026-11-30', 'k', run_key => '2026-11-30#2');
TABLE runs;
-- a worker may not
CREATE ROLE regress_cancel_run;
SELECT job_idem.grant_worker('cancel_run', 'regress_cancel_run');
SET ROLE regress_cancel_run;
SELECT job_idem.cancel_run(:held, 'x');
RESET ROLE;
SELECT job_idem.revoke_worker('cancel_run', 'regress_cancel_run');
DROP ROLE regress_cancel_run;
SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'cancel_run%';
