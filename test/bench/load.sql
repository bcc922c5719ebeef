-- prints the ratio: INSERT ... SELECT into a bare table over load_items of the same rows; medians of 3
\set QUIET on
\o /dev/null
SET client_min_messages = warning;
SELECT * FROM job_idem.define_job('load');
CREATE TABLE source AS SELECT 'merchant-' || g AS item_key, jsonb_build_object('n', g) AS payload
FROM generate_series(1, :items) g;
CREATE TEMP TABLE times (kind text, seconds double precision);
CREATE OR REPLACE PROCEDURE pg_temp.measure() LANGUAGE plpgsql AS $$
DECLARE
	t timestamptz;
	id bigint;
BEGIN
	SELECT run_id INTO id FROM job_idem.open_run('load', '2026-11-30', gen_random_uuid()::text);
	t := clock_timestamp();
	PERFORM job_idem.load_items(id, 'SELECT item_key, payload FROM source');
	INSERT INTO times VALUES ('ours', extract(epoch FROM clock_timestamp() - t));
	COMMIT;
	DROP TABLE IF EXISTS bare;
	CREATE TABLE bare (run_id bigint NOT NULL, item_no bigint NOT NULL, token bigint, due_at timestamptz,
		done_at timestamptz, attempts smallint NOT NULL DEFAULT 0, lost smallint NOT NULL DEFAULT 0,
		state text NOT NULL DEFAULT 'pending', item_key text COLLATE "C" NOT NULL, payload jsonb, result jsonb,
		PRIMARY KEY (run_id, item_no), UNIQUE (run_id, item_key)) WITH (fillfactor = 90);
	t := clock_timestamp();
	INSERT INTO bare (run_id, item_no, item_key, payload)
		SELECT 1, row_number() OVER (), item_key, payload FROM source;
	INSERT INTO times VALUES ('bare', extract(epoch FROM clock_timestamp() - t));
	COMMIT;
END $$;
CALL pg_temp.measure();
CALL pg_temp.measure();
CALL pg_temp.measure();
\o
SELECT round((percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) FILTER (WHERE kind = 'bare')
	/ percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) FILTER (WHERE kind = 'ours'))::numeric, 3) FROM times;
DROP TABLE source, bare;
