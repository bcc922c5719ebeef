-- backoff_delay: d = min(base x factor^(attempt - 1), max), each delay within [d/2, d], the same for the same key
-- and attempt, spread over keys so that a mass failure does not return in one second (R4, C08); attempts 1 to
-- 10,000 and the largest values there are: no overflow, the cap holds (C40).
\set VERBOSITY sqlstate
-- attempts 1 to 10,000 with the defaults
CREATE TEMP VIEW delays AS
SELECT n, least(interval '30 s' * 2 ^ least(n - 1, 10), interval '4 minutes') AS d,
	job_idem.backoff_delay(n, key => 'm' || n) AS delay
FROM generate_series(1, 10000) n;
SELECT count(*), count(*) FILTER (WHERE delay BETWEEN d / 2 AND d) AS in_range, max(delay) <= '4 minutes' AS capped,
	min(delay) >= '15 seconds' AS not_less
FROM delays;
SELECT n, d, min(delay) >= d / 2 AND max(delay) <= d AS in_range, count(DISTINCT delay) > 990 AS spread
FROM generate_series(1, 6) n, LATERAL (SELECT least(interval '30 s' * 2 ^ (n - 1), interval '4 minutes') AS d) d,
	LATERAL (SELECT job_idem.backoff_delay(n, key => 'k' || k) AS delay FROM generate_series(1, 1000) k) k
GROUP BY n, d ORDER BY n;

-- the same key and attempt give the same delay; other keys and attempts another
SELECT count(DISTINCT job_idem.backoff_delay(3, key => 'same')) FROM generate_series(1, 100);
SELECT job_idem.backoff_delay(20, key => 'a') <> job_idem.backoff_delay(20, key => 'b') AS by_key,
	job_idem.backoff_delay(20, key => 'a') <> job_idem.backoff_delay(21, key => 'a') AS by_attempt;

-- 10,000 items that fail together five times, base 10 s, cap 1 h: no second gets a spike, the spread grows with the
-- delay
WITH fails AS (
	SELECT n, job_idem.backoff_delay(n, '10 s', 2, '1 hour', 'item ' || k) AS delay
	FROM generate_series(1, 5) n, generate_series(1, 10000) k
), seconds AS (
	SELECT n, floor(extract(epoch FROM delay)) AS second, count(*) AS c FROM fails GROUP BY 1, 2
), widths AS (
	SELECT n, extract(epoch FROM max(delay) - min(delay)) AS width, count(*) AS c FROM fails GROUP BY n
)
SELECT n, round(width) AS width, max(s.c) < 2 * w.c / width AS even,
	(SELECT bool_and(delay BETWEEN interval '5 s' * 2 ^ (w.n - 1) AND interval '10 s' * 2 ^ (w.n - 1))
		FROM fails f WHERE f.n = w.n) AS in_range
FROM widths w JOIN seconds s USING (n) GROUP BY n, width, w.c ORDER BY n;

-- the largest base, factor and cap, the largest attempt: within [d/2, d], and never negative
SELECT count(*) FILTER (WHERE delay BETWEEN d / 2 AND d) AS in_range, count(*)
FROM unnest('{1,2,3,15,16,17,31,32,63,64,65,255,256,1023,1024,1025,9999,10000,32767,2147483647}'::int[]) n,
	unnest('{1,1.0000001,2,10,1e10,1e300,1.7976931348623157e308}'::float8[]) factor,
	unnest('{0,00:00:00.000001,1 second,24 days,100000 days,2562047788:00:54.775807}'::interval[]) base,
	unnest('{0,00:00:00.000001,4 minutes,100000 days,2562047788:00:54.775807}'::interval[]) cap,
	LATERAL (SELECT least(CASE WHEN base = '0' THEN interval '0'
		WHEN (n - 1) * log(factor::numeric) + log(greatest(extract(epoch FROM base), 1e-6)) > 12.9 THEN cap
		ELSE base * factor ^ (n - 1) END, cap) AS d) d,
	LATERAL (SELECT job_idem.backoff_delay(n, base, factor, cap, 'k') AS delay) delay;
SELECT job_idem.backoff_delay(2147483647, '178000000 years', 1e308, '178000000 years') > '1000000 days' AS far_off;
-- no wait at all, if asked for
SELECT job_idem.backoff_delay(1, '0'), job_idem.backoff_delay(10000, '0', 1e308), job_idem.backoff_delay(5, '1 s', 2, '0');
-- a factor of 1 never grows
SELECT max(job_idem.backoff_delay(n, '10 s', 1)) <= '10 s' AS flat FROM generate_series(1, 1000) n;

-- refused
SELECT job_idem.backoff_delay(0);
SELECT job_idem.backoff_delay(-1);
SELECT job_idem.backoff_delay(1, '-1 s');
SELECT job_idem.backoff_delay(1, max => '-1 s');
SELECT job_idem.backoff_delay(1, factor => 0.99);
SELECT job_idem.backoff_delay(1, factor => 'NaN');
SELECT job_idem.backoff_delay(1, factor => 'Infinity');
SELECT job_idem.backoff_delay(NULL);
SELECT job_idem.backoff_delay(1, key => NULL);

-- what mark_failed stores is this delay, by the item's key and the try
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('backoff_delay', kind => 'keyed', max_attempts => 32767, backoff_base => '10 s',
	backoff_factor => 3, backoff_max => '100000 days');
CREATE TEMP TABLE waits (n int, same boolean);
DO $$
DECLARE
	c record;
	f record;
BEGIN
	FOR i IN 1..40 LOOP
		SELECT * INTO c FROM job_idem.claim_item('backoff_delay', '2026-11-30', 'm1');
		EXIT WHEN c.outcome <> 'claimed';
		SELECT * INTO f FROM job_idem.mark_failed(c.token, 'm1', transient => true);
		INSERT INTO waits VALUES (i, f.retry_at - job_idem.now() = job_idem.backoff_delay(i, '10 s', 3, '100000 days', 'm1'));
		PERFORM set_config('job_idem.clock_freeze', (f.retry_at)::text, false);
	END LOOP;
END
$$;
SELECT count(*), count(*) FILTER (WHERE same) AS same FROM waits;
