-- load_calendar, and days_query of define_calendar: days that a query lists, all or none, run as the caller and unable to
-- do more than read (P2, P3); an error names the row (R12).
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
CREATE SCHEMA calendar_load;
CREATE TABLE calendar_load.holiday (day date, is_open boolean, name varchar(40));
INSERT INTO calendar_load.holiday VALUES ('2026-12-25', false, 'Christmas'), ('2026-12-26', false, NULL),
	('2027-01-01', false, 'New Year');
SELECT outcome FROM job_idem.define_calendar('load');
CREATE TEMP VIEW exceptions AS SELECT day, is_open, note FROM job_idem.calendar_days WHERE calendar = 'load';

-- new ones, changed ones, and others stay; with and without notes; a day may stand there twice
SELECT * FROM job_idem.load_calendar('load', 'SELECT day, is_open, name FROM calendar_load.holiday');
SELECT * FROM job_idem.load_calendar('load', 'SELECT day, is_open, name FROM calendar_load.holiday');
SELECT * FROM job_idem.load_calendar('load', $$VALUES ('2026-12-25'::date, true, 'Christmas'), ('2027-01-01', false, 'New Year'),
	('2027-05-01', false, 'Labour Day'), ('2027-05-01', false, 'Labour Day')$$);
SELECT * FROM job_idem.load_calendar('load', $$SELECT '2027-01-01'::date, false$$);
SELECT * FROM job_idem.load_calendar('load', 'WITH h AS (SELECT * FROM calendar_load.holiday) SELECT day, is_open FROM h WHERE false');
SELECT * FROM job_idem.load_calendar('load', $$SELECT '2027-06-01'::date, true, repeat('é', 800)$$);
SELECT day, is_open, left(note, 12) AS note, octet_length(note) AS bytes FROM exceptions ORDER BY day;
SELECT verb, detail FROM job_idem.event WHERE verb = 'load_calendar' AND detail->>'calendar' = 'load' ORDER BY event_id;

-- days_query is declarative: what it lists is all there is; without it they stay
\set define 'SELECT outcome FROM job_idem.define_calendar(''load'', days_query => $$SELECT day, is_open, name FROM calendar_load.holiday'
:define$$);
:define$$);
SELECT outcome FROM job_idem.define_calendar('load');
SELECT * FROM exceptions ORDER BY day;
:define WHERE name IS NOT NULL$$);
SELECT job_idem.set_calendar_day('load', '2026-12-24', false, 'by hand');
SELECT outcome FROM job_idem.define_calendar('load', 'SUN-THU');
SELECT * FROM exceptions ORDER BY day;
:define ORDER BY day$$);
SELECT * FROM exceptions ORDER BY day;
:define WHERE false$$);
:define WHERE false$$);
SELECT * FROM exceptions;
SELECT outcome FROM job_idem.define_calendar('load new', days_query => 'SELECT day, is_open FROM calendar_load.holiday');
SELECT n_closed FROM job_idem.calendars WHERE calendar = 'load new';
SELECT * FROM job_idem.load_calendar('load', 'SELECT day, is_open, name FROM calendar_load.holiday');

-- a lot of them, and too many
CREATE FUNCTION calendar_load.days(n integer) RETURNS TABLE (day date, is_open boolean) LANGUAGE sql AS
	$$SELECT '1900-01-01'::date + i, i % 2 = 0 FROM generate_series(1, n) AS i$$;
SELECT * FROM job_idem.load_calendar('load new', 'SELECT * FROM calendar_load.days(10000)');
SELECT * FROM job_idem.load_calendar('load new', 'SELECT * FROM calendar_load.days(100001)');
SELECT outcome FROM job_idem.define_calendar('load new', days_query => 'SELECT * FROM calendar_load.days(9999)');
SELECT n_opened, n_closed FROM job_idem.calendars WHERE calendar = 'load new';

-- what is refused, and leaves nothing: rows, columns, queries that do more than one thing or than read
CREATE TEMP VIEW content AS
SELECT (SELECT md5(string_agg(c::text, E'\n' ORDER BY name)) FROM job_idem.calendar c) AS calendars,
	(SELECT md5(string_agg(d::text, E'\n' ORDER BY calendar, day)) FROM job_idem.calendar_day d) AS days,
	(SELECT count(*) FROM job_idem.event) AS events, (SELECT count(*) FROM calendar_load.holiday) AS holidays;
