-- Calendars: the weekly rule, its exceptions, and counting by open days (S5, as far as calendars go); names are only
-- names (P14); bad input changes nothing (R12).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';

-- declarative: an omitted argument is its default, the same again changes nothing
SELECT outcome FROM job_idem.define_calendar('bank');
SELECT outcome FROM job_idem.define_calendar('bank');
SELECT outcome FROM job_idem.define_calendar('bank', ' mon - Wed,thu , FRI,mon');
SELECT outcome FROM job_idem.define_calendar('bank', note => 'T2');
SELECT outcome FROM job_idem.define_calendar('bank', 'MON-SAT', 'T2');
SELECT outcome FROM job_idem.define_calendar('bank', 'MON-SAT');
SELECT outcome FROM job_idem.define_calendar('bank');
SELECT * FROM job_idem.calendars WHERE calendar = 'bank';

-- exceptions: true if anything was changed
SELECT job_idem.set_calendar_day('bank', '2026-12-25', false, 'Christmas');
SELECT job_idem.set_calendar_day('bank', '2026-12-25', false, 'Christmas');
SELECT job_idem.set_calendar_day('bank', '2026-12-25', false, 'Christmas Day');
SELECT job_idem.set_calendar_day('bank', '2026-12-26', true, 'a Saturday');
SELECT job_idem.set_calendar_day('bank', '2026-12-27', NULL);
SELECT job_idem.set_calendar_day('bank', '2026-12-24', true);
SELECT job_idem.set_calendar_day('bank', '2026-12-24', NULL, 'as it was');
SELECT job_idem.set_calendar_day('bank', '2026-12-24', NULL);
SELECT * FROM job_idem.calendar_days WHERE calendar = 'bank' ORDER BY day;
-- they stay whatever becomes of the rule
SELECT outcome FROM job_idem.define_calendar('bank', 'NONE');
SELECT outcome FROM job_idem.define_calendar('bank');
SELECT open_days, n_opened, n_closed, last_exception FROM job_idem.calendars WHERE calendar = 'bank';
SELECT verb, job_id, run_id, detail FROM job_idem.event WHERE detail->>'calendar' = 'bank' ORDER BY event_id;

SELECT to_char(day, 'Dy DD') AS day, job_idem.is_open_day('bank', day)
FROM (SELECT day::date FROM generate_series('2026-12-21'::date, '2026-12-28', '1 day') AS day) AS d ORDER BY d.day;
SELECT job_idem.is_open_day('bank', date '0044-03-15 BC'), job_idem.is_open_day('bank', '5874897-12-31');

-- n open days later or earlier, counted from the day itself, open or not
SELECT to_char(day, 'Dy DD') AS from_day, (SELECT string_agg(to_char(job_idem.shift_open_days('bank', day, n), 'DD'), ' ' ORDER BY n)
	FROM generate_series(-3, 3) AS n) AS "-3 to 3"
FROM (SELECT day::date FROM generate_series('2026-12-21'::date, '2026-12-28', '1 day') AS day) AS d ORDER BY d.day;
-- one open day before a Monday is the Friday, before a holiday as well; over the end of a month and a year
SELECT job_idem.shift_open_days('bank', '2026-11-30', -1), job_idem.shift_open_days('bank', '2026-12-28', -2),
	job_idem.shift_open_days('bank', '2026-12-31', 1), job_idem.shift_open_days('bank', '2024-03-01', -1);

-- all days against a count by hand, over twelve years and more than one stretch of reading
SELECT outcome FROM job_idem.define_calendar('random', 'TUE,FRI-SUN', days_query =>
	$$SELECT DISTINCT '2020-01-01'::date + (i * 37 % 4000), i % 3 = 0 FROM generate_series(1, 600) i$$);
CREATE TEMP TABLE opens AS
SELECT d.day::date, coalesce(e.is_open, extract(isodow FROM d.day) IN (2, 5, 6, 7)) AS is_open
FROM generate_series('2019-06-01'::date, '2031-06-01', '1 day') AS d (day)
	LEFT JOIN job_idem.calendar_days e ON e.calendar = 'random' AND e.day = d.day::date;
