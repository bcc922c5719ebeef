-- Work: claims and the verbs of a claim's holder. Every verb after the claim needs the token, from any connection.

CREATE FUNCTION job_idem.claim_items(job text, worker text DEFAULT NULL, business_date date DEFAULT NULL,
	run_key text DEFAULT NULL, lease interval DEFAULT NULL, version integer DEFAULT NULL,
	bind boolean DEFAULT false)
	RETURNS TABLE (token bigint, run_id bigint, business_date date, run_key text, item_key text, payload jsonb,
		attempt integer, deadline timestamptz)
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'job_idem_claim_items';
COMMENT ON FUNCTION job_idem.claim_items(text, text, date, text, interval, integer, boolean) IS
$$claims up to batch_size items of one run, all under one token, and waits for nobody; no rows: nothing to do now
Runs by priority, then business date; business_date or run_key narrows, and version: only runs of that version of the job. lease overrides the job's. attempt: 1 for the first try. worker: a name for people, cut at 200 bytes; it owns nothing.
bind: the claim ends with its backend, too, whatever its deadline, and its items are due at once when they are lost for the first time. Not behind a transaction-mode pooler, whose backends outlive their clients.
An idle claim (READ COMMITTED, nothing written yet) heals: it expires one overdue lease and finishes runs.
Errors: JI002; 22023 lease not positive; 40001 above READ COMMITTED in place of a wrong empty answer; 42501.$$;

CREATE FUNCTION job_idem.claim_item(job text, business_date date, item_key text, worker text DEFAULT NULL,
	lease interval DEFAULT NULL, payload jsonb DEFAULT NULL, run_key text DEFAULT NULL,
	OUT outcome text, OUT token bigint, OUT attempt integer, OUT result jsonb, OUT deadline timestamptz)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_claim_item';
COMMENT ON FUNCTION job_idem.claim_item(text, date, text, text, interval, jsonb, text) IS
$$claims one key, waits for nobody; the idempotency key for any caller. A keyed job's run is opened, and a new key added, by the call
outcome: claimed (token, attempt, deadline set) | done (result set) | busy (somebody has it) | waiting (not due yet, or not yet claimed with its slice) | dead | closed (the run takes no new keys) | mismatch (known with another payload; an omitted payload is not compared).
Errors: JI002; JI003 a batch job's run is not there; 22004, 22023 bad key; JI009 too long; 25001 a new key above READ COMMITTED; 42501.$$;

CREATE FUNCTION job_idem.mark_all_done(token bigint, items bigint, except_keys text[] DEFAULT '{}') RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_mark_all_done';
COMMENT ON FUNCTION job_idem.mark_all_done(bigint, bigint, text[]) IS
$$completes all that this claim returned, `items` in number, but for except_keys, which were reported otherwise; in the transaction of the business write
items + the number of except_keys must be what was claimed, and exactly `items` must be left; else nothing happens. Returns items.
Errors: JI001 not, or no longer, the caller's claim, or the numbers differ; JI010 completed already, wholly or partly; JI004 forced cancel; 42501.$$;

