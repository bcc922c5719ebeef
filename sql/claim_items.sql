-- claim_items: urgent runs first, then the oldest date (F8, F27); never more rows than the batch, all of one run
-- and one token; tokens grow (F16); business_date and run_key narrow; the lease argument and the cut of long worker
-- names; no rows from runs or jobs that give nothing; claims that roll back.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('claim_items', batch_size => 3, lease => '10 minutes', max_lease => '1 hour');
CREATE FUNCTION pg_temp.fill(date date, n int, priority int DEFAULT 0, key text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	SELECT run_id INTO id FROM job_idem.open_run('claim_items', date, run_key => key, priority => priority);
	PERFORM job_idem.add_items(id, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, n) i),
		(SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, n) i));
	PERFORM job_idem.seal_run(id);
	RETURN id;
END
$$;
CREATE TEMP SEQUENCE nth;
CREATE TEMP TABLE given (n int, place int, token bigint, run_id bigint, business_date date, run_key text, item_key text,
	payload jsonb, attempt int, deadline timestamptz);
CREATE PROCEDURE pg_temp.claim() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('nth');
	INSERT INTO given SELECT currval('nth'), row_number() OVER (), c.* FROM job_idem.claim_items('claim_items') c;
END
$$;
CREATE TEMP VIEW claims AS
SELECT n, run_key, string_agg(item_key, ' ' ORDER BY place) AS items, count(DISTINCT token) AS tokens,
	count(DISTINCT run_id) AS runs, bool_and(attempt = 1) AS first_try,
	bool_and(to_jsonb(substr(item_key, 2)::int) = payload) AS own_payload,
	bool_and(deadline = job_idem.now() + interval '10 minutes') AS right_deadline
FROM given GROUP BY n, run_key ORDER BY n;

-- nothing there yet, and nothing of a run that is loading
CALL pg_temp.claim();
SELECT outcome FROM job_idem.open_run('claim_items', '2026-11-01');
CALL pg_temp.claim();
SELECT count(*) FROM given;

-- seven runs: claims follow priority, then the date, and the items' order in each
SELECT pg_temp.fill('2026-11-30', 4) IS NOT NULL AS today, pg_temp.fill('2026-11-28', 2) IS NOT NULL AS oldest,
	pg_temp.fill('2026-11-29', 7) IS NOT NULL AS yesterday, pg_temp.fill('2026-12-24', 4, 10) IS NOT NULL AS urgent,
	pg_temp.fill('2026-01-01', 1, -1) IS NOT NULL AS idle_time,
	pg_temp.fill('2026-11-29', 1, 2147483647, 'most') IS NOT NULL AS most,
	pg_temp.fill('2026-11-27', 1, -2147483648, 'least') IS NOT NULL AS least;
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
CALL pg_temp.claim();
TABLE claims;
-- no item twice, none left out, tokens grow
SELECT count(*), count(DISTINCT (run_id, item_key)) AS items,
	(SELECT count(*) FROM job_idem.items i WHERE i.job = 'claim_items') AS all_items, bool_and(grows) AS tokens_grow
FROM (SELECT *, token >= lag(token, 1, token) OVER (ORDER BY n) AS grows FROM given) g;

-- a repeated open_run does not change the priority; an urgent run opened later goes before what is left
SELECT pg_temp.fill('2026-12-10', 9) IS NOT NULL AS later;
SELECT outcome FROM job_idem.open_run('claim_items', '2026-12-10', priority => 99);
SELECT pg_temp.fill('2026-12-11', 3, 1) IS NOT NULL AS urgent;
SELECT DISTINCT run_key FROM job_idem.claim_items('claim_items');
SELECT DISTINCT run_key FROM job_idem.claim_items('claim_items');

-- narrowing: by date, which may have several runs, by key, by both; what does not exist gives nothing
SELECT pg_temp.fill('2026-12-20', 3, 0, 'a') IS NOT NULL AS a, pg_temp.fill('2026-12-20', 3, 5, 'b') IS NOT NULL AS b;
SELECT DISTINCT run_key FROM job_idem.claim_items('claim_items', business_date => '2026-12-20');
SELECT DISTINCT run_key
FROM job_idem.claim_items('claim_items', business_date => '2026-12-20', run_key => '2026-12-10');
SELECT DISTINCT run_key FROM job_idem.claim_items('claim_items', business_date => '2026-12-20', run_key => 'a');
SELECT DISTINCT run_key FROM job_idem.claim_items('claim_items', run_key => 'b');
SELECT DISTINCT run_key FROM job_idem.claim_items('claim_items', run_key => '2026-12-10');
SELECT count(*) FROM job_idem.claim_items('claim_items', business_date => '1999-01-01');
SELECT count(*) FROM job_idem.claim_items('claim_items', run_key => 'no such key');

-- the lease: the job's, the caller's, never past max_lease; deadlines come from the server's clock alone
SELECT DISTINCT l.deadline - job_idem.now() AS lease, l.hard_deadline - job_idem.now() AS hard,
	l.claimed_at - job_idem.now() AS claimed
FROM given g JOIN job_idem.leases l USING (token);
CREATE FUNCTION pg_temp.lease_of(span interval) RETURNS TABLE (lease interval, hard interval) LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
BEGIN
	PERFORM pg_temp.fill('2027-01-01', 1, 0, 'lease ' || coalesce(span::text, 'none'));
	SELECT token INTO t
FROM job_idem.claim_items('claim_items', run_key => 'lease ' || coalesce(span::text, 'none'), lease => span);
	RETURN QUERY SELECT l.deadline - l.claimed_at, l.hard_deadline - l.claimed_at FROM job_idem.leases l WHERE token = t;