SELECT count(*) AS days, count(*) FILTER (WHERE job_idem.is_open_day('random', day) <> is_open) AS wrong FROM opens;
CREATE TEMP TABLE numbered AS SELECT day, row_number() OVER (ORDER BY day) AS i FROM opens WHERE is_open;
SELECT count(*) AS pairs, count(*) FILTER (WHERE job_idem.shift_open_days('random', a.day, (b.i - a.i)::integer) <> b.day) AS wrong
FROM numbered a JOIN numbered b ON b.i <> a.i AND a.i % 97 = 0 AND b.i % 89 = 0;
SELECT count(*) AS closed, count(*) FILTER (WHERE job_idem.shift_open_days('random', o.day, 0) <> after.day) AS wrong_0,
	count(*) FILTER (WHERE job_idem.shift_open_days('random', o.day, 1) <> after.day) AS wrong_after,
	count(*) FILTER (WHERE job_idem.shift_open_days('random', o.day, -1) <> before.day) AS wrong_before
FROM opens o, LATERAL (SELECT min(day) AS day FROM numbered n WHERE n.day > o.day) AS after,
	LATERAL (SELECT max(day) AS day FROM numbered n WHERE n.day < o.day) AS before
WHERE NOT o.is_open AND o.day BETWEEN '2024-01-01' AND '2026-12-31';

