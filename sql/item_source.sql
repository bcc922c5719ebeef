-- item_source: open_run fills and seals the run by the job's own query; a source that fails leaves the run loading,
-- with the reason and a WARNING, and the next call tries again (F7). It runs as the job's owner, whoever opens the
-- run, in a restricted context with a pinned search_path (P3), and nothing of a failed try stays.
\set VERBOSITY sqlstate
CREATE ROLE regress_item_source_owner;
CREATE ROLE regress_item_source_worker;
SELECT job_idem.grant_access('regress_item_source_owner', 'operator');
CREATE SCHEMA item_source AUTHORIZATION regress_item_source_owner;
SET ROLE regress_item_source_owner;
CREATE TABLE item_source.merchant (key text, since date, region text);
INSERT INTO item_source.merchant SELECT 'm' || i, '2026-11-01', CASE i % 2 WHEN 0 THEN 'north' ELSE 'south' END
FROM generate_series(1, 10) i;
SELECT outcome FROM job_idem.define_job('item_source', batch_size => 4, item_source =>
	$$SELECT key, pg_catalog.jsonb_build_object('date', $1, 'who', current_user,
			'path', pg_catalog.current_setting('search_path'))
		FROM item_source.merchant WHERE since < $1 AND ($2 IS NULL OR region = $2->>'region')
		ORDER BY pg_catalog.length(key), key$$);
SELECT job_idem.grant_worker('item_source', 'regress_item_source_worker');

-- a worker who may not read the table opens: filled and sealed, as the owner; parameters are the date and the params
SET ROLE regress_item_source_worker;
SET search_path = item_source;
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-11-30');
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-11-30', '2026-11-30 north', '{"region": "north"}');
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-10-01');
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-11-30');
SELECT current_user, current_setting('search_path') AS path;
RESET search_path;
RESET ROLE;
SELECT run_key, state, n_items, n_slices, reason, trigger_count
FROM job_idem.runs WHERE job = 'item_source' ORDER BY run_key;
SELECT item_no, item_key, payload
FROM job_idem.items WHERE run_key = '2026-11-30 north' AND job = 'item_source' ORDER BY item_no;
-- a run that is sealed is not filled again
INSERT INTO item_source.merchant VALUES ('m11', '2026-11-01', 'north');
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-11-30');
SELECT n_items FROM job_idem.runs WHERE job = 'item_source' AND run_key = '2026-11-30';

-- a failing source: WARNING with its SQLSTATE, the run is there and says why, and nothing can be claimed
INSERT INTO item_source.merchant VALUES ('', '2026-12-01', 'north');
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-12-31');
\set VERBOSITY terse
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-12-31', run_key => 'other');
SELECT state, n_items, reason, sealed_at FROM job_idem.runs WHERE job = 'item_source' AND run_key = '2026-12-31';
\set VERBOSITY sqlstate
SELECT count(*) FROM job_idem.items WHERE job = 'item_source' AND run_key IN ('2026-12-31', 'other');
SELECT count(*) FROM job_idem.claim_items('item_source', run_key => '2026-12-31');
-- failing still, then mended: the next call of a worker fills and seals
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-12-31');
DELETE FROM item_source.merchant WHERE key = '';
SET ROLE regress_item_source_worker;
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-12-31');
SELECT outcome, state FROM job_idem.open_run('item_source', '2026-12-31', run_key => 'other');
RESET ROLE;
SELECT run_key, state, n_items, n_slices, reason, trigger_count FROM job_idem.runs
WHERE job = 'item_source' AND run_key IN ('2026-12-31', 'other') ORDER BY run_key;
SELECT verb, count(*) FROM job_idem.event e JOIN job_idem.runs r USING (run_id)
WHERE r.job = 'item_source' AND r.run_key = '2026-12-31' GROUP BY verb ORDER BY verb;

