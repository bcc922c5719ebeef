-- mark_failed: transient failures get a limited number of tries, business ones none (R3, C39); the SQLSTATE
-- classifies, the caller's word comes first (R1); each try waits in [d/2, d] and is in `failure`; a dead letter
-- answers what a person asks (R7); attempts at the type's end saturate (C41); a repeated report changes nothing.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('mark_failed', batch_size => 3);
SELECT run_id FROM job_idem.open_run('mark_failed', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, '{a,b,c,d,e,f}', ARRAY['{"amount": 1}', NULL, NULL, NULL, NULL, NULL]::jsonb[]);
SELECT job_idem.seal_run(:run_id);

-- transient, always: four tries, then a dead letter; after each the item waits within [d/2, d], d doubled each time
SELECT min(token) AS token FROM job_idem.claim_items('mark_failed') \gset
SELECT job_idem.mark_done_many(:token, '{b,c}');
CREATE FUNCTION pg_temp.fail(claim bigint, key text, message text DEFAULT NULL, code text DEFAULT NULL,
	class text DEFAULT NULL, transient boolean DEFAULT NULL)
RETURNS TABLE (state text, wait interval) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT f.state, f.retry_at - job_idem.now()
	FROM job_idem.mark_failed(claim, key, message, code, class, transient) f;
END
$$;
CREATE TEMP TABLE tries (n int, outcome text, attempt int, state text, wait interval);
CREATE PROCEDURE pg_temp.try(n int) LANGUAGE plpgsql AS $$
DECLARE
	c record;
	f record;
BEGIN
	PERFORM set_config('job_idem.clock_offset', (n * 1000)::text, false);
	SELECT * INTO c FROM job_idem.claim_item('mark_failed', '2026-11-30', 'a');
	IF c.token IS NOT NULL THEN
		SELECT * INTO f FROM pg_temp.fail(c.token, 'a', 'try ' || n, '40001');
		INSERT INTO tries VALUES (n, c.outcome, c.attempt, f.state, f.wait);
	ELSE
		INSERT INTO tries VALUES (n, c.outcome);
	END IF;
END
$$;
SELECT state, wait BETWEEN '15 s' AND '30 s' AS in_range FROM pg_temp.fail(:token, 'a', 'try 0', '40001');
CALL pg_temp.try(1);
CALL pg_temp.try(2);
CALL pg_temp.try(3);
CALL pg_temp.try(4);
SELECT n, outcome, attempt, state, wait BETWEEN interval '30 s' * 2 ^ n / 2 AND interval '30 s' * 2 ^ n AS in_range
FROM tries ORDER BY n;
SELECT item_key, state, attempts, lost FROM job_idem.items WHERE run_id = :run_id AND item_key = 'a';
-- what a person needs: everything that was reported, and every try
SELECT job, business_date, run_key, item_key, status, reason, kind, sqlstate, error_class, attempts, message, payload,
	dead_at - job_idem.now() AS since, resolved_at, resolved_by, note
FROM job_idem.dead_letters WHERE run_id = :run_id;
SELECT attempt, kind, sqlstate, message, retry_at > failed_at AS retried
FROM job_idem.failure WHERE run_id = :run_id AND item_key = 'a' ORDER BY failure_id;
RESET job_idem.clock_offset;

-- business: dead after one, by SQLSTATE or by the caller's word, which comes first both ways
SELECT min(token) AS token FROM job_idem.claim_items('mark_failed') \gset
SELECT * FROM pg_temp.fail(:token, 'd', 'check violated', '23514', 'CheckViolation');
SELECT * FROM pg_temp.fail(:token, 'e', 'permanent', '40001', transient => false);
SELECT state, wait IS NOT NULL AS waits FROM pg_temp.fail(:token, 'f', 'try all the same', '23514', transient => true);
SELECT item_key, kind, reason, attempts, sqlstate, error_class
FROM job_idem.dead_letters WHERE run_id = :run_id ORDER BY dead_letter_id;
SELECT item_key, kind FROM job_idem.failure WHERE run_id = :run_id AND item_key = 'f';
-- a repeated report, a report of what is done, of another's, of nothing: refused, nothing counted twice
SELECT * FROM pg_temp.fail(:token, 'd');
SELECT * FROM pg_temp.fail(:token, 'f', transient => true);
SELECT * FROM pg_temp.fail(:token, 'b');
SELECT * FROM pg_temp.fail(:token, 'no such key');
SELECT * FROM pg_temp.fail(:token, NULL);
SELECT * FROM pg_temp.fail(NULL, 'd');
SELECT * FROM pg_temp.fail(0, 'd');
SELECT item_key, count(*) FROM job_idem.failure WHERE run_id = :run_id GROUP BY item_key ORDER BY item_key;
SELECT count(*) FROM job_idem.dead_letters WHERE run_id = :run_id;
SELECT item_key, attempts FROM job_idem.items WHERE run_id = :run_id ORDER BY item_no;
-- an item done under the token: JI010
SELECT min(token) AS token FROM job_idem.items WHERE run_id = :run_id AND item_key = 'b' \gset
SELECT * FROM pg_temp.fail(:token, 'b');

