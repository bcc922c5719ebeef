-- Operators: leases, dead letters, the tick.

CREATE FUNCTION job_idem.expire_lease(token bigint, reason text) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_expire_lease';
COMMENT ON FUNCTION job_idem.expire_lease(bigint, text) IS
$$ends a claim before its time, on record; its unfinished items come back as after an expiry
Returns their number; 0 if the claim was closed already. Errors: JI001 no such claim; 55P03 a transaction is at work under it; 22004 no reason; 42501.$$;

CREATE FUNCTION job_idem.end_holder(token bigint) RETURNS integer[]
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_end_holder';
COMMENT ON FUNCTION job_idem.end_holder(bigint) IS
$$ends the backends whose open transactions hold a claim, on record; their work is rolled back whole
Found by the locks on the claim, never by the backend that claimed. Waits up to 5 s for each, then a WARNING. A prepared transaction cannot be ended so: a WARNING names it.
Returns the process ids that have ended; empty if nobody holds the claim. Errors: JI001 no such claim; 55006 the calling transaction holds it itself; 42501.$$;

CREATE FUNCTION job_idem.replay(dead_letter_id bigint, note text DEFAULT NULL, payload jsonb DEFAULT NULL)
	RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_replay';
COMMENT ON FUNCTION job_idem.replay(bigint, text, jsonb) IS
$$returns a dead item once, under its own key and with new tries, due at once; a partial run is running again, and a spent retry budget begins anew
payload, if given, replaces the item's. true if this call did it; false, with a NOTICE, if the dead letter was resolved already. Errors: P0002 no such dead letter; JI004 run cancelled; JI009; 42501.$$;

CREATE FUNCTION job_idem.discard(dead_letter_id bigint, note text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_discard';
COMMENT ON FUNCTION job_idem.discard(bigint, text) IS
$$closes a dead letter for good; with the last one a partial run is done
true if this call did it; false, with a NOTICE, if it was resolved already. Errors: P0002 no such dead letter; 42501.$$;

CREATE FUNCTION job_idem.pause_run(run_id bigint, reason text) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_pause_run';
COMMENT ON FUNCTION job_idem.pause_run(bigint, text) IS
$$stops claims of one run until resume_run; leases already held may be finished
true if this call paused it, false if it was paused already. NOTIFY job_idem with verb, job_id and run_id. Errors: JI003 no such run; JI004 it has ended; 22004 no reason; 42501.$$;

CREATE FUNCTION job_idem.resume_run(run_id bigint, note text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_resume_run';
COMMENT ON FUNCTION job_idem.resume_run(bigint, text) IS
$$lets a run go on that the breaker or pause_run paused; its retry budget and the breaker's window begin anew
true if this call resumed it, false if it was not paused. Errors: JI003 no such run; JI004 it has ended; 42501.$$;

CREATE FUNCTION job_idem.set_error_rule(kind text, sqlstate text DEFAULT NULL, error_class text DEFAULT NULL,
	job text DEFAULT NULL, note text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_set_error_rule';
COMMENT ON FUNCTION job_idem.set_error_rule(text, text, text, text, text) IS
$$says what kind of failure an error is, transient or business, for one job or (job left out) for all
Give sqlstate, one to five characters that it begins with, or error_class, in which * stands for any characters and ? for any one. Of the rules that match, one that names the whole error counts before a pattern, then the one with more characters of its own, then the job's before that for all, then one by error_class. A second call replaces kind and note.
true if this call changed something. Errors: 22023 bad pattern or kind; 22004 no kind; JI002 no such job; 42501.$$;

CREATE FUNCTION job_idem.drop_error_rule(sqlstate text DEFAULT NULL, error_class text DEFAULT NULL,
	job text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_drop_error_rule';
COMMENT ON FUNCTION job_idem.drop_error_rule(text, text, text) IS
$$takes back the rule that set_error_rule set for this pattern and job
true if there was one. Errors: 22023 bad pattern; JI002 no such job; 42501.$$;

CREATE FUNCTION job_idem.replay_run(run_id bigint, error_class text DEFAULT NULL, sqlstate text DEFAULT NULL,
	note text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_replay_run';
COMMENT ON FUNCTION job_idem.replay_run(bigint, text, text, text) IS
$$replays every dead letter of a run that is open now, each once; what dies again later is a new one, for another call
error_class: a pattern with * and ?; sqlstate: its beginning, such as 40. A filter leaves out letters without such a value. All or nothing, in the caller's transaction; a second call waits for the first.
Returns the number replayed. Errors: JI003; JI004 run neither running, partial nor done; JI008 an item is not dead; 22023 a filter that is empty or over 200 bytes; 42501.$$;

CREATE PROCEDURE job_idem.tick()
	LANGUAGE c AS 'MODULE_PATHNAME', 'job_idem_tick';
COMMENT ON PROCEDURE job_idem.tick() IS
$$expires overdue leases, seals keyed runs past close_after, finishes runs, looks after retry budgets and breakers; commits by itself, skips what another tick has
Call it once a minute, from as many places as you like. Errors: 25001 inside a transaction block or outside READ COMMITTED; 42501.$$;

CREATE FUNCTION job_idem.backoff_delay(attempt integer, base interval DEFAULT '30 seconds',
	factor double precision DEFAULT 2, max interval DEFAULT '4 minutes', key text DEFAULT '') RETURNS interval
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_backoff_delay';
COMMENT ON FUNCTION job_idem.backoff_delay(integer, interval, double precision, interval, text) IS
$$the wait before the try that follows `attempt`: d = min(base x factor^(attempt - 1), max), jittered to [d/2, d]; the same key and attempt give the same delay
Errors: 22023 attempt < 1, negative intervals, factor < 1; 22004 NULL.$$;