CREATE TEMP TABLE before AS TABLE content;
CREATE FUNCTION pg_temp.refused(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	loaded text;
BEGIN
	PERFORM job_idem.load_calendar('load', query);
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	loaded := SQLSTATE || ' ' || SQLERRM;
	BEGIN
		PERFORM job_idem.define_calendar('load', 'NONE', days_query => query);
		RETURN 'accepted';
	EXCEPTION WHEN OTHERS THEN
		RETURN CASE loaded WHEN SQLSTATE || ' ' || SQLERRM THEN loaded ELSE loaded || ' / ' || SQLERRM END;
	END;
END
$$;
SELECT query, pg_temp.refused(query) FROM unnest(ARRAY[
	$$VALUES ('2027-01-02'::date, true), (NULL, true)$$,
	$$VALUES ('2027-01-02'::date, true), ('2027-01-03', NULL)$$,
	$$VALUES ('2027-01-02'::date, true), ('2027-01-03', true), ('infinity', true)$$,
	$$VALUES ('-infinity'::date, true)$$,
	$$VALUES ('2027-01-02'::date, true), ('2027-01-03', true), ('2027-01-02', false)$$,
	$$VALUES ('2027-01-02'::date, true, 'a'), ('2027-01-02', true, NULL)$$,
	$$SELECT '2027-01-02'::date$$,
	$$SELECT '2027-01-02'::date, true, 'a', 'b'$$,
	$$SELECT '2027-01-02', true$$,
	$$SELECT '2027-01-02'::timestamptz, true$$,
	$$SELECT '2027-01-02'::date, 1$$,
	$$SELECT '2027-01-02'::date, true, 1$$,
	$$SELECT$$,
	$$SELECT '2027-01-02'::date, 1 / (2 - i) = 1 FROM generate_series(1, 2) AS i$$,
	$$SELECT day, is_open FROM holiday$$,
	$$SELEC day$$,
	$$$$,
	$$SELECT '2027-01-02'::date, true; SELECT '2027-01-03'::date, true$$,
	$$SELECT $1::date, true$$,
	$$INSERT INTO calendar_load.holiday VALUES ('2027-01-02', true) RETURNING day, is_open$$,
	$$WITH gone AS (DELETE FROM calendar_load.holiday RETURNING day, is_open) SELECT * FROM gone$$,
	$$CREATE TABLE calendar_load.made (day date)$$,
	$$SHOW search_path$$,
	$$EXPLAIN SELECT 1$$,
	$$SELECT '2027-01-02'::date, true FROM set_config('role', 'none', false)$$]) WITH ORDINALITY AS q (query, n) ORDER BY n;
SELECT job_idem.load_calendar('no such calendar', $$SELECT '2027-01-02'::date, true$$);
SELECT job_idem.load_calendar(NULL, $$SELECT '2027-01-02'::date, true$$);
SELECT job_idem.load_calendar('load', NULL);
TABLE before EXCEPT TABLE content;
SELECT count(*) FROM job_idem.calendars WHERE calendar = 'no such calendar';

-- the caller's rights and path: an operator without SELECT on the table gets 42501, and what the extension's owner may
-- read is out of reach; settings of ours do not reach the query
CREATE ROLE regress_calendar_load;
GRANT USAGE ON SCHEMA calendar_load TO regress_calendar_load;
SELECT job_idem.grant_access('regress_calendar_load', 'operator');
SET ROLE regress_calendar_load;
SET search_path = calendar_load;
SELECT * FROM job_idem.load_calendar('load', 'SELECT day, true FROM holiday');
SELECT * FROM job_idem.load_calendar('load', 'SELECT day, is_open FROM job_idem.calendar_day');
RESET ROLE;
GRANT SELECT ON calendar_load.holiday TO regress_calendar_load;
SET ROLE regress_calendar_load;
SELECT * FROM job_idem.load_calendar('load', 'SELECT day, true FROM holiday');
SELECT outcome FROM job_idem.define_calendar('load as', days_query => $$SELECT '2027-01-02'::date, true,
	current_user || ' ' || current_setting('search_path') || ' ' || current_setting('enable_seqscan')$$);
SELECT current_user, current_setting('search_path') AS path, current_setting('enable_seqscan') AS seqscan;
-- nor can it change the session; it may call our functions, as the caller
CREATE FUNCTION pg_temp.make() RETURNS boolean LANGUAGE plpgsql AS
	$$BEGIN CREATE TEMP TABLE made (); RETURN true; END$$;
SELECT * FROM job_idem.load_calendar('load', $$SELECT '2027-01-02'::date, pg_temp.make()$$);
SELECT * FROM job_idem.load_calendar('load', $$SELECT '2027-01-02'::date, job_idem.is_open_day('load', '2027-01-02')$$);
SELECT current_user;
RESET ROLE;
RESET search_path;
SELECT note FROM job_idem.calendar_days WHERE calendar = 'load as';

-- one without the right is refused before the query is run
SELECT job_idem.grant_access('regress_calendar_load', 'worker');
GRANT EXECUTE ON FUNCTION job_idem.load_calendar, job_idem.define_calendar TO regress_calendar_load;
SET ROLE regress_calendar_load;
SELECT * FROM job_idem.load_calendar('load', $$SELECT '2027-01-02'::date, 1 / 0 = 1$$);
SELECT * FROM job_idem.define_calendar('load', days_query => $$SELECT '2027-01-02'::date, 1 / 0 = 1$$);
SELECT job_idem.is_open_day('load', '2027-01-02');
RESET ROLE;

SELECT job_idem.revoke_access('regress_calendar_load');
SET client_min_messages = warning;
DROP SCHEMA calendar_load CASCADE;
DROP OWNED BY regress_calendar_load;
DROP ROLE regress_calendar_load;
