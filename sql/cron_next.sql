-- When schedules fire, against dates worked out by hand: day of month and day of week mean either (C36), L, W and #, leap
-- days up to 2200, rare and nearly impossible dates at once (C35), the turn of the year (C62), the ends of time; and what
-- next, previous and fires owe each other (S1).
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET statement_timeout = '2s';

-- The first fires from the beginning of November 2026, a Sunday.
CREATE TEMP TABLE by_hand (schedule text, fires text);
INSERT INTO by_hand VALUES
	-- either, as in cron, and not the first Sunday
	('0 5 1-7 * 0', '2026-11-01 05:00,2026-11-02 05:00,2026-11-03 05:00,2026-11-04 05:00,2026-11-05 05:00,2026-11-06 05:00,'
		'2026-11-07 05:00,2026-11-08 05:00,2026-11-15 05:00,2026-11-22 05:00,2026-11-29 05:00,2026-12-01 05:00,'
		'2026-12-02 05:00'),
	('59 23 13 * 5',
	'2026-11-06 23:59,2026-11-13 23:59,2026-11-20 23:59,2026-11-27 23:59,2026-12-04 23:59,2026-12-11 23:59,2026-12-13 23:59'),
	('0 0 1,15,L * 1',
	'2026-11-01 00:00,2026-11-02 00:00,2026-11-09 00:00,2026-11-15 00:00,2026-11-16 00:00,2026-11-23 00:00,'
		'2026-11-30 00:00,2026-12-01 00:00'),
	-- unless one is ? or *
	('0 5 1-2 * ?', '2026-11-01 05:00,2026-11-02 05:00,2026-12-01 05:00'),
	('0 5 ? * 0', '2026-11-01 05:00,2026-11-08 05:00,2026-11-15 05:00'),
	('0 5 * * 0', '2026-11-01 05:00,2026-11-08 05:00,2026-11-15 05:00'),
	('0 5 */1 * 7', '2026-11-01 05:00,2026-11-08 05:00,2026-11-15 05:00'),
	('0 5 */10 * 6',
	'2026-11-01 05:00,2026-11-07 05:00,2026-11-11 05:00,2026-11-14 05:00,2026-11-21 05:00,2026-11-28 05:00,2026-12-01 05:00'),
	-- the first Sunday is this
	('0 5 ? * 0#1', '2026-11-01 05:00,2026-12-06 05:00,2027-01-03 05:00,2027-02-07 05:00'),
	('0 0 L * ?', '2026-11-30 00:00,2026-12-31 00:00,2027-01-31 00:00,2027-02-28 00:00'),
	('0 0 L-3 * ?', '2026-11-27 00:00,2026-12-28 00:00,2027-01-28 00:00,2027-02-25 00:00'),
	('0 0 L-30 * ?', '2026-12-01 00:00,2027-01-01 00:00,2027-03-01 00:00'),
	-- 31 January and 28 February 2027 are Sundays
	('0 0 LW * ?', '2026-11-30 00:00,2026-12-31 00:00,2027-01-29 00:00,2027-02-26 00:00'),
	-- 28 November is a Saturday
	('0 0 L-2W * ?', '2026-11-27 00:00,2026-12-29 00:00,2027-01-29 00:00,2027-02-26 00:00'),
	-- 15 November is a Sunday
	('0 0 15W * ?',
	'2026-11-16 00:00,2026-12-15 00:00,2027-01-15 00:00,2027-02-15 00:00,2027-03-15 00:00,2027-04-15 00:00,2027-05-14 00:00'),
	-- never in another month: 1 November is a Sunday, 1 May 2027 a Saturday; 31 January a Sunday, 31 July a Saturday
	('0 0 1W * ?',
	'2026-11-02 00:00,2026-12-01 00:00,2027-01-01 00:00,2027-02-01 00:00,2027-03-01 00:00,2027-04-01 00:00,2027-05-03 00:00'),
	('0 0 31W * ?', '2026-12-31 00:00,2027-01-29 00:00,2027-03-31 00:00,2027-05-31 00:00,2027-07-30 00:00'),
	('0 0 29W 2 ?', '2028-02-29 00:00,2032-02-27 00:00,2036-02-29 00:00'),
	('0 0 ? * 5L', '2026-11-27 00:00,2026-12-25 00:00,2027-01-29 00:00,2027-02-26 00:00'),
	('0 0 ? * 5#3', '2026-11-20 00:00,2026-12-18 00:00,2027-01-15 00:00,2027-02-19 00:00'),
	('0 0 ? * 1#5', '2026-11-30 00:00,2027-03-29 00:00,2027-05-31 00:00'),
	('0 0 ? * 7#1,1L', '2026-11-01 00:00,2026-11-30 00:00,2026-12-06 00:00,2026-12-28 00:00'),
	('0 0 31 * *', '2026-12-31 00:00,2027-01-31 00:00,2027-03-31 00:00,2027-05-31 00:00'),
	('0 0 29 2 *', '2028-02-29 00:00,2032-02-29 00:00'),
	('0 0 ? 2 1#5', '2044-02-29 00:00,2072-02-29 00:00,2112-02-29 00:00'),
	('0 12 28-31,1,2 12-1 ?',
	'2026-12-01 12:00,2026-12-02 12:00,2026-12-28 12:00,2026-12-29 12:00,2026-12-30 12:00,2026-12-31 12:00,2027-01-01 12:00'),
	('0 12 ? NOV FRI-MON',
	'2026-11-01 12:00,2026-11-02 12:00,2026-11-06 12:00,2026-11-07 12:00,2026-11-08 12:00,2026-11-09 12:00,2026-11-13 12:00'),
	('*/30 9-10 * * MON-FRI', '2026-11-02 09:00,2026-11-02 09:30,2026-11-02 10:00,2026-11-02 10:30,2026-11-03 09:00'),
	('50/5 22-23,0-1 * * *',
	'2026-11-01 00:50,2026-11-01 00:55,2026-11-01 01:50,2026-11-01 01:55,2026-11-01 22:50,2026-11-01 22:55,2026-11-01 23:50'),
	('15,45 59 23 31 12 ?', '2026-12-31 23:59:15,2026-12-31 23:59:45,2027-12-31 23:59:15'),
	('*/20 * 0 1 * *', '2026-11-01 00:00,2026-11-01 00:00:20,2026-11-01 00:00:40,2026-11-01 00:01'),
	('59 59 23 * * *', '2026-11-01 23:59:59,2026-11-02 23:59:59'),
	('@yearly', '2027-01-01 00:00,2028-01-01 00:00'), ('@monthly', '2026-11-01 00:00,2026-12-01 00:00'),
	('@weekly', '2026-11-01 00:00,2026-11-08 00:00'), ('@daily', '2026-11-01 00:00,2026-11-02 00:00'),
	('@hourly', '2026-11-01 00:00,2026-11-01 01:00');
