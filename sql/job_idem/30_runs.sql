-- Runs: open, load, seal, cancel.

CREATE FUNCTION job_idem.open_run(job text, business_date date, run_key text DEFAULT NULL, params jsonb DEFAULT NULL,
	priority integer DEFAULT 0, OUT run_id bigint, OUT outcome text, OUT state text)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_open_run';
COMMENT ON FUNCTION job_idem.open_run(text, date, text, jsonb, integer) IS
$$opens the run of a business date, or finds it; every call is counted as a trigger
run_key: the business date by default. outcome: new or known. If the job has an item_source it is run, and the run sealed; if that fails the run stays loading, with the reason and a WARNING, and the next call tries again.
Waits only while the run's first open_run is uncommitted. A repeated call does not change the priority (larger is more urgent).
Errors: JI002; JI004 job dropped; JI006 the run key is known with other params or another business date; 22023 bad date or key; 42501.$$;

CREATE FUNCTION job_idem.add_items(run_id bigint, keys text[], payloads jsonb[] DEFAULT NULL,
	OUT n_new bigint, OUT n_known bigint)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_add_items';
COMMENT ON FUNCTION job_idem.add_items(bigint, text[], jsonb[]) IS
$$adds items by key; keys that are there already, or repeated in the call, count as known
Before the seal: numbered in the order given. After it, while the run is running: worked too, due at once (READ COMMITTED only).
All or nothing. Errors: JI003; JI004 run cancelled, finished or past close_after; JI006 known key with another payload; JI009 key over 512 bytes or payload over job_idem.max_payload; 22004 NULL key; 22023 empty key, or arrays of different length; 25001; 42501.$$;

CREATE FUNCTION job_idem.load_items(run_id bigint, query text, OUT n_new bigint, OUT n_known bigint)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_load_items';
COMMENT ON FUNCTION job_idem.load_items(bigint, text) IS
$$adds the items that a query returns: item_key text and, if it likes, payload jsonb; the query runs as the caller
Otherwise as add_items. Errors: as add_items, and 42804 other columns.$$;

CREATE FUNCTION job_idem.seal_run(run_id bigint, OUT n_items bigint, OUT n_slices integer)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_seal_run';
COMMENT ON FUNCTION job_idem.seal_run(bigint) IS
$$freezes the list of items and its slices and lets claims in; closes a keyed run to new keys
A second call changes nothing. Waits for open loads of the run. Errors: JI003; JI004 cancelled; 42501.$$;

CREATE FUNCTION job_idem.cancel_run(run_id bigint, reason text, force boolean DEFAULT false) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_cancel_run';
COMMENT ON FUNCTION job_idem.cancel_run(bigint, text, boolean) IS
$$ends a run for good: no claims from now on
Leases held may still be completed; with force every later verb on them raises JI004, and tick expires them. true if this call changed anything (a second one with force after one without does). Errors: JI003; JI004 already done; 22004 no reason; 42501.$$;

CREATE FUNCTION job_idem.is_done(job text, business_date date, run_key text DEFAULT NULL) RETURNS boolean
	LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_is_done';
COMMENT ON FUNCTION job_idem.is_done(text, date, text) IS
$$is this run done: true for state done only, for ever
Errors: JI002; 42501.$$;
