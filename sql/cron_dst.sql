-- Schedules where clocks change (S3, C06): what lies in a gap fires once, at its end; what is repeated fires once, the
-- first time; with * or */n as its hour a schedule follows elapsed time. Changes of an hour, of half an hour, at midnight,
-- of whole days and of odd seconds; one fire for each date; the caller's TimeZone is of no matter.
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- All fires of two or three days, worked out by hand, in UTC.
CREATE TEMP TABLE by_hand (zone text, schedule text, from_time timestamptz, to_time timestamptz, fires text);
INSERT INTO by_hand VALUES
	-- New York, 8 March 2026: 02:00 EST is 03:00 EDT, which is 07:00 UTC
	('America/New_York', '30 2 * * *', '2026-03-07 05:00', '2026-03-10 04:00',
	'2026-03-07 07:30,2026-03-08 07:00,2026-03-09 06:30'),
	('America/New_York', '30 1 * * *', '2026-03-07 05:00', '2026-03-10 04:00',
	'2026-03-07 06:30,2026-03-08 06:30,2026-03-09 05:30'),
	('America/New_York', '0 2 * * *', '2026-03-08 05:00', '2026-03-09 04:00', '2026-03-08 07:00'),
	('America/New_York', '0 3 * * *', '2026-03-08 05:00', '2026-03-09 04:00', '2026-03-08 07:00'),
	('America/New_York', '59 59 2 * * *', '2026-03-08 05:00', '2026-03-09 04:00', '2026-03-08 07:00'),
	-- several times in the gap coincide at its end
	('America/New_York', '*/10 2 * * *', '2026-03-08 05:00', '2026-03-09 04:00', '2026-03-08 07:00'),
	('America/New_York', '0 2,3 * * *', '2026-03-08 05:00', '2026-03-09 04:00', '2026-03-08 07:00'),
	('America/New_York', '15 1-3 * * *', '2026-03-08 05:00', '2026-03-09 04:00',
	'2026-03-08 06:15,2026-03-08 07:00,2026-03-08 07:15'),
	('America/New_York', '30 2 8 3 *', '2026-01-01', '2027-01-01', '2026-03-08 07:00'),
	-- 1 November 2026: 02:00 EDT is 01:00 EST, which is 06:00 UTC
	('America/New_York', '30 1 * * *', '2026-10-31 04:00', '2026-11-03 05:00',
	'2026-10-31 05:30,2026-11-01 05:30,2026-11-02 06:30'),
	('America/New_York', '30 2 * * *', '2026-10-31 04:00', '2026-11-03 05:00',
	'2026-10-31 06:30,2026-11-01 07:30,2026-11-02 07:30'),
	('America/New_York', '0 1 * * *', '2026-11-01 04:00', '2026-11-02 05:00', '2026-11-01 05:00'),
	('America/New_York', '59 59 1 * * *', '2026-11-01 04:00', '2026-11-02 05:00', '2026-11-01 05:59:59'),
	('America/New_York', '0 2 * * *', '2026-11-01 04:00', '2026-11-02 05:00', '2026-11-01 07:00'),
	('America/New_York', '*/30 1 * * *', '2026-11-01 04:00', '2026-11-02 05:00', '2026-11-01 05:00,2026-11-01 05:30'),
	-- elapsed time: each hour, in both of the repeated ones, none in the gap; each second of the hours 0, 2, 4
	('America/New_York', '@hourly', '2026-03-08 05:00', '2026-03-08 09:00',
	'2026-03-08 05:00,2026-03-08 06:00,2026-03-08 07:00,'
		'2026-03-08 08:00'),
	('America/New_York', '30 * * * *', '2026-11-01 04:00', '2026-11-01 08:00',
	'2026-11-01 04:30,2026-11-01 05:30,2026-11-01 06:30,'
		'2026-11-01 07:30'),
	('America/New_York', '0 */2 * * *', '2026-03-08 05:00', '2026-03-08 11:00',
	'2026-03-08 05:00,2026-03-08 08:00,2026-03-08 10:00'),
	('America/New_York', '0 */2 * * *', '2026-11-01 04:00', '2026-11-01 10:00',
	'2026-11-01 04:00,2026-11-01 07:00,2026-11-01 09:00'),
	('America/New_York', '0 0 */1 * * *', '2026-11-01 05:00', '2026-11-01 08:00',
	'2026-11-01 05:00,2026-11-01 06:00,2026-11-01 07:00'),
	-- a list or a range of hours, even of all, is of planned times
	('America/New_York', '0 0-23 * * *', '2026-03-08 05:00', '2026-03-08 09:00',
	'2026-03-08 05:00,2026-03-08 06:00,2026-03-08 07:00,'
		'2026-03-08 08:00'),
	('America/New_York', '0 0-23 * * *', '2026-11-01 04:00', '2026-11-01 08:00',
	'2026-11-01 04:00,2026-11-01 05:00,2026-11-01 07:00'),
	('America/New_York', '0 0/2 * * *', '2026-03-08 05:00', '2026-03-08 11:00',
	'2026-03-08 05:00,2026-03-08 07:00,2026-03-08 08:00,'
		'2026-03-08 10:00'),
	-- Lord Howe: half an hour; 5 April 2026, 02:00 is 01:30, 15:00 UTC the day before; 4 October, 02:00 is 02:30, 15:30 UTC
	('Australia/Lord_Howe', '45 1 * * *', '2026-04-03 13:00', '2026-04-06 13:00',
	'2026-04-03 14:45,2026-04-04 14:45,2026-04-05 15:15'),
	('Australia/Lord_Howe', '29 1 * * *', '2026-04-04 13:00', '2026-04-05 13:00', '2026-04-04 14:29'),
	('Australia/Lord_Howe', '0 2 * * *', '2026-04-04 13:00', '2026-04-05 13:00', '2026-04-04 15:30'),
	('Australia/Lord_Howe', '45 * * * *', '2026-04-04 13:00', '2026-04-04 16:30',
	'2026-04-04 13:45,2026-04-04 14:45,2026-04-04 15:15,'
		'2026-04-04 16:15'),
	('Australia/Lord_Howe', '15 2 * * *', '2026-10-02 14:00', '2026-10-05 13:00',
	'2026-10-02 15:45,2026-10-03 15:30,2026-10-04 15:15'),
	('Australia/Lord_Howe', '30 2 * * *', '2026-10-03 13:30', '2026-10-04 13:00', '2026-10-03 15:30'),
	('Australia/Lord_Howe', '0 * * * *', '2026-10-03 13:30', '2026-10-03 16:30',
	'2026-10-03 13:30,2026-10-03 14:30,2026-10-03 16:00'),
	-- Santiago: at midnight; 4 April 2026, 24:00 is 23:00, 03:00 UTC; 6 September, 00:00 is 01:00, 04:00 UTC
	('America/Santiago', '30 23 * * *', '2026-04-04 03:00', '2026-04-07 04:00',
	'2026-04-05 02:30,2026-04-06 03:30,2026-04-07 03:30'),
	('America/Santiago', '0 0 * * *', '2026-04-04 03:00', '2026-04-07 04:00',
	'2026-04-04 03:00,2026-04-05 04:00,2026-04-06 04:00'),
	('America/Santiago', '30 0 * * *', '2026-09-05 04:00', '2026-09-08 03:00',
	'2026-09-05 04:30,2026-09-06 04:00,2026-09-07 03:30'),
	('America/Santiago', '0 0 * * 0', '2026-09-05 04:00', '2026-09-08 03:00', '2026-09-06 04:00'),
	('America/Santiago', '0 1 * * *', '2026-09-06 03:00', '2026-09-07 03:00', '2026-09-06 04:00'),
	('America/Santiago', '30 * 6 9 *', '2026-09-06 03:00', '2026-09-06 06:00', '2026-09-06 04:30,2026-09-06 05:30'),
	-- Apia had no 30 December 2011: 29 December, 24:00 is 31 December, 00:00, which is 10:00 UTC on the 30th
	('Pacific/Apia', '0 12 * * *', '2011-12-28 10:00', '2011-12-31 10:00',
	'2011-12-28 22:00,2011-12-29 22:00,2011-12-30 10:00,'
		'2011-12-30 22:00'),
	('Pacific/Apia', '0 0 * * *', '2011-12-28 10:00', '2011-12-31 10:00',
	'2011-12-28 10:00,2011-12-29 10:00,2011-12-30 10:00'),
	('Pacific/Apia', '*/15 6-18 30 12 *', '2011-01-01', '2012-01-01', '2011-12-30 10:00'),
	('Pacific/Apia', '0 12 ? * 5', '2011-12-20', '2012-01-07', '2011-12-23 22:00,2011-12-30 10:00,2012-01-05 22:00'),
	('Pacific/Apia', '0 */12 30 12 *', '2011-01-01', '2013-01-01', '2012-12-29 10:00,2012-12-29 22:00'),
	-- Kwajalein had no 21 August 1993
	('Pacific/Kwajalein', '0 6 * * *', '1993-08-19 12:00', '1993-08-22 12:00',
	'1993-08-19 18:00,1993-08-20 18:00,1993-08-21 12:00,'
		'1993-08-21 18:00'),
	-- Juneau had two 18 Octobers in 1867: 19 October, 15:33:32 is a day earlier, 00:31:13 UTC on the 19th
	('America/Juneau', '0 20 * * *', '1867-10-17 12:00', '1867-10-21 00:00', '1867-10-18 04:57:41,1867-10-20 04:57:41'),
	('America/Juneau', '0 12 * * *', '1867-10-17 12:00', '1867-10-21 00:00',
	'1867-10-17 20:57:41,1867-10-18 20:57:41,1867-10-20 20:57:41'),
	('America/Juneau', '0 */12 * * *', '1867-10-18 00:00', '1867-10-20 00:00', '1867-10-18 08:57:41,1867-10-18 20:57:41,'
		'1867-10-19 08:57:41,1867-10-19 20:57:41'),
	-- local mean time: New York, 18 November 1883, 12:03:58 is 12:00, 17:00 UTC; Monrovia, 7 January 1972, 00:00 is 00:44:30
	('America/New_York', '2 12 * * *', '1883-11-18 05:00', '1883-11-20 05:00', '1883-11-18 16:58:02,1883-11-19 17:02'),
	('America/New_York', '5 12 * * *', '1883-11-18 05:00', '1883-11-19 05:00', '1883-11-18 17:05'),
	('America/New_York', '0,2 */12 * * *', '1883-11-18 12:00', '1883-11-19 04:00', '1883-11-18 16:56:02,1883-11-18 16:58:02,'
		'1883-11-18 17:00,1883-11-18 17:02'),
	('Africa/Monrovia', '30 0 * * *', '1972-01-06 00:44:30', '1972-01-08 23:00', '1972-01-06 01:14:30,1972-01-07 00:44:30,'
		'1972-01-08 00:30'),
	('Africa/Monrovia', '*/20 0-23/12 * * *', '1972-01-06 12:00', '1972-01-07 01:00',
	'1972-01-06 12:44:30,1972-01-06 13:04:30,'
		'1972-01-06 13:24:30,1972-01-07 00:44:30'),
	('Africa/Monrovia', '*/20 */12 * * *', '1972-01-06 12:00', '1972-01-07 01:00', '1972-01-06 12:44:30,1972-01-06 13:04:30,'
		'1972-01-06 13:24:30');
