-- The one clock.

CREATE FUNCTION job_idem.now() RETURNS timestamptz
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'job_idem_now';
COMMENT ON FUNCTION job_idem.now() IS 'the one clock of all leases and deadlines: the server''s, at this moment, moved by job_idem.clock_offset in tests';
