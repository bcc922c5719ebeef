-- Operators: leases, dead letters, the tick.

CREATE FUNCTION job_idem.expire_lease(token bigint, reason text) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_expire_lease';
COMMENT ON FUNCTION job_idem.expire_lease(bigint, text) IS
$$ends a claim before its time, on record; its unfinished items come back as after an expiry
Returns their number; 0 if the claim was closed already. Errors: JI001 no such claim; 55P03 a transaction is at work under it; 22004 no reason; 42501.$$;

CREATE FUNCTION job_idem.replay(dead_letter_id bigint, note text DEFAULT NULL, payload jsonb DEFAULT NULL)
	RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_replay';
COMMENT ON FUNCTION job_idem.replay(bigint, text, jsonb) IS
$$returns a dead item once, under its own key and with new tries, due at once; a partial run is running again
payload, if given, replaces the item's. true if this call did it; false, with a NOTICE, if the dead letter was resolved already. Errors: P0002 no such dead letter; JI004 run cancelled; JI009; 42501.$$;

CREATE FUNCTION job_idem.discard(dead_letter_id bigint, note text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_discard';
COMMENT ON FUNCTION job_idem.discard(bigint, text) IS
$$closes a dead letter for good; with the last one a partial run is done
true if this call did it; false, with a NOTICE, if it was resolved already. Errors: P0002 no such dead letter; 42501.$$;

CREATE PROCEDURE job_idem.tick()
	LANGUAGE c AS 'MODULE_PATHNAME', 'job_idem_tick';
COMMENT ON PROCEDURE job_idem.tick() IS
$$expires overdue leases, seals keyed runs past close_after and finishes runs; commits by itself, skips what another tick has
Call it once a minute, from as many places as you like. Errors: 25001 inside a transaction block or outside READ COMMITTED; 42501.$$;

CREATE FUNCTION job_idem.backoff_delay(attempt integer, base interval DEFAULT '30 seconds',
	factor double precision DEFAULT 2, max interval DEFAULT '4 minutes', key text DEFAULT '') RETURNS interval
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_backoff_delay';
COMMENT ON FUNCTION job_idem.backoff_delay(integer, interval, double precision, interval, text) IS
$$the wait before the try that follows `attempt`: d = min(base x factor^(attempt - 1), max), jittered to [d/2, d]; the same key and attempt give the same delay
Errors: 22023 attempt < 1, negative intervals, factor < 1; 22004 NULL.$$;