CREATE TEMP VIEW computed AS
SELECT *, ARRAY(SELECT job_idem.cron_fires(schedule, from_time, to_time, zone)) AS answer
FROM by_hand, LATERAL (SELECT string_to_array(fires, ',')::timestamptz[] AS expected) e;
SELECT count(*), sum(cardinality(expected)) FROM computed;
SELECT zone, schedule, expected, answer FROM computed WHERE expected <> answer;
-- from each to the next and back
SELECT zone, schedule, i FROM computed c, generate_series(2, cardinality(expected)) AS i
WHERE job_idem.cron_next(schedule, expected[i - 1], zone) IS DISTINCT FROM expected[i]
	OR job_idem.cron_previous(schedule, expected[i], zone) IS DISTINCT FROM expected[i - 1];
-- and at each microsecond around the changes
SELECT zone, schedule FROM computed c, unnest(expected) AS t
WHERE job_idem.cron_next(schedule, t - interval '1 us', zone) <> t
	OR job_idem.cron_previous(schedule, t + interval '1 us', zone) <> t;

-- Daily at 01:30 and 02:30, and each half hour of the night, over whole years: one fire for each date there is, of the
-- same date.
SELECT zone, year, count(*) AS schedules, min(fires) AS fires, max(fires) AS fires, min(dates) AS dates, max(dates) AS dates
FROM unnest('{America/New_York,Australia/Lord_Howe,America/Santiago,Europe/London,Africa/Casablanca,Asia/Kathmandu}'::text[]) AS zone,
	unnest('{2026,2028}'::int[]) AS year, generate_series(0, 9) AS n,
	LATERAL (SELECT count(*) AS fires, count(DISTINCT (t AT TIME ZONE zone)::date) AS dates
		FROM job_idem.cron_fires(format('%s %s * * *', n % 2 * 30, CASE n / 2 WHEN 4 THEN 23 ELSE n / 2 END),
			make_timestamptz(year, 1, 1, 0, 0, 0, zone), make_timestamptz(year + 1, 1, 1, 0, 0, 0, zone), zone) AS t) f
