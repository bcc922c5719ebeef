-- Reading schedules: what is the same written in two ways, what is refused and where, Sunday as 0 and 7, names; random
-- text (S1, S2, C35, C36).
SET statement_timeout = '60s';
-- with a zone the sentence also tells elapsed from planned time
CREATE FUNCTION pg_temp.says(schedule text) RETURNS text LANGUAGE sql AS
$$SELECT job_idem.cron_explain(schedule, 'America/New_York')$$;

CREATE TEMP TABLE same (a text, b text);
INSERT INTO same VALUES
	-- five fields, and six with second 0
	('30 2 * * *', '0 30 2 * * *'), ('30 2 * * *', '0 30 2 ? * *'), ('30 2 * * *', '0 30 2 * * ?'), ('30 2 * * *',
	'30 2 ? * ?'),
	-- blanks, zeros, order, repeated values
	('30 2 * * *', E' \t30\n2\r* * \f\x0b* '), ('5 2 * * *', '05 002 * * *'), ('0 9,17 * * *', '0 17,9,17 * * *'),
	('0 0 5 1 *', '0000000000000000000000000000000000 0 5 1 *'),
	-- names of schedules
	('@yearly', '0 0 1 1 *'), ('@annually', '0 0 1 1 *'), ('@monthly', '0 0 1 * *'), ('@weekly', '0 0 * * 0'),
	('@daily', '0 0 * * *'), ('@midnight', '0 0 * * *'), ('@hourly', '0 * * * *'), (' @Daily ', '@DAILY'),
	-- Sunday is 0, 7 and SUN, with seconds as without
	('0 5 * * 0', '0 5 * * 7'), ('0 5 * * 0', '0 5 * * sun'), ('0 0 5 * * 0', '0 0 5 * * 7'), ('0 0 5 ? * 1', '0 5 * * MON'),
	('0 5 * * 0,6', '0 5 * * 6-7'), ('0 5 * * 5-7', '0 5 * * FRI-SUN'), ('0 5 * * 5-7', '0 5 * * 5-0'),
	('0 5 * * 0-2', '0 5 * * 7-2'), ('0 5 * * 7-7', '0 5 * * 0'), ('0 5 * * 0-7', '0 5 * * 0-6'),
	('0 5 * * 1-7/2', '0 5 * * 0,1,3,5'), ('0 5 * * 0L', '0 5 * * SunL'), ('0 5 * * 7#2', '0 5 * * 0#2'),
	-- names of months and days, in any case
	('0 5 1 1-3,12 *', '0 5 1 JAN-mar,Dec *'), ('0 5 * * 1-5', '0 5 * * mon-FRI'), ('0 5 * * 5', '0 5 * * FRI'),
	('0 5 * * 5L', '0 5 * * fril'), ('0 5 * * 5#3', '0 5 * * Fri#3'), ('0 5 1 */3 *', '0 5 1 JAN,APR,JUL,OCT *'),
	('0 5 1 APR/4 *', '0 5 1 4,8,12 *'), ('0 5 * * MON/2', '0 5 * * 1,3,5'), ('0 5 * * 2/2', '0 5 * * 2,4,6'),
	('0 5 l-3,Lw,15w * *', '0 5 15W,LW,L-3 * *'),
	-- steps
	('*/20 5 * * *', '0,20,40 5 * * *'), ('10-30/5 5 * * *', '10,15,20,25,30 5 * * *'), ('7/10 5 * * *', '7-59/10 5 * * *'),
	('5-7,*/30 5 * * *', '0,5,6,7,30 5 * * *'), ('50/20 5 * * *', '50 5 * * *'), ('10-20/30 5 * * *', '10 5 * * *'),
	('0 5/6 * * *', '0 5,11,17,23 * * *'), ('0 0 */10 * *', '0 0 1,11,21,31 * *'), ('*/59 5 * * *', '0,59 5 * * *'),
	-- over the end of the year and of the week
	('0 5 * NOV-FEB *', '0 5 * 11,12,1,2 *'), ('0 5 * 11-3/2 *', '0 5 * 1,3,11 *'), ('0 5 * * FRI-MON', '0 5 * * 5,6,0,1'),
	('0 5 * * 6-5', '0 5 * * 0-6'), ('0 5 * * 5-2/2', '0 5 * * 5,0,2'),
	-- step 1 restricts no more than a star
	('*/1 */1 */1 */1 5', '* * * * 5'), ('0 0 13 * */1', '0 0 13 * *');