CREATE TEMP VIEW computed AS
SELECT *, ARRAY(SELECT job_idem.cron_fires(schedule, '2026-11-01', '2200-01-01') LIMIT cardinality(expected)) AS answer
FROM by_hand, LATERAL (SELECT string_to_array(fires, ',')::timestamptz[] AS expected) e;
SELECT count(*), sum(cardinality(answer)) FROM computed;
SELECT * FROM computed WHERE expected <> answer;
-- one after the other, forwards and backwards
SELECT c.schedule, i FROM computed c, generate_series(2, cardinality(expected)) AS i
WHERE job_idem.cron_next(schedule, expected[i - 1]) IS DISTINCT FROM expected[i]
	OR job_idem.cron_previous(schedule, expected[i]) IS DISTINCT FROM expected[i - 1];
-- every minute of days that either names: 1,440 each
SELECT t::date AS day, count(*) FROM job_idem.cron_fires('* * 13 * 5', '2026-12-01', '2026-12-20') AS t GROUP BY 1 ORDER BY 1;

-- strictly after and strictly before, from and up to, to the microsecond
SELECT job_idem.cron_next('@hourly', '2026-11-30 12:00') AS next, job_idem.cron_next('@hourly',
	'2026-11-30 11:59:59.999999') AS at,
	job_idem.cron_previous('@hourly', '2026-11-30 12:00') AS previous, job_idem.cron_previous('@hourly',
		'2026-11-30 12:00:00.000001') AS also_at;