-- the classes of 40 SQLSTATEs, and of what is none
SELECT outcome FROM job_idem.define_job('mark_failed classes', kind => 'keyed', max_attempts => 2);
CREATE FUNCTION pg_temp.class_of(code text) RETURNS TABLE (kind text, state text) LANGUAGE plpgsql AS $$
DECLARE
	claim bigint;
BEGIN
	SELECT token INTO claim FROM job_idem.claim_item('mark_failed classes', '2026-11-30', 'x' || coalesce(code, '-'));
	SELECT m.state INTO state FROM job_idem.mark_failed(claim, 'x' || coalesce(code, '-'), sqlstate => code) m;
	SELECT f.kind INTO kind FROM job_idem.failure f WHERE f.token = claim;
	RETURN NEXT;
END
$$;
SELECT code, c.*
FROM unnest('{08000,08001,08003,08004,08006,08007,08P01,22001,22003,22012,22P02,23502,23503,23505,23514,
	23P01,25001,25006,25P02,25P03,28000,40000,40001,40003,40P01,42501,42601,42P01,53000,53100,53200,53300,55000,55006,
	55P03,57000,57014,57P01,57P02,57P03,57P05,58000,58030,P0001,P0002,XX000,JI001,00000,0A000,54000}'::text[]) code,
	LATERAL pg_temp.class_of(code) c;
SELECT code, c.* FROM unnest(ARRAY[NULL, '', ' 40001', '4', '40', '400011', 'é', '55P0', 'p0001']) code,
	LATERAL pg_temp.class_of(code) c;

-- attempts at the type's end: no overflow, dead at the next failure even if there were tries left
SELECT outcome FROM job_idem.define_job('mark_failed many', kind => 'keyed', max_attempts => 32767, backoff_base => '0',
	backoff_max => '0', batch_size => 1);
SELECT token FROM job_idem.claim_item('mark_failed many', '2026-11-30', 'end') \gset
UPDATE job_idem.item SET attempts = 32766 - 1, lost = 32767 WHERE token = :token;
SELECT * FROM pg_temp.fail(:token, 'end', transient => true);
SELECT token FROM job_idem.claim_item('mark_failed many', '2026-11-30', 'end') \gset
SELECT attempts, lost FROM job_idem.items WHERE job = 'mark_failed many' AND item_key = 'end';
SELECT * FROM pg_temp.fail(:token, 'end', transient => true);
SELECT attempts, state FROM job_idem.items WHERE job = 'mark_failed many' AND item_key = 'end';
-- even one that is past it already, as a restore might leave it
UPDATE job_idem.job SET max_attempts = 4 WHERE name = 'mark_failed many';
SELECT token FROM job_idem.claim_item('mark_failed many', '2026-11-30', 'past') \gset
UPDATE job_idem.item SET attempts = 32767, lost = 32767 WHERE token = :token;
SELECT * FROM pg_temp.fail(:token, 'past', transient => true);
SELECT attempts, state FROM job_idem.items WHERE job = 'mark_failed many' AND item_key = 'past';

-- 1,000 attempts: 1,000 rows of failure, and the item's row as wide as before
UPDATE job_idem.job SET max_attempts = 32767 WHERE name = 'mark_failed many';
SELECT token FROM job_idem.claim_item('mark_failed many', '2026-11-30', 'often') \gset
SELECT pg_column_size(i.*) AS width FROM job_idem.item i WHERE token = :token \gset
DO $$
DECLARE
	c record;
BEGIN
	SELECT token INTO c FROM job_idem.items WHERE job = 'mark_failed many' AND item_key = 'often';
	FOR i IN 1..1000 LOOP
		PERFORM job_idem.mark_failed(c.token, 'often', 'try ' || i, transient => true);
		SELECT * INTO STRICT c FROM job_idem.claim_item('mark_failed many', '2026-11-30', 'often');
		ASSERT c.attempt = i + 1;
		COMMIT;
	END LOOP;
END
$$;
SELECT count(*), count(DISTINCT attempt) AS attempts, min(attempt), max(attempt), count(DISTINCT token) AS tokens
FROM job_idem.failure f JOIN job_idem.runs r USING (run_id) WHERE r.job = 'mark_failed many' AND item_key = 'often';
SELECT i.attempts, pg_column_size(i.*) - :width AS grown FROM job_idem.item i JOIN job_idem.runs r USING (run_id)
WHERE r.job = 'mark_failed many' AND item_key = 'often';

SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'mark_failed%';
