-- States are data without traps (F22): every state that is not terminal reaches a terminal one; and every verb on
-- every state of an item and of a run is a listed transition, or changes nothing, or is refused with JI001, JI004,
-- JI008 or, for what this very claim did before, JI010.
\set VERBOSITY sqlstate
SELECT * FROM job_idem.item_transitions();
SELECT * FROM job_idem.run_transitions();

-- no trap, and nothing leads out of a terminal state but what an operator does
CREATE TEMP VIEW edges AS
SELECT 'item' AS kind, * FROM job_idem.item_transitions() UNION ALL SELECT 'run', * FROM job_idem.run_transitions();
CREATE TEMP VIEW terminal AS
SELECT * FROM (VALUES ('item', 'done'), ('item', 'dead'), ('run', 'done'), ('run', 'cancelled'), ('run', 'partial'),
	('run', 'skipped'), ('run', 'expired')) AS t (kind, state);
WITH RECURSIVE reaches AS (
	SELECT kind, state FROM terminal
	UNION
	SELECT e.kind, e.from_state FROM edges e JOIN reaches r ON r.kind = e.kind AND r.state = e.to_state
)
SELECT kind, from_state AS trap FROM edges EXCEPT SELECT kind, state FROM reaches;
SELECT e.kind, e.from_state, e.to_state, e.verb
FROM edges e JOIN terminal t ON t.kind = e.kind AND t.state = e.from_state ORDER BY 1, 2, 3;
-- every state there is, is among them or born so
SELECT 'item' AS kind, s AS state FROM unnest('{pending,waiting,claimed,done,dead}'::text[]) s
EXCEPT SELECT kind, unnest(ARRAY[from_state, to_state]) FROM edges;
SELECT 'run' AS kind, s AS state
FROM unnest('{loading,blocked,running,done,partial,cancelled,skipped,expired}'::text[]) s
EXCEPT SELECT kind, unnest(ARRAY[from_state, to_state]) FROM edges ORDER BY state;

-- every verb on every state: each pair on a run of its own
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
DO $$
BEGIN
	PERFORM job_idem.define_job('transitions', batch_size => 1);
	PERFORM job_idem.define_job('transitions keyed', 'keyed');
END
$$;
CREATE TEMP TABLE pairs (kind text, state text, verb text, from_item text, to_item text, from_run text, to_run text,
	code text);
-- an item k, in a run with another item, in the state named
CREATE FUNCTION pg_temp.build(state text, rk text, OUT job text, OUT run bigint, OUT claim bigint, OUT letter bigint)
LANGUAGE plpgsql AS $$
BEGIN
	job := CASE WHEN state LIKE 'keyed%' THEN 'transitions keyed' ELSE 'transitions' END;
	SELECT run_id INTO run FROM job_idem.open_run(job, '2026-11-30', rk);
	claim := 0;
	letter := 0;
	IF state LIKE 'keyed%' THEN
		IF state <> 'keyed, not there' THEN
			SELECT token INTO claim FROM job_idem.claim_item(job, '2026-11-30', 'k', run_key => rk);
		END IF;
		RETURN;
	END IF;
	PERFORM job_idem.add_items(run, CASE WHEN state = 'not there' THEN '{other}' WHEN state LIKE 'run %' THEN '{k}'
		ELSE '{k,other}' END::text[]);
	IF state = 'run loading' OR state = 'run blocked' THEN
		UPDATE job_idem.run r SET state = 'blocked', waits_for = run WHERE run_id = run AND build.state = 'run blocked';
		RETURN;
	END IF;
	PERFORM job_idem.seal_run(run);
	IF state IN ('not there', 'pending') THEN
		RETURN;
	END IF;
	SELECT token INTO claim FROM job_idem.claim_items(job, run_key => rk);
	CASE
		WHEN state = 'claimed' OR state LIKE 'claimed, run %' THEN NULL;
		WHEN state = 'claimed, last try' THEN
			PERFORM job_idem.release(claim);
			UPDATE job_idem.item SET attempts = 3 WHERE run_id = run AND item_key = 'k';
			SELECT token INTO claim FROM job_idem.claim_items(job, run_key => rk);
		WHEN state = 'claimed again' THEN
			PERFORM job_idem.release(claim);
			SELECT token INTO claim FROM job_idem.claim_items(job, run_key => rk);
		WHEN state = 'waiting, due' THEN PERFORM job_idem.release(claim);
		WHEN state = 'waiting' THEN PERFORM job_idem.postpone(claim, 'k', '1 day');
		WHEN state IN ('done', 'run over', 'run done') THEN PERFORM job_idem.mark_done(claim, 'k');
		WHEN state = 'done as a whole' THEN PERFORM job_idem.mark_all_done(claim, 1);
		WHEN state IN ('dead', 'run partial', 'run over, with a dead letter') THEN
			PERFORM job_idem.mark_failed(claim, 'k', transient => false);
	END CASE;
	IF state = 'claimed, run cancelled' THEN
		PERFORM job_idem.cancel_run(run, 'x');
	ELSIF state = 'claimed, run cancelled with force' THEN
		PERFORM job_idem.cancel_run(run, 'x', true);
	END IF;
	SELECT dead_letter_id INTO letter FROM job_idem.dead_letter WHERE run_id = run;
	letter := coalesce(letter, 0);