CREATE FUNCTION job_idem.mark_done(token bigint, item_key text, result jsonb DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_mark_done';
COMMENT ON FUNCTION job_idem.mark_done(bigint, text, jsonb) IS
$$completes one item, in the transaction of the business write; succeeds once
Returns 1. Errors: JI001 not, or no longer, the caller's item; JI010 already done under this token; JI004 forced cancel; JI009 result over job_idem.max_payload; 42501.$$;

CREATE FUNCTION job_idem.mark_done_many(token bigint, item_keys text[], results jsonb[] DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_mark_done_many';
COMMENT ON FUNCTION job_idem.mark_done_many(bigint, text[], jsonb[]) IS
$$completes several items, all or nothing, in the transaction of the business write; repeated keys count once
results: one for each key, or NULL. Returns the number of items newly done. Errors: as mark_done; JI010 if those not newly done are all done under this token, else JI001; 22023 arrays of different length.$$;

CREATE FUNCTION job_idem.mark_failed(token bigint, item_key text, message text DEFAULT NULL, sqlstate text DEFAULT NULL,
	error_class text DEFAULT NULL, transient boolean DEFAULT NULL, OUT state text, OUT retry_at timestamptz)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_mark_failed';
COMMENT ON FUNCTION job_idem.mark_failed(bigint, text, text, text, text, boolean) IS
$$reports a failed try: the item waits for a retry with back-off, or is a dead letter
transient, if given, decides; else the most specific rule of set_error_rule; else SQLSTATE classes 08, 40, 53, 57, 58 and 55P03 are transient and others business (never tried again); without a SQLSTATE the kind is unknown, treated as the job's unknown_as says. Texts are cut where too long; none makes the call fail.
state: waiting (retry_at set) or dead. Errors: JI001 not, or no longer, the caller's item; JI010 already done under this token; JI004 forced cancel; 42501.$$;

CREATE FUNCTION job_idem.mark_failed_many(token bigint, item_keys text[], messages text[] DEFAULT NULL,
	sqlstates text[] DEFAULT NULL, error_classes text[] DEFAULT NULL, transients boolean[] DEFAULT NULL)
	RETURNS TABLE (item_key text, state text, retry_at timestamptz)
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'job_idem_mark_failed_many';
COMMENT ON FUNCTION job_idem.mark_failed_many(bigint, text[], text[], text[], text[], boolean[]) IS
$$reports several failed tries, each as mark_failed does, all or nothing
Each array has one element for each key, NULL where there is none, or is left out. Of a repeated key the first report counts. Returns a row for each item. Errors: as mark_failed; JI001 or JI010 if one item is not to be finished under this token; 22023 arrays of different length; 22004 a key is NULL.$$;

CREATE FUNCTION job_idem.postpone(token bigint, item_key text, delay interval) RETURNS timestamptz
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_postpone';
COMMENT ON FUNCTION job_idem.postpone(bigint, text, interval) IS
$$gives one item back, to be claimed again after the delay; counts no attempt
Returns when it is due. Errors: JI001; JI010; JI004 forced cancel; 22023 NULL, negative or infinite delay; 42501.$$;

CREATE FUNCTION job_idem.release(token bigint) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_release';
COMMENT ON FUNCTION job_idem.release(bigint) IS
$$gives back what is unfinished of a claim, due at once; counts no attempt
Waits for threads that are at work under the token. Returns the number of items given back; 0 for a completed claim. Errors: JI001; JI004 forced cancel; 42501.$$;

CREATE FUNCTION job_idem.heartbeat(token bigint, lease interval DEFAULT NULL) RETURNS timestamptz
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_heartbeat';
COMMENT ON FUNCTION job_idem.heartbeat(bigint, interval) IS
$$moves the deadline to now + lease (by default the job's), never past claimed_at + max_lease; never waits
Revives an overdue claim that nobody has taken back. Answers quietly, with the deadline as it is, for a claim that is completed or just being completed or expired. Returns the deadline. Errors: JI001 not, or no longer, the caller's claim; JI004 forced cancel; 22023; 42501.$$;

CREATE FUNCTION job_idem.hold(token bigint, item_key text DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_hold';
COMMENT ON FUNCTION job_idem.hold(bigint, text) IS
$$makes a claim the transaction's current claim: until its end no takeover comes between; with a key no other thread has that item either
Errors: JI001 not, or no longer, the caller's, or past claimed_at + max_lease; JI010 already completed; JI004 forced cancel; 42501. PREPARE TRANSACTION is refused afterwards.$$;

CREATE FUNCTION job_idem.claim_status(token bigint, OUT outcome text, OUT n_items bigint, OUT n_done bigint,
	OUT n_left bigint, OUT deadline timestamptz)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_claim_status';
COMMENT ON FUNCTION job_idem.claim_status(bigint) IS
$$what became of a claim: for a client that lost the answer to its COMMIT
outcome: open, completed, released or expired; n_done: items done under this token; n_left: still to be done under it. Errors: JI001 no such claim; 42501.$$;