SELECT job_idem.cron_fires('@hourly', '2026-11-30 12:00', '2026-11-30 14:00');
SELECT count(*) FROM job_idem.cron_fires('@hourly', '2026-11-30 12:00:00.000001', '2026-11-30 14:00:00.000001');
SELECT count(*) FROM job_idem.cron_fires('@hourly', '2026-11-30 12:00', '2026-11-30 12:00');
SELECT count(*) FROM job_idem.cron_fires('@hourly', '2026-11-30 14:00', '2026-11-30 12:00');
-- before 2000, where timestamps are negative
SELECT job_idem.cron_next('* * * * * *', '1999-12-31 23:59:58.5') AS next, job_idem.cron_previous('* * * * * *',
	'1999-12-31 23:59:58.5') AS previous,
	job_idem.cron_next('*/7 * * * *', '1969-12-31 23:59:59.999999') AS epoch;

-- leap days from 1896 to 2200: neither 1900 nor 2100 nor 2200 has one, 2000 has
SELECT count(*), min(t), max(t), count(*) FILTER (WHERE extract(year FROM t) IN (1900, 2100, 2200)) AS wrong,
	count(*) FILTER (WHERE extract(year FROM t) = 2000) AS y2000
FROM job_idem.cron_fires('0 0 29 2 *', '1896-01-01', '2201-01-01') AS t;
SELECT job_idem.cron_next('0 0 29 2 *', '2096-03-01'), job_idem.cron_previous('0 0 29 2 *', '1904-02-29');
-- a 29 February on each day of the week, in all years of the calendar's cycle: the dates are those of the calendar
WITH calendar AS (
	SELECT make_date(y, 2, 29)::timestamptz AS t FROM generate_series(2000, 2796, 4) AS y WHERE y % 100 <> 0 OR y % 400 = 0
), fires AS (
	SELECT t, dow FROM generate_series(0, 6) AS dow, job_idem.cron_fires('0 0 ? 2 ' || dow || '#5', '2000-01-01',
		'2800-01-01') AS t
)
SELECT count(*), count(*) FILTER (WHERE extract(dow FROM t) = dow) AS right_day, count(DISTINCT t) AS days,
	max(t - before) AS longest_wait, (SELECT count(*) FROM calendar) AS leap_days
FROM (SELECT *, lag(t) OVER (PARTITION BY dow ORDER BY t) AS before FROM fires) f JOIN calendar USING (t);
-- the last days of months, every month from 1900 to 2200
SELECT count(*), count(*) FILTER (WHERE date_trunc('month', t) + interval '1 month - 1 day' = t) AS last_days
FROM job_idem.cron_fires('0 0 L * *', '1900-01-01', '2201-01-01') AS t;

-- what is rare costs no more, also where clocks change in between: 1,000 answers each, two seconds for all
SELECT schedule, count(job_idem.cron_next(schedule, '2072-03-01'::timestamptz + n * interval '10 days',
	'America/New_York')) AS next,
	count(job_idem.cron_previous(schedule, '2112-02-28'::timestamptz - n * interval '10 days',
		'America/New_York')) AS previous
FROM unnest(ARRAY['0 0 ? 2 1#5', '59 */23 ? 2 1#5', '59 59 * ? 2 1#5', '0 0 29W 2 ?', '0 0 L-28 2 ?']) AS schedule,
	generate_series(1, 1000) AS n
GROUP BY schedule ORDER BY schedule;

-- the ends of time
SELECT job_idem.cron_next('@yearly', '294275-06-01') AS last, job_idem.cron_next('@yearly', '294276-01-01') AS none,
	job_idem.cron_next('* * * * * *', '294276-12-31 23:59:59.5') AS none,
	job_idem.cron_next('@hourly', '294276-12-31 23:30', 'Pacific/Kiritimati') AS none,
	job_idem.cron_next('0 0 ? 2 1#5', '294276-03-01') AS none;
SELECT job_idem.cron_previous('* * * * * *', '4714-11-24 00:00:00.5 BC') AS first,
	job_idem.cron_next('@daily', '4714-11-24 BC', 'Pacific/Kiritimati') AS next,
	job_idem.cron_previous('@daily', '4714-11-24 BC') AS none, job_idem.cron_previous('0 0 ? 2 1#5', '4713-01-01 BC') AS none,
	job_idem.cron_previous('@daily', '4714-11-24 00:30 BC', 'America/New_York') AS none;
SELECT count(*), min(t), max(t) FROM job_idem.cron_fires('0 12 4 7 *', '4714-11-24 BC', '294276-12-31', 'Europe/Berlin') AS t
WHERE extract(year FROM t) NOT BETWEEN -4000 AND 294000;