GROUP BY zone, year ORDER BY zone, year;

-- Elapsed time: hourly, no hour of a year is longer or shorter; and the fires of two weeks are the minutes with the local
-- time, one by one.
SELECT count(*), min(gap), max(gap) FROM (SELECT t - lag(t) OVER (ORDER BY t) AS gap
	FROM job_idem.cron_fires('30 * * * *', '2026-01-01', '2027-01-01', 'America/New_York') AS t) g;
WITH weeks AS (
	SELECT zone, start::timestamptz, minute AS t, minute AT TIME ZONE zone AS local
	FROM (VALUES ('America/New_York', '2026-03-02'), ('America/New_York', '2026-10-26'),
			('Australia/Lord_Howe', '2026-03-30'), ('Australia/Lord_Howe', '2026-09-28'),
			('America/Santiago', '2026-03-30'), ('America/Santiago', '2026-08-31'),
			('Pacific/Apia', '2011-12-24')) v (zone, start),
		generate_series(start::timestamptz, start::timestamptz + interval '20159 minutes', '1 minute') AS minute
), scanned AS (
	SELECT zone, start, '45 * * * *' AS schedule, t FROM weeks WHERE extract(minute FROM local) = 45
	UNION ALL SELECT zone, start, '*/20 */3 * * *', t FROM weeks WHERE extract(minute FROM local) IN (0, 20, 40)
		AND extract(hour FROM local)::int % 3 = 0
	UNION ALL SELECT zone, start, '0 * 29-31,4-6 * 0', t FROM weeks WHERE extract(minute FROM local) = 0
		AND (extract(day FROM local) IN (29, 30, 31, 4, 5, 6) OR extract(dow FROM local) = 0)
), fired AS (
	SELECT zone, start, schedule, t FROM (SELECT DISTINCT zone, start, schedule FROM scanned) s,
		job_idem.cron_fires(schedule, start, start + interval '2 weeks', zone) AS t
)
SELECT count(*), count(s.t) AS scanned, count(f.t) AS fired FROM scanned s FULL JOIN fired f USING (zone, start, schedule, t);

