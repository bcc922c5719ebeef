-- An item that kills its worker ends dead alone and takes no neighbour along (R10): a loss counts as a try only for
-- a claim of that one item; items lost once are claimed again at most a sixteenth of a batch together, items lost
-- twice alone, however small max_attempts is. Losses alone count, without any report (C33); a done run is not run
-- again (C31).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
CREATE PROCEDURE pg_temp.later(span interval) LANGUAGE sql AS $$
	SELECT set_config('job_idem.clock_offset',
		(current_setting('job_idem.clock_offset')::float8 + extract(epoch FROM span))::text, false)
$$;
-- claims and works until nothing is due: whoever has the poisonous item dies, the others complete what they have
CREATE TEMP TABLE claims (job text, size int, poisoned boolean);
CREATE PROCEDURE pg_temp.work(name text, poison text) LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	LOOP
		SELECT token, count(*) AS n, bool_or(item_key = poison) AS poisoned INTO c
		FROM job_idem.claim_items(name) GROUP BY token;
		EXIT WHEN c.token IS NULL;
		INSERT INTO claims (job, size, poisoned) VALUES (name, c.n, c.poisoned);
		IF NOT c.poisoned THEN
			PERFORM job_idem.mark_all_done(c.token, c.n);
		END IF;
		COMMIT;
	END LOOP;
END
$$;
CREATE PROCEDURE pg_temp.run(name text, n int, size int, tries int) LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	PERFORM job_idem.define_job(name, batch_size => size, max_attempts => tries);
	SELECT run_id INTO id FROM job_idem.open_run(name, '2026-11-30');
	PERFORM job_idem.add_items(id, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, n) i));
	PERFORM job_idem.seal_run(id);
	COMMIT;
END
$$;
CREATE TEMP VIEW ends AS
SELECT r.job, r.state, r.n_done, r.n_dead, d.item_key, d.kind, d.attempts, d.reason,
	(SELECT count(*) FROM job_idem.failure f WHERE f.run_id = r.run_id AND f.item_key = d.item_key) AS losses,
	(SELECT max(i.lost) FROM job_idem.items i WHERE i.run_id = r.run_id AND i.state = 'done') AS most_lost_neighbour
FROM job_idem.runs r LEFT JOIN job_idem.dead_letters d USING (run_id) WHERE r.job LIKE 'poison%' ORDER BY r.job;

-- 500 in one slice; the first pass loses all, the claims after that are smaller each time
CALL pg_temp.run('poison 500', 500, 500, 4);
CALL pg_temp.work('poison 500', 'm250');
CALL pg_temp.later('10 minutes');
CALL job_idem.tick();
CALL pg_temp.later('10 minutes');
CALL pg_temp.work('poison 500', 'm250');
CALL job_idem.tick();
CALL pg_temp.later('10 minutes');
CALL job_idem.tick();
CALL pg_temp.later('10 minutes');
CALL pg_temp.work('poison 500', 'm250');
SELECT poisoned, size, count(*) FROM claims GROUP BY poisoned, size ORDER BY size DESC, poisoned;
SELECT lost, attempts, state, count(*) FROM job_idem.items WHERE job = 'poison 500' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
-- and so on, alone, until its tries are used up
CREATE PROCEDURE pg_temp.rounds(name text, poison text, n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		CALL pg_temp.later('10 minutes');
		COMMIT;
		CALL pg_temp.work(name, poison);
		-- the idle claim at the end of the work expires what is overdue, without any tick
		COMMIT;
		PERFORM count(*) FROM job_idem.claim_items(name);
		COMMIT;
	END LOOP;
END
$$;
CALL pg_temp.rounds('poison 500', 'm250', 12);
SELECT poisoned, size, count(*) FROM claims WHERE poisoned GROUP BY poisoned, size ORDER BY size DESC, poisoned;

-- batches so small that a sixteenth is one; as few tries as may be
TRUNCATE claims;
CALL pg_temp.run('poison small', 30, 10, 2);
CALL pg_temp.rounds('poison small', 'm15', 14);
SELECT poisoned, size, count(*) FROM claims GROUP BY poisoned, size ORDER BY size DESC, poisoned;
TRUNCATE claims;
CALL pg_temp.run('poison 32', 64, 32, 2);
CALL pg_temp.rounds('poison 32', 'm32', 14);
SELECT poisoned, size, count(*) FROM claims GROUP BY poisoned, size ORDER BY size DESC, poisoned;
-- a batch of one, one try: at most once (F25)
TRUNCATE claims;
CALL pg_temp.run('poison once', 3, 1, 1);
CALL pg_temp.rounds('poison once', 'm2', 4);
SELECT poisoned, size, count(*) FROM claims GROUP BY poisoned, size ORDER BY size DESC, poisoned;
CALL job_idem.tick();
TABLE ends;

-- a claim that was not overdue, or was completed, loses nothing; nor does a done run
SELECT sum(lost) FROM job_idem.items WHERE job = 'poison once' AND item_key <> 'm2';
CALL pg_temp.later('1 year');
CALL job_idem.tick();
SELECT name, (SELECT count(*) FROM job_idem.claim_items(name)) AS given
FROM unnest('{poison 500,poison small,poison once}'::text[]) name;
SELECT count(*) FROM job_idem.leases WHERE job LIKE 'poison%' AND outcome = 'open';

-- saturated: a loss at the end of the type is one more loss without an error
SELECT outcome FROM job_idem.define_job('poison saturated', kind => 'keyed', max_attempts => 32767);
SELECT token FROM job_idem.claim_item('poison saturated', '2027-11-30', 'k') \gset
UPDATE job_idem.item SET lost = 32767, attempts = 32765 WHERE token = :token;
CALL pg_temp.later('1 hour');
CALL job_idem.tick();
SELECT state, attempts, lost FROM job_idem.items WHERE job = 'poison saturated';
CALL pg_temp.later('1 hour');
SELECT outcome, attempt FROM job_idem.claim_item('poison saturated', '2027-11-30', 'k');
CALL pg_temp.later('1 hour');
CALL job_idem.tick();
SELECT state, attempts, lost FROM job_idem.items WHERE job = 'poison saturated';
SELECT r.job, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'poison%';
