-- The tables of the daily settlement, twice: for the accident in schema accident, as such tables are found in the field,
-- and for job_idem in public, with the natural key that they should have. Variables: business_date, accident.
\set ON_ERROR_STOP 1
SET client_min_messages = warning;

CREATE INDEX ON pgbench_history (aid, mtime);
ANALYZE pgbench_history;

CREATE VIEW due AS
	SELECT aid AS merchant_id, mtime::date AS settle_date, sum(delta) AS amount
	FROM pgbench_history GROUP BY aid, mtime::date;

CREATE TABLE account (merchant_id integer PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
INSERT INTO account SELECT aid FROM pgbench_accounts;
CREATE TABLE settlement (
	merchant_id integer NOT NULL REFERENCES account,
	settle_date date NOT NULL,
	amount bigint NOT NULL,
	UNIQUE (merchant_id, settle_date));

CREATE SCHEMA accident;
CREATE VIEW accident.due AS
	SELECT * FROM public.due WHERE settle_date = :'business_date' ORDER BY merchant_id LIMIT :accident;
CREATE TABLE accident.account (LIKE public.account INCLUDING ALL);
INSERT INTO accident.account SELECT * FROM public.account;
CREATE TABLE accident.settlement (merchant_id integer NOT NULL, settle_date date NOT NULL, amount bigint NOT NULL);

-- The workers' role: it may do the business, and nothing else. A frozen worker shall not keep its locks, nor its claim,
-- for ever: the server ends its transaction.
SELECT 'CREATE ROLE settler LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'settler') \gexec
ALTER ROLE settler SET idle_in_transaction_session_timeout = '10s';
GRANT USAGE ON SCHEMA accident TO settler;
GRANT SELECT ON pgbench_history, due, accident.due TO settler;
GRANT SELECT, INSERT ON settlement, accident.settlement TO settler;
GRANT SELECT, UPDATE ON account, accident.account TO settler;