END
$$;
SELECT * FROM pg_temp.lease_of('1 second');
SELECT * FROM pg_temp.lease_of('0.000001 seconds');
SELECT * FROM pg_temp.lease_of('2 hours');
SELECT * FROM pg_temp.lease_of('178000000 years');
SELECT * FROM pg_temp.lease_of(NULL);
SELECT * FROM pg_temp.lease_of('0');
SELECT * FROM pg_temp.lease_of('-1 minute');
SELECT * FROM pg_temp.lease_of('1 month -31 days');

-- names of workers are for people: any text, cut at 200 bytes between characters, never unique
SELECT pg_temp.fill('2027-02-01', 15, 0, 'names') IS NOT NULL AS names;
CREATE PROCEDURE pg_temp.claim_as(name text) LANGUAGE sql AS $$
	SELECT count(*) FROM job_idem.claim_items('claim_items', worker => name, run_key => 'names');
$$;
CALL pg_temp.claim_as(repeat('é', 150));
CALL pg_temp.claim_as(repeat('x', 199) || 'é');
CALL pg_temp.claim_as('');
CALL pg_temp.claim_as(NULL);
CALL pg_temp.claim_as(repeat('é', 150));
SELECT slice_no, octet_length(worker) AS bytes, right(worker, 1) AS last, backend = pg_backend_pid() AS mine
FROM job_idem.leases WHERE run_key = 'names' ORDER BY slice_no;

-- jobs and runs that give nothing
SELECT pg_temp.fill('2027-03-01', 5, 0, 'held back') AS run_id \gset
SELECT job_idem.pause_job('claim_items');
SELECT count(*) FROM job_idem.claim_items('claim_items', run_key => 'held back');
SELECT job_idem.resume_job('claim_items');
SELECT count(*) FROM job_idem.claim_items('claim_items', run_key => 'held back');
SELECT job_idem.cancel_run(:run_id, 'not wanted');
SELECT count(*) FROM job_idem.claim_items('claim_items', run_key => 'held back');
SELECT count(*) FROM job_idem.claim_items('no such job');
SELECT count(*) FROM job_idem.claim_items(NULL);
SELECT count(*) FROM job_idem.claim_items('claim_items', business_date => 'infinity');

-- in one transaction several claims; each is another slice; what rolls back is claimed again under a larger token
SELECT pg_temp.fill('2027-04-01', 8, 0, 'one transaction') IS NOT NULL AS filled;
BEGIN;
SELECT min(token) AS first, count(*) FROM job_idem.claim_items('claim_items', run_key => 'one transaction') \gset
SAVEPOINT s;
SELECT string_agg(item_key, ' ' ORDER BY item_key)
FROM job_idem.claim_items('claim_items', run_key => 'one transaction');
ROLLBACK TO s;
SELECT string_agg(item_key, ' ' ORDER BY item_key), min(token) > :first + 1 AS token_not_used_again
FROM job_idem.claim_items('claim_items', run_key => 'one transaction');
SELECT string_agg(item_key, ' ' ORDER BY item_key)
FROM job_idem.claim_items('claim_items', run_key => 'one transaction');
SELECT count(*) FROM job_idem.claim_items('claim_items', run_key => 'one transaction');
COMMIT;

-- the planner may call it more than once if it is put where it is evaluated again: each call is a claim of its own,
-- and each answer is at most a batch
SELECT pg_temp.fill('2027-05-01', 6, 0, 'nested') IS NOT NULL AS filled;
SELECT g.n, string_agg(c.item_key, ' ' ORDER BY c.item_key) AS items, count(DISTINCT c.token) AS tokens
FROM generate_series(1, 3) AS g (n), LATERAL (SELECT *
FROM job_idem.claim_items('claim_items', run_key => 'nested', worker => g.n::text)) c
GROUP BY g.n ORDER BY g.n;

-- batches of one, and of more than there is
SELECT outcome FROM job_idem.define_job('claim_items', batch_size => 1);
SELECT pg_temp.fill('2027-06-01', 2, 0, 'single') IS NOT NULL AS filled;
SELECT item_key FROM job_idem.claim_items('claim_items', run_key => 'single');
SELECT item_key FROM job_idem.claim_items('claim_items', run_key => 'single');
SELECT item_key FROM job_idem.claim_items('claim_items', run_key => 'single');
SELECT outcome FROM job_idem.define_job('claim_items', batch_size => 100000);
SELECT pg_temp.fill('2027-06-01', 1000, 0, 'large') IS NOT NULL AS filled;
SELECT count(*), count(DISTINCT token) AS tokens FROM job_idem.claim_items('claim_items', run_key => 'large');
SELECT n_items FROM job_idem.leases WHERE run_key = 'large';

-- a claim of a keyed job takes items that were given back, a batch at a time
SELECT outcome FROM job_idem.define_job('claim_items keyed', kind => 'keyed', batch_size => 2);
SELECT job_idem.add_items(run_id, '{a,b,c}') FROM job_idem.open_run('claim_items keyed', '2026-11-30');
SELECT count(*), count(DISTINCT token) AS tokens FROM job_idem.claim_items('claim_items keyed');
SELECT count(*), count(DISTINCT token) AS tokens FROM job_idem.claim_items('claim_items keyed');
SELECT count(*), count(DISTINCT token) AS tokens FROM job_idem.claim_items('claim_items keyed');

SELECT r.run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE r.job LIKE 'claim_items%';
