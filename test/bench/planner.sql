-- prints 100 ms over the time of a tick that finds nothing due in 1,000 jobs (the median of five), and how many runs a
-- second, in thousands by two, a tick plans that finds 10,000 due
\o /dev/null
UPDATE job_idem.run SET state = 'cancelled', finished_at = now(), purged_at = now() WHERE finished_at IS NULL;
SET job_idem.clock_freeze = '2030-01-01 00:00:30+00';
SELECT count(job_idem.define_job('planned ' || i, schedule => '0 * * * *', run_per => 'fire', misfire => 'catch_up'))
FROM generate_series(1, 1000) AS i;
CREATE TEMP TABLE took (what text, ms double precision);
CREATE PROCEDURE pg_temp.tick(what text) LANGUAGE plpgsql AS $$
DECLARE
	start timestamptz := clock_timestamp();
BEGIN
	CALL job_idem.tick();
	INSERT INTO took VALUES (what, extract(epoch FROM clock_timestamp() - start) * 1000);
END
$$;
CALL pg_temp.tick('first');
CALL pg_temp.tick('idle');
CALL pg_temp.tick('idle');
CALL pg_temp.tick('idle');
CALL pg_temp.tick('idle');
CALL pg_temp.tick('idle');
SET job_idem.clock_freeze = '2030-01-01 10:00:30+00';
CALL pg_temp.tick('plan');
\o
SELECT 100 / percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FROM took WHERE what = 'idle';
SELECT (SELECT count(*) FROM job_idem.runs WHERE job LIKE 'planned %') / (SELECT ms FROM took WHERE what = 'plan') * 1000 / 2000;