-- the same in any TimeZone of the caller
CREATE TEMP VIEW digest AS
SELECT md5(string_agg(extract(epoch FROM t)::text, ',' ORDER BY zone, schedule, t)) AS digest FROM computed, unnest(answer) AS t;
SELECT digest FROM digest \gset
SET timezone = 'Asia/Kolkata';
SELECT digest = :'digest' AS same FROM digest;
SET timezone = 'America/St_Johns';
SELECT digest = :'digest' AS same FROM digest;
SET timezone = 'America/New_York';
SELECT digest = :'digest' AS same FROM digest;

-- long ago and far from now, also beyond the zone's table: each date at 02:30, or at the end of the gap
SELECT year, count(*) AS fires, count(DISTINCT local::date) AS dates,
	count(*) FILTER (WHERE local::time = '02:30' OR (local::time = '03:00'
		AND (t - interval '1 us') AT TIME ZONE zone < local - interval '1 hour')) AS right_time
FROM unnest('{America/New_York,Europe/London}'::text[]) AS zone,
	unnest('{1850,1883,1918,1945,2037,2038,2100,2200,2436,2437,2438,2500,9999}'::int[]) AS year,
	job_idem.cron_fires('30 2 * * *', make_timestamptz(year, 1, 1, 0, 0, 0, zone),
		make_timestamptz(year + 1, 1, 1, 0, 0, 0, zone), zone) AS t,
	LATERAL (SELECT t AT TIME ZONE zone AS local) l
GROUP BY year ORDER BY year;