-- A limit in the select list ends it; a cancel does as well.
SELECT job_idem.cron_fires('* * * * * *', '2026-11-30', '200000-01-01') LIMIT 2;
SET statement_timeout = '50ms';
\set VERBOSITY sqlstate
SELECT count(*) FROM job_idem.cron_fires('* * * * * *', '2026-11-30', '200000-01-01');
\set VERBOSITY default
SET statement_timeout = '10s';

-- the turn of the year: the local date of a daily fire is the calendar's, also where the year of the week is another,
-- and its text is ISO's
CREATE FUNCTION pg_temp.local_date(at timestamptz, timezone text) RETURNS date
	LANGUAGE c AS '$libdir/job_idem', 'job_idem_local_date';
WITH turn AS (
	SELECT zone, y FROM generate_series(2020, 2029) AS y,
		unnest('{UTC,Europe/Berlin,America/New_York,Asia/Tokyo,Pacific/Kiritimati,Pacific/Pago_Pago}'::text[]) AS zone
), calendar AS (
	SELECT zone, y, d, make_date(y, 12, 27) + d AS day FROM turn, generate_series(1, 8) AS d
), fires AS (
	SELECT zone, y, row_number() OVER (PARTITION BY zone, y ORDER BY t) AS d, pg_temp.local_date(t, zone) AS day
	FROM turn, job_idem.cron_fires('30 0 * * *', make_timestamptz(y, 12, 28, 0, 0, 0, zone),
		make_timestamptz(y + 1, 1, 5, 0, 0, 0, zone), zone) AS t
)
SELECT count(*), count(*) FILTER (WHERE f.day = c.day) AS right_date,
	count(*) FILTER (WHERE f.day::text = CASE WHEN d < 5 THEN y || '-12-' || 27 + d ELSE y + 1 || '-01-0' || d - 4 END) AS right_text,
	count(*) FILTER (WHERE extract(isoyear FROM f.day) <> extract(year FROM f.day)) AS year_of_week_differs
FROM calendar c FULL JOIN fires f USING (zone, y, d);
SELECT zone, pg_temp.local_date(t, zone) AS local_date
	FROM unnest('{UTC,America/New_York,Pacific/Kiritimati}'::text[]) AS zone,
	unnest('{2027-01-01 00:00,2026-12-31 23:59:59.999999,1999-12-31 23:59:59.999999,1970-01-01 00:00}'::timestamptz[]) AS t;

-- Laws, at random instants from 1850 to 2200: next is later and previous earlier, between them and the instant there is
-- nothing, and fires says the same.
SELECT setseed(0.2);
CREATE TEMP TABLE asked AS
SELECT schedule, zone, t, job_idem.cron_next(schedule, t, zone) AS next, job_idem.cron_previous(schedule, t, zone) AS previous
FROM (SELECT schedule, zone, to_timestamp(-3786825600 + random() * 11044944000) AS t
	FROM unnest(ARRAY['30 2 * * *', '30 1 * * *', '@daily', '@hourly', '*/5 * * * *', '0 */6 * * *', '0 0-23 * * *',
		'15,45 30 0-3 * * *', '0 5 1-7 * 0', '0 0 LW * ?', '0 12 ? * 5#5', '0 3 29 2 *', '59 59 23 L * *']) AS schedule,
	unnest('{UTC,America/New_York,Europe/London,Australia/Lord_Howe,America/Santiago,Pacific/Apia,Africa/Casablanca,America/Juneau}'
		::text[]) AS zone, generate_series(1, 15)) AS r;
-- also at instants that are fires
INSERT INTO asked SELECT schedule, zone, next, job_idem.cron_next(schedule, next, zone), job_idem.cron_previous(schedule,
	next, zone) FROM asked;
SELECT count(*), count(*) FILTER (WHERE next > t) AS later, count(*) FILTER (WHERE previous < t) AS earlier,
	count(*) FILTER (WHERE job_idem.cron_previous(schedule, next, zone) = CASE WHEN is_fire THEN t ELSE previous END) AS back,
	count(*) FILTER (WHERE job_idem.cron_next(schedule, previous, zone) = CASE WHEN is_fire THEN t ELSE next END) AS forth,
	count(*) FILTER (WHERE ARRAY(SELECT job_idem.cron_fires(schedule, previous, next + interval '1 us', zone))
		= CASE WHEN is_fire THEN ARRAY[previous, t, next] ELSE ARRAY[previous, next] END) AS all_there
FROM asked, LATERAL (SELECT t = job_idem.cron_next(schedule, t - interval '1 us', zone) AS is_fire) f;
