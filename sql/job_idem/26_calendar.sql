-- Calendars: which days are open, by a weekly rule and by exceptions to it. They belong to no job: whoever may call the
-- functions may read them, and an operator of all jobs defines them.

CREATE TABLE job_idem.calendar (
	name text COLLATE "C" PRIMARY KEY CHECK (name <> '' AND pg_catalog.octet_length(name) <= 200),
	weekly smallint NOT NULL CHECK (weekly BETWEEN 0 AND 127),
	note text,
	created_at timestamptz NOT NULL,
	changed_at timestamptz NOT NULL
);
COMMENT ON TABLE job_idem.calendar IS 'named calendars; days are open by the weekly rule, but for those in calendar_day';
COMMENT ON COLUMN job_idem.calendar.weekly IS 'the open days of a week as bits: Monday is 1, Tuesday 2, Sunday 64';

CREATE TABLE job_idem.calendar_day (
	calendar text COLLATE "C" NOT NULL,
	day date NOT NULL CHECK (pg_catalog.isfinite(day)),
	is_open boolean NOT NULL,
	note text,
	PRIMARY KEY (calendar, day)
);
COMMENT ON TABLE job_idem.calendar_day IS 'the exceptions of calendars: holidays, and days that are open out of turn';

CREATE FUNCTION job_idem.define_calendar(name text, open_days text DEFAULT 'MON-FRI', note text DEFAULT NULL,
	days_query text DEFAULT NULL, OUT outcome text)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_define_calendar';
COMMENT ON FUNCTION job_idem.define_calendar(text, text, text, text) IS
$$creates a calendar or changes it; safe in every deploy, since the same definition changes nothing
An omitted argument means its default. open_days: days of the week and ranges of them, as in MON-FRI, or SUN-TUE,THU, in any case; NONE where only exceptions are open. note: kept up to 1000 bytes.
days_query: a query, run as the caller, that returns day date, is_open boolean and, if it likes, note text; its rows become the calendar's only exceptions. Without it the exceptions stay as they are.
outcome: new, changed or unchanged.
Errors: 22023 an empty name, an infinite day, or a query that does more than read; JI009 a name over 200 bytes or more than 100,000 days; JI005 open_days cannot be read, the detail says where; 22004 a NULL, 42804 a column of another type, JI006 a day that is given twice and differently: the message names the row; 42501 not an operator of all jobs; whatever the query raises.$$;

CREATE FUNCTION job_idem.set_calendar_day(calendar text, day date, is_open boolean, note text DEFAULT NULL)
	RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_set_calendar_day';
COMMENT ON FUNCTION job_idem.set_calendar_day(text, date, boolean, text) IS
$$opens or closes one day, whatever the weekly rule says of it; is_open NULL gives the day back to the rule
true if this call changed anything. Errors: 42704 no such calendar; 22004 or 22023 a day that is NULL or infinite; 42501 not an operator of all jobs.$$;

CREATE FUNCTION job_idem.load_calendar(calendar text, query text, OUT n_new bigint, OUT n_changed bigint)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_load_calendar';
COMMENT ON FUNCTION job_idem.load_calendar(text, text) IS
$$adds the days that a query returns to a calendar's exceptions, all or none of them; other exceptions stay
query: returns day date, is_open boolean and, if it likes, note text; it runs as the caller and only reads. n_new: exceptions added; n_changed: those that were there otherwise.
Errors: 42704 no such calendar; 22004 a NULL, 22023 an infinite day, JI006 a day that is given twice and differently: the message names the row; 22023 a query that does more than read; 42804 a column of another type; JI009 more than 100,000 days; 42501 not an operator of all jobs; whatever the query raises.$$;

CREATE FUNCTION job_idem.drop_calendar(name text) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_drop_calendar';
COMMENT ON FUNCTION job_idem.drop_calendar(text) IS
$$drops a calendar and its exceptions
true if this call dropped it, false if there is none of that name. Errors: 2BP01 a job uses it, the detail names one; 42501 not an operator of all jobs.$$;

CREATE FUNCTION job_idem.is_open_day(calendar text, day date) RETURNS boolean
	LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'job_idem_is_open_day';
COMMENT ON FUNCTION job_idem.is_open_day(text, date) IS
$$is the day open in the calendar
Errors: 42704 no such calendar; 22004 or 22023 a day that is NULL or infinite.$$;

CREATE FUNCTION job_idem.shift_open_days(calendar text, day date, n integer) RETURNS date
	LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'job_idem_shift_open_days';
COMMENT ON FUNCTION job_idem.shift_open_days(text, date, integer) IS
$$the day that is n open days later, or earlier if n is negative
Counted from the day itself, open or not: 1 is the first open day after it, -1 the last before it; 0 is the day itself if it is open, else the next that is.
Errors: 42704 no such calendar; 22023 no open day within ten years; JI009 n is not from -100000 to 100000; 22008 past the end of dates; 22004 or 22023 a day that is NULL or infinite.$$;

CREATE VIEW job_idem.calendars WITH (security_barrier) AS
SELECT c.name AS calendar,
	coalesce(nullif(pg_catalog.concat_ws(',',
		CASE WHEN c.weekly & 1 <> 0 THEN 'MON' END, CASE WHEN c.weekly & 2 <> 0 THEN 'TUE' END,
		CASE WHEN c.weekly & 4 <> 0 THEN 'WED' END, CASE WHEN c.weekly & 8 <> 0 THEN 'THU' END,
		CASE WHEN c.weekly & 16 <> 0 THEN 'FRI' END, CASE WHEN c.weekly & 32 <> 0 THEN 'SAT' END,
		CASE WHEN c.weekly & 64 <> 0 THEN 'SUN' END), ''), 'NONE') AS open_days,
	(SELECT pg_catalog.count(*) FROM job_idem.calendar_day d WHERE d.calendar = c.name AND d.is_open) AS n_opened,
	(SELECT pg_catalog.count(*) FROM job_idem.calendar_day d WHERE d.calendar = c.name AND NOT d.is_open) AS n_closed,
	(SELECT pg_catalog.max(d.day) FROM job_idem.calendar_day d WHERE d.calendar = c.name) AS last_exception,
	c.note, c.created_at, c.changed_at
FROM job_idem.calendar c;
COMMENT ON VIEW job_idem.calendars IS 'the calendars; they belong to no job';
COMMENT ON COLUMN job_idem.calendars.open_days IS 'of every week, as define_calendar takes them';
COMMENT ON COLUMN job_idem.calendars.n_opened IS 'exceptions that are open';
COMMENT ON COLUMN job_idem.calendars.n_closed IS 'exceptions that are closed';
COMMENT ON COLUMN job_idem.calendars.last_exception IS 'the last day that is an exception: past it nobody has said what the holidays are';
COMMENT ON COLUMN job_idem.calendars.changed_at IS 'when the rule or an exception last changed';

CREATE VIEW job_idem.calendar_days WITH (security_barrier) AS
SELECT d.calendar, d.day, d.is_open, d.note FROM job_idem.calendar_day d;
COMMENT ON VIEW job_idem.calendar_days IS 'the exceptions of calendars, a row for each day';
COMMENT ON COLUMN job_idem.calendar_days.is_open IS 'whatever the weekly rule says of that day';

SELECT pg_catalog.pg_extension_config_dump('job_idem.calendar', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.calendar_day', '');
