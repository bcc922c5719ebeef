-- What a schedule means: when it fires, and what it says. STABLE, since zones are what the server's zone database says.

CREATE FUNCTION job_idem.cron_next(schedule text, after timestamptz DEFAULT job_idem.now(), timezone text DEFAULT 'UTC')
	RETURNS timestamptz LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_cron_next';
COMMENT ON FUNCTION job_idem.cron_next(text, timestamptz, text) IS
$$the first instant at which a schedule fires after the one given; NULL if no timestamptz is that late
schedule: minute, hour, day of month, month, day of week, each *, a number, a range 1-5, a step */10, 1-30/5 or 5/10, or a
list of these; six fields begin with the second; or @hourly, @daily, @weekly, @monthly, @yearly. Names JAN, MON; Sunday is
0 and 7; L, L-2, 15W, LW in the day of month, 5L (the last Friday) and 5#3 (the third) in the day of week, ? for * in both.
If both day fields restrict, a day that either names is meant. cron_explain says what was understood.
timezone: a name of pg_timezone_names. A planned time that its clocks skip fires at the end of the gap, one that they
repeat fires the first time; with * or */n as its hour a schedule follows elapsed time: it fires whenever the local time
is one of its own.
Errors: 22004 for NULL; 22023 for a schedule that cannot be used, the detail naming the field and the position, for an
unknown zone and an infinite instant.$$;

CREATE FUNCTION job_idem.cron_previous(schedule text, before timestamptz DEFAULT job_idem.now(),
	timezone text DEFAULT 'UTC')
	RETURNS timestamptz LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_cron_previous';
COMMENT ON FUNCTION job_idem.cron_previous(text, timestamptz, text) IS
$$the last instant at which a schedule fires before the one given; NULL if no timestamptz is that early
Arguments and errors as of cron_next.$$;

CREATE FUNCTION job_idem.cron_fires(schedule text, from_time timestamptz, to_time timestamptz,
	timezone text DEFAULT 'UTC')
	RETURNS SETOF timestamptz LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_cron_fires';
COMMENT ON FUNCTION job_idem.cron_fires(text, timestamptz, timestamptz, text) IS
$$every instant at which a schedule fires, from from_time on and before to_time, in order
Arguments and errors as of cron_next. Called in a select list, it stops when LIMIT does.$$;

CREATE FUNCTION job_idem.cron_explain(schedule text, timezone text DEFAULT NULL) RETURNS text
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_cron_explain';
COMMENT ON FUNCTION job_idem.cron_explain(text, text) IS
$$a schedule as an English sentence; with a zone it also says what a change of its clocks does
Errors as of cron_next.$$;