END
$$;
CREATE FUNCTION pg_temp.item_state(id bigint) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce((SELECT state FROM job_idem.items WHERE run_id = id AND item_key = 'k'), '-')
$$;
CREATE FUNCTION pg_temp.run_state(id bigint) RETURNS text LANGUAGE sql AS $$
	SELECT state FROM job_idem.run WHERE run_id = id
$$;
CREATE PROCEDURE pg_temp.try(state text, verb text) LANGUAGE plpgsql AS $$
DECLARE
	rk text := state || '/' || verb;
	b record;
	p pairs;
BEGIN
	SELECT * INTO b FROM pg_temp.build(state, rk);
	COMMIT;
	IF state IN ('run done', 'run partial') THEN
		PERFORM * FROM job_idem.claim_items('transitions', run_key => rk); -- idle: finishes
		COMMIT;
	END IF;
	p := ROW('item', state, verb, pg_temp.item_state(b.run), NULL, pg_temp.run_state(b.run), NULL, '');
	BEGIN
		CASE verb
			WHEN 'open_run' THEN PERFORM job_idem.open_run(b.job, '2026-11-30', rk);
			WHEN 'add_items' THEN PERFORM job_idem.add_items(b.run, '{k}');
			WHEN 'seal_run' THEN PERFORM job_idem.seal_run(b.run);
			WHEN 'cancel_run' THEN PERFORM job_idem.cancel_run(b.run, 'x');
			WHEN 'claim_items' THEN PERFORM * FROM job_idem.claim_items(b.job, run_key => rk);
			WHEN 'claim_item' THEN PERFORM job_idem.claim_item(b.job, '2026-11-30', 'k', run_key => rk);
			WHEN 'mark_done' THEN PERFORM job_idem.mark_done(b.claim, 'k');
			WHEN 'mark_done_many' THEN PERFORM job_idem.mark_done_many(b.claim, '{k}');
			WHEN 'mark_all_done' THEN PERFORM job_idem.mark_all_done(b.claim, 1);
			WHEN 'mark_failed' THEN PERFORM job_idem.mark_failed(b.claim, 'k', transient => true);
			WHEN 'mark_failed, business' THEN PERFORM job_idem.mark_failed(b.claim, 'k', transient => false);
			WHEN 'postpone' THEN PERFORM job_idem.postpone(b.claim, 'k', '1 hour');
			WHEN 'release' THEN PERFORM job_idem.release(b.claim);
			WHEN 'heartbeat' THEN PERFORM job_idem.heartbeat(b.claim);
			WHEN 'hold' THEN PERFORM job_idem.hold(b.claim);
			WHEN 'hold, item' THEN PERFORM job_idem.hold(b.claim, 'k');
			WHEN 'step_done' THEN PERFORM job_idem.step_done(b.claim, 'k', 's');
			WHEN 'expire_lease' THEN PERFORM job_idem.expire_lease(b.claim, 'x');
			WHEN 'replay' THEN PERFORM job_idem.replay(b.letter);
			WHEN 'replay_run' THEN PERFORM job_idem.replay_run(b.run);
			WHEN 'discard' THEN PERFORM job_idem.discard(b.letter);
			WHEN 'expiry' THEN
				SET LOCAL job_idem.clock_offset = 3600;
				PERFORM * FROM job_idem.claim_items(b.job, run_key => 'none');
		END CASE;
	EXCEPTION WHEN OTHERS THEN
		p.code := SQLSTATE;
	END;
	p.to_item := pg_temp.item_state(b.run);
	p.to_run := pg_temp.run_state(b.run);
	INSERT INTO pairs SELECT p.*;
	-- the next pair's idle claim is to find nothing of this one
	UPDATE job_idem.run SET state = 'cancelled', finished_at = job_idem.now() WHERE run_id = b.run AND finished_at IS NULL;
	COMMIT;