-- rules: ranges over the end of the week, whole weeks, single days
SELECT rule, job_idem.define_calendar('rule ' || rule, rule) AS outcome
FROM unnest('{SUN-THU,FRI-FRI,SAT-FRI,sun,"TUE-MON,WED",none}'::text[]) AS rule;
SELECT calendar, open_days FROM job_idem.calendars WHERE calendar LIKE 'rule %' ORDER BY calendar;
-- a rule that is no rule, and where it breaks off
CREATE FUNCTION pg_temp.refused(rule text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	PERFORM job_idem.define_calendar('refused', rule);
	RETURN 'accepted';
EXCEPTION WHEN SQLSTATE 'JI005' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN detail;
END
$$;
SELECT left(rule, 12) AS rule, pg_temp.refused(rule)
FROM unnest(ARRAY['', ' ', 'MON-', '-FRI', 'MON,', ',', 'MONDAY', 'MON FRI', 'MON-FRI-SUN', 'mon,noday', 'MON-FRY', 'MON;TUE', 'N',
	'NONE,MON', 'MON,NONE', E'MON\tTUE', '星期一', 'MON,星期', repeat('MON,', 60) || 'x']) WITH ORDINALITY AS r (rule, n) ORDER BY n;

-- a calendar that opens too seldom ends the search, and one that opens just in time does not
SELECT outcome FROM job_idem.define_calendar('closed', 'NONE');
SELECT job_idem.is_open_day('closed', '2026-11-30');
SELECT job_idem.shift_open_days('closed', '2026-11-30', 0);
SELECT job_idem.shift_open_days('closed', '2026-11-30', 1);
SELECT job_idem.shift_open_days('closed', '2026-11-30', -1);
SELECT job_idem.set_calendar_day('closed', '2036-11-30', true);
SELECT job_idem.shift_open_days('closed', '2026-11-30', 1), job_idem.shift_open_days('closed', '2046-11-30', -1);
SELECT job_idem.shift_open_days('closed', '2026-11-30', 2);
SELECT job_idem.set_calendar_day('closed', '2036-11-30', NULL), job_idem.set_calendar_day('closed', '2036-12-02', true);
SELECT job_idem.shift_open_days('closed', '2026-11-30', 1);
SELECT job_idem.shift_open_days('closed', '2026-12-01', 0);
-- ends of time, and of counting
SELECT job_idem.shift_open_days('bank', '5874897-12-31', 1);
SELECT job_idem.shift_open_days('bank', '4714-11-24 BC', -1);
SELECT job_idem.shift_open_days('bank', '2026-11-30', 100000), job_idem.shift_open_days('bank', '2026-11-30', -100000);
SELECT job_idem.shift_open_days('bank', '2026-11-30', 100001);
SELECT job_idem.shift_open_days('bank', '2026-11-30', -100001);
SELECT job_idem.shift_open_days('bank', '2026-11-30', -2147483648);
\set VERBOSITY terse
SELECT job_idem.shift_open_days('closed', '2026-11-30', -1);
SELECT job_idem.is_open_day('no such calendar', '2026-11-30');
SELECT job_idem.shift_open_days('bank', '2026-11-30', 100001);
\set VERBOSITY sqlstate

-- what is refused, and leaves nothing
CREATE TEMP VIEW content AS
SELECT (SELECT md5(string_agg(c::text, E'\n' ORDER BY name)) FROM job_idem.calendar c) AS calendars,
	(SELECT md5(string_agg(d::text, E'\n' ORDER BY calendar, day)) FROM job_idem.calendar_day d) AS days,
	(SELECT count(*) FROM job_idem.event) AS events;
CREATE TEMP TABLE before AS TABLE content;
SELECT job_idem.define_calendar(NULL);
SELECT job_idem.define_calendar('');
SELECT job_idem.define_calendar(repeat('x', 201));
SELECT job_idem.define_calendar('new', NULL);
SELECT job_idem.set_calendar_day('no such calendar', '2026-11-30', true);
SELECT job_idem.set_calendar_day('no such calendar', '2026-11-30', NULL);
SELECT job_idem.set_calendar_day(NULL, '2026-11-30', true);
SELECT job_idem.set_calendar_day('bank', NULL, true);
SELECT job_idem.set_calendar_day('bank', 'infinity', true);
SELECT job_idem.set_calendar_day('bank', '-infinity', NULL);
SELECT job_idem.is_open_day('no such calendar', '2026-11-30');
SELECT job_idem.is_open_day(NULL, '2026-11-30');
SELECT job_idem.is_open_day('bank', NULL);
SELECT job_idem.is_open_day('bank', 'infinity');
SELECT job_idem.shift_open_days('no such calendar', '2026-11-30', 1);
SELECT job_idem.shift_open_days('bank', '-infinity', 1);
SELECT job_idem.shift_open_days('bank', '2026-11-30', NULL);
SELECT job_idem.drop_calendar(NULL);
SELECT job_idem.drop_calendar('no such calendar');
TABLE before EXCEPT TABLE content;

-- not while a job uses it; a dropped job does not
SELECT outcome FROM job_idem.define_job('uses calendar', schedule => '0 1 * * *', calendar => 'bank');
SELECT job_idem.drop_calendar('bank');
\set VERBOSITY default
SELECT job_idem.drop_calendar('bank');
\set VERBOSITY sqlstate
SELECT count(*) FROM job_idem.calendar_days WHERE calendar = 'bank';
SELECT job_idem.drop_job('uses calendar');

-- a dropped calendar takes its exceptions with it
SELECT job_idem.drop_calendar('bank');
SELECT job_idem.drop_calendar('bank');
SELECT job_idem.is_open_day('bank', '2026-12-25');
SELECT outcome FROM job_idem.define_calendar('bank', days_query => NULL);
SELECT count(*) FROM job_idem.calendar_days WHERE calendar = 'bank';
SELECT verb, detail FROM job_idem.event WHERE verb = 'drop_calendar' AND detail->>'calendar' = 'bank';

-- names are only names, compared by bytes; notes are words, cut where too long
CREATE TEMP TABLE names (n serial, name text);
INSERT INTO names (name) VALUES ('Bank'), ('BANK'), ('bank "all"'), ('o''clock'), (' '), ('日历'), ('💶'), ('a.b'), ('$1'),
	('%s'), ('\d'), ('NULL'), ('; DROP TABLE job_idem.calendar; --'), (E'two\nlines'), ('i'), ('İ'), (repeat('é', 100));
SELECT count(*) FROM names, LATERAL job_idem.define_calendar(name, note => name) WHERE outcome = 'new';
SELECT count(*) FROM names WHERE job_idem.set_calendar_day(name, '2026-11-30', false, repeat(name, 1000));
SELECT count(*) FROM names WHERE NOT job_idem.is_open_day(name, '2026-11-30');
SELECT n FROM names WHERE job_idem.define_calendar(name, note => name) <> 'unchanged'
	OR job_idem.set_calendar_day(name, '2026-11-30', false, repeat(name, 1000));
SELECT count(DISTINCT c.calendar) AS calendars, count(*) FILTER (WHERE c.note = n.name) AS notes,
	count(*) FILTER (WHERE repeat(n.name, 1000) LIKE replace(replace(replace(d.note, '\', '\\'), '%', '\%'), '_', '\_') || '%'
		AND octet_length(d.note) BETWEEN 997 AND 1000) AS cut_notes,
	count(*) FILTER (WHERE e.detail = jsonb_build_object('calendar', n.name, 'day', '2026-11-30', 'is_open', false)) AS events
FROM names n JOIN job_idem.calendars c ON c.calendar = n.name JOIN job_idem.calendar_days d ON d.calendar = n.name
	JOIN job_idem.event e ON e.verb = 'set_calendar_day' AND e.detail->>'calendar' = n.name;
SELECT count(*) FROM names WHERE job_idem.drop_calendar(name);