SELECT count(*) FROM same;
SELECT a, b, pg_temp.says(a), pg_temp.says(b) FROM same WHERE pg_temp.says(a) <> pg_temp.says(b);

-- what looks alike and is not
SELECT a, b FROM (VALUES
	-- a list of all hours is planned, a star follows elapsed time
	('0 * * * *', '0 0-23 * * *'), ('0 */2 * * *', '0 0/2 * * *'), ('0 */2 * * *', '0 */2,3 * * *'), ('0 */1 * * *',
	'0 0/1 * * *'),
	-- a day field that restricts
	('0 0 13 * ?', '0 0 13 * 0-6'), ('0 0 */2 * *', '0 0 */2 * 1'), ('0 0 1-31 * 1', '0 0 * * 1'),
	('0 0 1W * *', '0 0 1 * *'), ('0 0 L * *', '0 0 31 * *'), ('0 0 LW * *', '0 0 L * *')
) v (a, b) WHERE pg_temp.says(a) = pg_temp.says(b);

-- refused: code, field, position, wording
CREATE FUNCTION pg_temp.refusal(schedule text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	why text;
BEGIN
	PERFORM job_idem.cron_next(schedule, '2026-11-30');
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS why := PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ' ' || why;
END
$$;
SELECT schedule, pg_temp.refusal(schedule) FROM unnest(ARRAY[
	-- not a schedule
	'', '   ', '*', '* * * *', '0 0 0 1 1 ? 2026', '@reboot', '@every 5m', '@daily 5', 'every day', 'é',
	-- out of range
	'61 * * * *', '* 24 * * *', '* * 0 * *', '* * 32 * *', '* * * 0 *', '* * * 13 *', '* * * * 8', '60 * * * * *',
	'0 60 * * * *',
	'-1 * * * *', '99999999999999999999999999 * * * *', '5-61 * * * *', '0,30,60 * * * *', '* * L-0 * *', '* * L-31 * *',
	'* * * * 5#0', '* * * * 5#6', '0 0 32W * *', '0 0 0W * *',
	-- steps
	'*/0 * * * *', '*/60 * * * *', '* */24 * * *', '* * */31 * *', '* * * */12 *', '* * * * */7', '*/ * * * *',
	'5/x * * * *', '*/5/5 * * * *', '*/-5 * * * *', '/5 * * * *',
	-- ranges over the end, which would be of this day or the next
	'0 22-2 * * *', '50-10 * * * *', '30-10/5 5 * * * *', '0 0 28-3 * *', '0 5,22-2/2 * * *',
	-- names
	'* * * FOO *', '* * * january *', '* * * * monday', 'JAN * * * *', '* * MON * *', '* * * MON *', '* * * * JAN',
	'* * * * FRILL', '* * * * FR',
	-- L, W, #, ?
	'L * * * *', '* * * L *', '0 0 0 ? * L', '* * 5L * *', '* * W * *', '* * WL * *', '* * LL * *', '* * 1-15W * *',
	'* * 15W-20 * *',
	'* * 15W/2 * *', '* * * * 5W', '* * 5#3 * *', '* * * * 1-5#2', '* * * * 1-5L', '* * * * #2', '* * * * 5#', '* * L- * *',
	'? * * * *', '* ? * * *', '* * * ? *', '* * ?,1 * *', '* * 1,? * *', '* * ?/2 * *', '* * * * ??',
	-- lists and characters
	'1,,2 * * * *', ',1 * * * *', '1, * * * *', '* * * * 1,', '1;2 * * * *', '*,5 * * * *', '5,* * * * *', '** * * * *',
	'1.5 * * * *', '1- * * * *', '1-2-3 * * * *',
	'+5 * * * *', '5é * * * *', '* * * * é', E'\u00a05 * * * * *', '1~5 * * * *', 'H * * * *', E'5\\ * * * *',
	-- no such day, ever
	'0 0 30 2 *', '0 0 0 30 2 ?', '0 0 31 2,4,6,9,11 *', '0 0 L-30 4 *', '0 0 L-29 2 *', '0 0 30W,31 2 *', '0 0 31W 4 *',
	'0 0 L-29W,L-30 FEB ?'
]) WITH ORDINALITY u (schedule, n) ORDER BY n;
-- but these have one
SELECT schedule, pg_temp.refusal(schedule) FROM unnest(ARRAY['0 0 29 2 *', '0 0 29W 2 *', '0 0 L-28 2 *', '0 0 30,29 2 *',
	'0 0 30 2,3 *', '0 0 30 2 1', '0 0 ? 2 1#5', '0 0 31 1 *', '0 0 L-30 5 *']) AS schedule;

\set VERBOSITY sqlstate
-- zones: those of the zone database only, no inventions, none with leap seconds; null and infinite arguments
SELECT job_idem.cron_next('@daily', '2026-11-30', 'Mars/Olympus');
SELECT job_idem.cron_next('@daily', '2026-11-30', 'Europe/Pari5');
SELECT job_idem.cron_next('@daily', '2026-11-30', 'UTC+3');
SELECT job_idem.cron_next('@daily', '2026-11-30', '<x>3');
SELECT job_idem.cron_next('@daily', '2026-11-30', ':UTC');
SELECT job_idem.cron_next('@daily', '2026-11-30', '');
SELECT job_idem.cron_next('@daily', '2026-11-30', '+02:00');
SELECT job_idem.cron_next('@daily', '2026-11-30', repeat('x', 10000));
SELECT job_idem.cron_next('@daily', '2026-11-30', 'right/UTC');
SELECT job_idem.cron_explain('@daily', 'Mars/Olympus');
SELECT job_idem.cron_next(NULL);
SELECT job_idem.cron_next('@daily', NULL);
SELECT job_idem.cron_next('@daily', timezone => NULL);
SELECT job_idem.cron_next('@daily', 'infinity');
SELECT job_idem.cron_previous(NULL);
SELECT job_idem.cron_previous('@daily', '-infinity');
SELECT job_idem.cron_fires('@daily', NULL, '2026-11-30');
SELECT job_idem.cron_fires('@daily', '2026-11-30', NULL);
SELECT job_idem.cron_fires('@daily', '2026-11-30', 'infinity');
SELECT job_idem.cron_fires('@daily', '-infinity', '2026-11-30');
SELECT job_idem.cron_fires('61 * * * *', '2026-11-30', '2026-11-30');
SELECT job_idem.cron_explain(NULL);
SELECT job_idem.cron_explain('61 * * * *');
\set VERBOSITY default
-- in any case, also fixed offsets of the zone database; the answers differ
SELECT name, job_idem.cron_next('30 2 * * *', '2026-11-30', name) AT TIME ZONE 'UTC' AS next
FROM unnest('{EUROPE/PARIS,europe/paris,gmt,Etc/GMT-3,Etc/GMT+5,Asia/Kathmandu,UTC}'::text[]) AS name;
-- the default is the clock of all of job_idem
SET job_idem.clock_freeze = '2026-11-30 12:00:30+00';
SELECT job_idem.cron_next('@hourly') = '2026-11-30 13:00+00' AS next,
	job_idem.cron_previous('* * * * *') = '2026-11-30 12:00+00' AS previous;

-- a long text ends the same way
SELECT pg_temp.refusal(repeat('1,', 200000) || '1 * * * *'), pg_temp.refusal(repeat('1,', 200000) || 'x * * * *'),
	pg_temp.refusal(repeat('*', 1000000)), pg_temp.refusal(repeat('* ', 500000));

-- random text: it is read or refused, and then at a position inside it
SELECT setseed(0.1);
CREATE FUNCTION pg_temp.noise(n int, words text[]) RETURNS text LANGUAGE sql VOLATILE AS
$$SELECT coalesce(string_agg(words[1 + floor(random() * cardinality(words))], ''), '') FROM generate_series(1, n)$$;
CREATE TEMP TABLE noise AS
SELECT n, pg_temp.noise(n % 23,
	'{0,1,5,31,59,*,*,/,",",-,?,L,W,LW,#," "," "," "," ",@,JAN,fri,é,.,"	",*/5,7,100}') AS schedule
FROM generate_series(0, 999) n;
INSERT INTO noise
SELECT 1000 + n, (SELECT string_agg(pg_temp.noise(1 + floor(random() * random() * 2.5)::int,
	'{0,1,5,31,59,*,*,/2,",3",-,?,L,15W,2#1,JAN,fri,*/5,7,2,"1,2",1-5}'), ' ')
	FROM generate_series(0, 4 + n % 2)) FROM generate_series(0, 999) n;
-- and schedules with one character lost, doubled or replaced
INSERT INTO noise
SELECT 2000 + n, CASE n % 3 WHEN 0 THEN overlay(s PLACING '' FROM at FOR 1)
	WHEN 1 THEN overlay(s PLACING substr(s, at, 1) FROM at FOR 0)
	ELSE overlay(s PLACING substr('0159*/,-?LW# @aé', 1 + floor(random() * 16)::int, 1) FROM at FOR 1) END
FROM generate_series(0, 1999) n,
	LATERAL (SELECT (ARRAY['0 0 0 L-3,15W,LW JAN-MAR ?', '*/5 9-17 1,15 * MON-FRI', '10-30/5 8-22 ? NOV-2 fri#3,0L,7',
		'@daily', '7/10 * 29 2 *'])[1 + n % 5] AS s) s,
	LATERAL (SELECT 1 + floor(random() * length(s))::int AS at) at;
CREATE TEMP TABLE outcome AS
SELECT n, schedule, pg_temp.refusal(schedule) AS said FROM noise;
SELECT count(*), count(*) FILTER (WHERE said = 'accepted') > 300 AS some_are_accepted,
	count(*) FILTER (WHERE said = 'accepted' AND n < 2000) > 10 AS also_of_the_first,
	count(*) FILTER (WHERE said <> 'accepted') > 2000 AS many_are_refused,
	count(DISTINCT regexp_replace(said, '\d+', '', 'g')) > 50 AS for_many_reasons
FROM outcome;
SELECT * FROM outcome WHERE said <> 'accepted'
	AND (said !~ '^22023 ((second|minute|hour|day of month|month|day of week): .*|5 or 6 .*|more .*|none .*) \(position \d+\)\.$'
		OR substring(said FROM 'position (\d+)')::int NOT BETWEEN 1 AND greatest(length(schedule), 1));
-- the position is in the field that is named
SELECT *
FROM outcome,
	LATERAL (SELECT substring(said FROM '^22023 ([^:]+):') AS field, substring(said FROM 'position (\d+)')::int AS at) p,
	LATERAL (SELECT cardinality(regexp_split_to_array(trim(schedule, E' \t'), '[ \t]+')) AS n_fields,
		cardinality(regexp_split_to_array(ltrim(substr(schedule, 1, at), E' \t'), '[ \t]+')) AS is_in) i
WHERE said <> 'accepted'
	AND is_in <> array_position('{second,minute,hour,day of month,month,day of week}', field) - 6 + n_fields;
-- what is accepted can be explained, and fires
SELECT count(*) FROM outcome WHERE said = 'accepted' AND num_nulls(pg_temp.says(schedule),
	job_idem.cron_next(schedule, '2026-11-30', 'America/New_York'),
	job_idem.cron_previous(schedule, '2026-11-30', 'America/New_York')) > 0;

-- refusing takes no time: 2 ms each would be too much
SET statement_timeout = '2s';
SELECT count(DISTINCT pg_temp.refusal(schedule)) FROM generate_series(1, 250),
	unnest(ARRAY['0 0 30 2 *', '61 * * * *', '', '0 0 L-29W,L-30 FEB ?']) AS schedule;

-- A job is not defined with one, and not changed.
SET statement_timeout = 0;
SELECT outcome FROM job_idem.define_job('cron_parse', schedule => '30 2 * * *', timezone => 'Europe/Berlin');
CREATE FUNCTION pg_temp.refusal_of_job(job text, schedule text, zone text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	why text;
BEGIN
	PERFORM job_idem.define_job(job, schedule => refusal_of_job.schedule, timezone => zone);
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS why := PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ' ' || why;
END
$$;
SELECT schedule, zone, pg_temp.refusal_of_job('cron_parse', schedule, zone)
FROM (VALUES ('0 2 30 2 *', 'UTC'), ('61 2 * * *', 'UTC'), ('', 'UTC'), ('0 2 * * *', 'Mars/Olympus'),
	('0 25 * * *', 'UTC+3')) v (schedule, zone);
-- within 10 ms each
SET statement_timeout = '2s';
SELECT count(pg_temp.refusal_of_job('cron_parse new', schedule, 'UTC')) FROM generate_series(1, 100),
	unnest('{0 2 30 2 *,61 2 * * *}'::text[]) AS schedule;
SELECT job, schedule, timezone, version FROM job_idem.jobs WHERE job LIKE 'cron_parse%';
SELECT job_idem.drop_job('cron_parse');