END
$$;
DO $$
DECLARE
	state text;
	verb text;
BEGIN
	FOREACH state IN ARRAY '{not there,pending,"waiting, due",waiting,claimed,"claimed again","claimed, last try",done,
		done as a whole,dead,"claimed, run cancelled","claimed, run cancelled with force","keyed, not there","keyed, claimed",
		run loading,run blocked,run over,"run over, with a dead letter",run done,run partial}'::text[] LOOP
		FOREACH verb IN ARRAY '{open_run,add_items,seal_run,cancel_run,claim_items,claim_item,mark_done,mark_done_many,
			mark_all_done,mark_failed,"mark_failed, business",postpone,release,heartbeat,hold,"hold, item",step_done,expire_lease,expiry,
			replay,replay_run,discard}'::text[] LOOP
			CALL pg_temp.try(state, verb);
		END LOOP;
	END LOOP;
END
$$;
SELECT count(*), count(DISTINCT (state, verb)) AS pairs FROM pairs;
-- what changes, and what each state answers to the other verbs: OK without a change, or a code
SELECT state, verb, from_item, to_item
FROM pairs WHERE from_item <> to_item ORDER BY state COLLATE "C", verb COLLATE "C";
SELECT state, verb, from_run, to_run FROM pairs WHERE from_run <> to_run ORDER BY state COLLATE "C", verb COLLATE "C";
SELECT state, CASE code WHEN '' THEN 'unchanged' ELSE code END AS answer,
	string_agg(verb, '; ' ORDER BY verb COLLATE "C") AS verbs
FROM pairs WHERE from_item = to_item AND from_run = to_run GROUP BY 1, 2
ORDER BY state COLLATE "C", min(code) COLLATE "C";
-- every change is listed, and comes without an error; every error is one of those that say why
CREATE TEMP VIEW changes AS
SELECT 'item' AS kind, from_item AS from_state, to_item AS to_state, split_part(verb, ',', 1) AS verb, code
FROM pairs WHERE from_item <> to_item
UNION ALL
SELECT 'run', from_run, to_run, CASE WHEN verb IN ('claim_items', 'expiry') THEN 'finish' ELSE verb END, code
FROM pairs WHERE from_run <> to_run;
SELECT kind, from_state, to_state, verb FROM changes EXCEPT TABLE edges;
SELECT * FROM changes WHERE code <> '';
SELECT * FROM pairs WHERE code NOT IN ('', 'JI001', 'JI004', 'JI008', 'JI010', 'P0002');
-- what is listed and was not met above: what needs a run that is not there, or an upstream
TABLE edges EXCEPT SELECT kind, from_state, to_state, verb FROM changes ORDER BY kind, from_state, to_state, verb;
SELECT r.run_key, a.*
FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.run_key ~ '^(claimed|claimed, last try|dead|run over)/';

-- states that only later verbs make take no items, no claims, no seal, and cannot be cancelled if they are ends
SELECT run_id FROM job_idem.open_run('transitions', '2026-12-24', 'born') \gset
UPDATE job_idem.run SET state = 'skipped', finished_at = job_idem.now() WHERE run_id = :run_id;
SELECT * FROM job_idem.add_items(:run_id, '{k}');
SELECT * FROM job_idem.seal_run(:run_id);
SELECT job_idem.cancel_run(:run_id, 'x');
SELECT outcome FROM job_idem.claim_item('transitions', '2026-12-24', 'k', run_key => 'born');
SELECT outcome, state FROM job_idem.open_run('transitions', '2026-12-24', 'born');
UPDATE job_idem.run SET state = 'expired' WHERE run_id = :run_id;
SELECT * FROM job_idem.add_items(:run_id, '{k}');
SELECT * FROM job_idem.seal_run(:run_id);
SELECT job_idem.cancel_run(:run_id, 'x', force => true);
SELECT job_idem.is_done('transitions', '2026-12-24', 'born');
