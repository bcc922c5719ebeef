-- tick: refused inside a transaction block and outside READ COMMITTED, since it commits by itself; expires what is
-- overdue, seals keyed runs past close_after, finishes what is over, in one pass; a second pass changes nothing.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 00:30:00+00';
BEGIN;
CALL job_idem.tick();
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL job_idem.tick();
ROLLBACK;
SET default_transaction_isolation = 'repeatable read';
CALL job_idem.tick();
SET default_transaction_isolation = 'serializable';
CALL job_idem.tick();
RESET default_transaction_isolation;
DO 'BEGIN CALL job_idem.tick(); END';
CREATE FUNCTION pg_temp.inside() RETURNS void LANGUAGE plpgsql AS 'BEGIN CALL job_idem.tick(); END';
SELECT pg_temp.inside();
CREATE PROCEDURE pg_temp.nested() LANGUAGE plpgsql AS 'BEGIN CALL job_idem.tick(); COMMIT; CALL job_idem.tick(); END';
CALL pg_temp.nested();
BEGIN READ ONLY;
CALL job_idem.tick();
ROLLBACK;
CALL job_idem.tick();

-- a batch run to be expired, a batch run that is over, a keyed run past its close, one before it, one loading, one
-- empty
SELECT outcome FROM job_idem.define_job('tick', batch_size => 2);
SELECT outcome FROM job_idem.define_job('tick keyed', kind => 'keyed', close_after => '1 day');
CREATE FUNCTION pg_temp.open(key text, keys text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	SELECT run_id INTO id FROM job_idem.open_run('tick', '2026-11-30', key);
	PERFORM job_idem.add_items(id, keys);
	PERFORM job_idem.seal_run(id);
	RETURN id;
END
$$;
SELECT pg_temp.open('lost', '{a,b,c,d,e,f}') IS NOT NULL AS lost, pg_temp.open('over', '{a}') IS NOT NULL AS over,
	pg_temp.open('dead', '{a}') IS NOT NULL AS dead, pg_temp.open('empty', '{}') IS NOT NULL AS empty,
	pg_temp.open('busy', '{a}') IS NOT NULL AS busy;
SELECT state FROM job_idem.open_run('tick', '2026-11-30', 'loading');
SELECT min(token) AS first FROM job_idem.claim_items('tick', run_key => 'lost') \gset
SELECT min(token) AS second FROM job_idem.claim_items('tick', run_key => 'lost', lease => '2 days') \gset
SELECT min(token) AS third FROM job_idem.claim_items('tick', run_key => 'lost') \gset
SELECT job_idem.mark_done(:third, 'f');
SELECT job_idem.mark_all_done(min(token), 1) FROM job_idem.claim_items('tick', run_key => 'over');
SELECT f.state
FROM job_idem.claim_items('tick', run_key => 'dead') c,
	LATERAL job_idem.mark_failed(c.token, 'a', transient => false) f;
SELECT count(*) FROM job_idem.claim_items('tick', run_key => 'busy', lease => '20 hours');
SELECT job_idem.mark_done(token, 'k') FROM job_idem.claim_item('tick keyed', '2026-11-30', 'k');
SET job_idem.clock_freeze = '2026-11-29 23:59:00+00';
SELECT outcome FROM job_idem.claim_item('tick keyed', '2026-11-29', 'k', lease => '1 hour');
SELECT job_idem.mark_done(token, 'k') FROM job_idem.claim_item('tick keyed', '2026-11-29', 'k', run_key => 'over');
SET job_idem.clock_freeze = '2026-11-30 00:30:00+00';
CREATE TEMP VIEW state AS
SELECT r.job, r.run_key, r.state, r.sealed_at IS NOT NULL AS sealed, r.n_done, r.n_dead,
	(SELECT string_agg(state || ' ' || c, ', ' ORDER BY state)
		FROM (SELECT state, count(*) AS c FROM job_idem.items i WHERE i.run_id = r.run_id GROUP BY state) i) AS items,
	(SELECT string_agg(outcome || ' ' || c, ', ' ORDER BY outcome)
		FROM (SELECT outcome, count(*) AS c FROM job_idem.leases l WHERE l.run_id = r.run_id GROUP BY outcome) i) AS leases
FROM job_idem.runs r WHERE r.job LIKE 'tick%' ORDER BY r.job COLLATE "C", r.run_key COLLATE "C";
TABLE state;
CALL job_idem.tick();
TABLE state;
-- later: to the microsecond of the deadline, and of the close
SET job_idem.clock_freeze = '2026-11-30 00:34:59.999999+00';
CALL job_idem.tick();
SELECT outcome, count(*) FROM job_idem.leases WHERE run_key = 'lost' AND job = 'tick' GROUP BY outcome;
SET job_idem.clock_freeze = '2026-11-30 00:35:00+00';
CALL job_idem.tick();
TABLE state;
CREATE TEMP VIEW content AS
SELECT md5(string_agg(r::text || t::text || coalesce(i::text, '') || coalesce(l::text, '') || coalesce(e::text, ''), ','
	ORDER BY r.run_id, i.item_no, l.token, e.event_id)) AS hash
FROM job_idem.run r JOIN job_idem.job j USING (job_id) JOIN job_idem.tally t USING (run_id)
	LEFT JOIN job_idem.item i USING (run_id) LEFT JOIN job_idem.lease l USING (run_id)
	LEFT JOIN job_idem.event e USING (run_id)
WHERE j.name LIKE 'tick%';
CREATE TEMP TABLE before AS TABLE content;
CALL job_idem.tick();
CALL job_idem.tick();
TABLE before EXCEPT TABLE content;
SELECT verb, count(*) FROM job_idem.event e JOIN job_idem.runs r USING (run_id)
WHERE r.job LIKE 'tick%' GROUP BY verb ORDER BY verb;
SET job_idem.clock_freeze = '2026-12-01 00:00:00+00';
CALL job_idem.tick();
SELECT sealed FROM state WHERE job = 'tick keyed' AND run_key = '2026-11-30';
SET job_idem.clock_freeze = '2026-12-01 00:00:00.000001+00';
CALL job_idem.tick();
SELECT state, sealed, n_done FROM state WHERE job = 'tick keyed' AND run_key = '2026-11-30';

-- a paused job's claims expire and its runs finish all the same
SELECT job_idem.pause_job('tick');
SET job_idem.clock_freeze = '2026-12-03 00:00:00+00';
CALL job_idem.tick();
SELECT outcome, count(*) FROM job_idem.leases
WHERE job = 'tick' AND run_key IN ('lost', 'busy') GROUP BY outcome ORDER BY outcome;
SELECT job_idem.resume_job('tick');

-- many overdue leases: all in one tick, although it commits after each 50
SELECT outcome FROM job_idem.define_job('tick many', batch_size => 1);
SELECT run_id FROM job_idem.open_run('tick many', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i) FROM generate_series(1, 220) i));
SELECT job_idem.seal_run(:run_id);
DO $$
BEGIN
	FOR i IN 1..220 LOOP
		PERFORM * FROM job_idem.claim_items('tick many');
	END LOOP;
END
$$;
SET job_idem.clock_freeze = '2026-12-03 01:00:00+00';
CALL job_idem.tick();
SELECT outcome, count(*) FROM job_idem.leases WHERE run_id = :run_id GROUP BY outcome;
SELECT state, attempts, lost, count(*) FROM job_idem.items WHERE run_id = :run_id GROUP BY 1, 2, 3;
SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'tick%';
