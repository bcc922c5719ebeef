-- complain if the script is sourced in psql, rather than by CREATE EXTENSION
\echo Use "CREATE EXTENSION job_idem" to load this file. \quit

-- CREATE without IF NOT EXISTS: a schema that somebody prepared makes the
-- install fail instead of being adopted together with what is in it.
CREATE SCHEMA job_idem;
REVOKE ALL ON SCHEMA job_idem FROM PUBLIC;

COMMENT ON SCHEMA job_idem IS 'ledger, verbs and views of the job_idem extension';