-- kinds of failure: duplicate keys are none; the table is gone, rights are gone, a division in a late chunk
INSERT INTO item_source.merchant VALUES ('m1', '2026-11-01', 'south');
SELECT outcome, state FROM job_idem.open_run('item_source', '2027-01-01');
DELETE FROM item_source.merchant WHERE ctid = (SELECT max(ctid) FROM item_source.merchant WHERE key = 'm1');
ALTER TABLE item_source.merchant OWNER TO CURRENT_USER;
SELECT outcome, state FROM job_idem.open_run('item_source', '2027-01-02');
ALTER TABLE item_source.merchant RENAME TO merchants;
SELECT outcome, state FROM job_idem.open_run('item_source', '2027-01-02');
SELECT reason ~ '42P01' AS names_it FROM job_idem.runs WHERE job = 'item_source' AND run_key = '2027-01-02';
SELECT outcome FROM job_idem.define_job('item_source late error', item_source =>
	$$SELECT 'm' || i || '/' || 1 / (10001 - i) FROM pg_catalog.generate_series(1, 10001) i$$);
SELECT outcome, state FROM job_idem.open_run('item_source late error', '2026-11-30');
SELECT count(*) FROM job_idem.items WHERE job = 'item_source late error';
-- inside a transaction the failure rolls back its own part only
ALTER TABLE item_source.merchants RENAME TO merchant;
BEGIN;
CREATE TEMP TABLE kept AS SELECT 1 AS n;
SELECT outcome, state FROM job_idem.open_run('item_source', '2027-01-03');
SELECT count(*) FROM kept;
COMMIT;
ALTER TABLE item_source.merchant OWNER TO regress_item_source_owner;
SELECT outcome, state FROM job_idem.open_run('item_source', '2027-01-03');

-- items may have been added by hand before the source is mended; they stay, and are not doubled
ALTER TABLE item_source.merchant RENAME TO merchants;
SELECT run_id, state FROM job_idem.open_run('item_source', '2027-01-04') \gset
SELECT * FROM job_idem.add_items(:run_id, '{by hand}');
ALTER TABLE item_source.merchants RENAME TO merchant;
SELECT outcome, state FROM job_idem.open_run('item_source', '2027-01-04');
SELECT n_items, n_slices FROM job_idem.runs WHERE run_id = :run_id;
SELECT * FROM job_idem.audit(:run_id);

-- what a restricted context forbids fails like anything else: a source cannot take another role, nor leave a cursor
-- or a temporary table in the session of whoever opens the run
SET ROLE regress_item_source_owner;
CREATE FUNCTION item_source.escape(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE what;
	RETURN 'escaped';
END
$$;
SELECT outcome FROM job_idem.define_job('item_source escapes',
	item_source => $$SELECT item_source.escape($2->>'what')$$);
RESET ROLE;
SELECT outcome, state FROM job_idem.open_run('item_source escapes', '2026-11-30', 'a', '{"what": "RESET ROLE"}');
SELECT outcome, state
FROM job_idem.open_run('item_source escapes', '2026-11-30', 'b', '{"what": "RESET SESSION AUTHORIZATION"}');
SELECT outcome, state
FROM job_idem.open_run('item_source escapes', '2026-11-30', 'c', '{"what": "CREATE TEMP TABLE left_behind ()"}');
SELECT outcome, state FROM job_idem.open_run('item_source escapes', '2026-11-30', 'd', '{"what": "COMMIT"}');
-- a setting it makes ends with it
SELECT outcome, state
FROM job_idem.open_run('item_source escapes', '2026-11-30', 'e', '{"what": "SET search_path = evil"}');
SELECT current_setting('search_path') AS path, current_user = session_user AS myself;

-- a cancelled run is not filled
ALTER TABLE item_source.merchant RENAME TO merchants;
SELECT run_id, state FROM job_idem.open_run('item_source', '2027-01-05') \gset
SELECT job_idem.cancel_run(:run_id, 'not wanted');
ALTER TABLE item_source.merchants RENAME TO merchant;
SELECT outcome, state FROM job_idem.open_run('item_source', '2027-01-05');
SELECT reason FROM job_idem.runs WHERE run_id = :run_id;

SELECT count(*) FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) WHERE r.job LIKE 'item_source%';
SET client_min_messages = warning;
DROP SCHEMA item_source CASCADE;
SELECT job_idem.revoke_access('regress_item_source_owner');
SELECT job_idem.revoke_worker('item_source', 'regress_item_source_worker');
DROP ROLE regress_item_source_worker, regress_item_source_owner;
