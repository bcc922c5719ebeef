-- What can be asked about the protocol itself, and the proof that a run kept to it.

CREATE FUNCTION job_idem.item_transitions() RETURNS TABLE (from_state text, to_state text, verb text)
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_item_transitions';
COMMENT ON FUNCTION job_idem.item_transitions() IS 'the lawful changes of an item''s effective state; no other happens';

CREATE FUNCTION job_idem.run_transitions() RETURNS TABLE (from_state text, to_state text, verb text)
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_run_transitions';
COMMENT ON FUNCTION job_idem.run_transitions() IS 'the lawful changes of a run''s state; another one raises JI008';

CREATE FUNCTION job_idem.audit(run_id bigint)
	RETURNS TABLE (invariant text, item_key text, token bigint, detail text)
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1 AS 'MODULE_PATHNAME', 'job_idem_audit';
COMMENT ON FUNCTION job_idem.audit(bigint) IS
$$every broken invariant of a run, in one snapshot; no row is the proof that there is none
Errors: JI003; 42501.$$;
