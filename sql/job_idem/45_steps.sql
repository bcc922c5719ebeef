-- Steps within an item: what a rerun of the item need not do again. A step is recorded in the transaction of its effect,
-- so there is one of the two never without the other; it stays whatever becomes of the try, and of the item.

CREATE TABLE job_idem.item_step (
	run_id bigint NOT NULL,
	item_key text COLLATE "C" NOT NULL,
	step text COLLATE "C" NOT NULL CHECK (step <> '' AND pg_catalog.octet_length(step) <= 512),
	result jsonb,
	done_at timestamptz NOT NULL,
	token bigint NOT NULL,
	PRIMARY KEY (run_id, item_key, step)
);
COMMENT ON TABLE job_idem.item_step IS 'steps of items that are done, each with its result and the claim that it was done under';

SELECT pg_catalog.pg_extension_config_dump('job_idem.item_step', '');

CREATE FUNCTION job_idem.step_done(token bigint, item_key text, step text, result jsonb DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_step_done';
COMMENT ON FUNCTION job_idem.step_done(bigint, text, text, jsonb) IS
$$records a step of an item as done, in the transaction of the step's effect; succeeds once for each step of an item
step: a name of the caller's, at most 512 bytes. result: what a rerun needs to know of it (steps). The item is not completed by it; a replay keeps its steps. The claim is the transaction's current claim afterwards, as after hold.
Errors: JI001 not, or no longer, the caller's item, or past claimed_at + max_lease; JI010 the step, or the item, is done already; JI004 forced cancel; JI009 step too long, or result over job_idem.max_payload; 22004, 22023 NULL, empty; 42501. PREPARE TRANSACTION is refused afterwards.$$;

CREATE FUNCTION job_idem.steps(token bigint, item_key text)
	RETURNS TABLE (step text, result jsonb, done_at timestamptz, token bigint)
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'job_idem_steps';
COMMENT ON FUNCTION job_idem.steps(bigint, text) IS
$$the steps of an item that are done, in order, with their results: what a rerun skips
Whichever claim of the run they were done under (the token returned is that one's); no rows for a key that the run does not have. The claim need not be open. Errors: JI001 no such claim; 22004 NULL; 42501.$$;
