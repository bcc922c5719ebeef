-- Planning: what will run when, and why not.

CREATE FUNCTION job_idem.plan(job text, from_date date, to_date date)
	RETURNS TABLE (business_date date, run_key text, scheduled_at timestamptz, outcome text, reason text, run_id bigint)
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'job_idem_plan';
COMMENT ON FUNCTION job_idem.plan(text, date, date) IS
$$what the schedule of a job plans for the business dates from from_date to to_date, and what becomes of it; writes nothing
outcome: the state of the run, where there is one; else will run, is due (by the next tick), will be skipped, will expire, or not planned (it is before the job was defined). reason: why it is, or will be, not run.
Each instant by the version of the job that was, or is, in force. Errors: JI002 no such job; 22023 infinite dates, or over 3660 days; JI009 over a million instants; 42501.$$;

CREATE FUNCTION job_idem.backfill(job text, from_date date, to_date date, dry_run boolean DEFAULT false,
	newest_first boolean DEFAULT false, max_parallel integer DEFAULT NULL)
	RETURNS TABLE (business_date date, run_key text, scheduled_at timestamptz, outcome text, reason text, run_id bigint)
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'job_idem_backfill';
COMMENT ON FUNCTION job_idem.backfill(text, date, date, boolean, boolean, integer) IS
$$opens the runs of past business dates that have none, whatever the misfire policy; dates before the job was defined by its first version
dry_run writes nothing. max_parallel: so many at once, the others are blocked until one before them is over; of a job whose runs must not overlap, one. outcome: new, known (a run is there, which stays as it is) or closed (a closed day).
Errors: JI002 no such job; JI004 it is dropped, disabled or without an owner; 22023 infinite dates, over 3660 days, max_parallel below 1; JI009 over a million instants; 42501.$$;

CREATE FUNCTION job_idem.unblock_run(run_id bigint, reason text) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_unblock_run';
COMMENT ON FUNCTION job_idem.unblock_run(bigint, text) IS
$$lets a blocked run go on, whatever it waits for, on record
true if this call did it, false if it was not blocked. Errors: JI003 no such run; JI004 it has ended; 22004 no reason; 42501.$$;

CREATE FUNCTION job_idem.install_ticks(schedule text DEFAULT '* * * * *') RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id bigint;
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'pg_cron') THEN
		RAISE EXCEPTION 'pg_cron is not installed in this database'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Install it here (cron.database_name names its database), or let any other timer CALL job_idem.tick().';
	END IF;
	EXECUTE 'SELECT cron.schedule(''job_idem tick'', $1, ''CALL job_idem.tick()'')' INTO id USING schedule;
	RETURN id;
END
$$;
COMMENT ON FUNCTION job_idem.install_ticks(text) IS
$$lets pg_cron CALL job_idem.tick(), by default every minute, as the role that calls this
Again it replaces the entry, which is named job_idem tick. Returns pg_cron's number of it. Errors: 55000 pg_cron is not installed in this database; whatever cron.schedule raises.$$;

CREATE FUNCTION job_idem.remove_ticks() RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	removed bigint;
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'pg_cron') THEN
		RETURN false;
	END IF;
	EXECUTE 'SELECT count(cron.unschedule(jobid)) FROM cron.job WHERE jobname = ''job_idem tick'' AND username = current_user'
		INTO removed;
	RETURN removed > 0;
END
$$;
COMMENT ON FUNCTION job_idem.remove_ticks() IS
$$takes back install_ticks of the role that calls this
true if there was an entry. Errors: whatever cron.unschedule raises.$$;
