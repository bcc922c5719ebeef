-- add_items and seal_run: items come in parts and are frozen by the seal (F7), numbered onward without holes; known
-- and repeated keys are counted, a known key with another payload is an error (F2); whatever is wrong with one row,
-- nothing of the call stays (R12, C12, C45); items that come after the seal are worked too.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('add_items', batch_size => 4);
SELECT run_id FROM job_idem.open_run('add_items', '2026-11-30') \gset
CREATE TEMP VIEW manifest AS
SELECT row_number() OVER (ORDER BY item_no) AS row, item_no, item_key, state, payload
FROM job_idem.item WHERE run_id = (SELECT run_id
FROM job_idem.runs WHERE job = 'add_items' AND run_key = '2026-11-30');

-- in parts, in the order given; repeated and known keys count once each time they are named
SELECT * FROM job_idem.add_items(:run_id, '{c,a,b}');
SELECT * FROM job_idem.add_items(:run_id, '{d,a,d,e,d,c}');
SELECT * FROM job_idem.add_items(:run_id, '{a,b,c}');
SELECT * FROM job_idem.add_items(:run_id, '{}');
SELECT * FROM job_idem.add_items(:run_id, '{p,q,r}', ARRAY['{"x": 1}', NULL, 'null']::jsonb[]);
TABLE manifest;

-- many at a time, most of them known: no holes
SELECT * FROM job_idem.add_items(:run_id, (SELECT array_agg('k' || i) FROM generate_series(1, 1000) i));
SELECT * FROM job_idem.add_items(:run_id, (SELECT array_agg('k' || i ORDER BY i) FROM generate_series(401, 1200) i));
SELECT count(*), min(item_no), max(item_no), count(DISTINCT item_key) AS keys FROM manifest;
SELECT item_no, item_key FROM manifest WHERE item_key IN ('k1', 'k1000', 'k1001', 'k1200') ORDER BY 1;
SELECT n_items, n_slices, state FROM job_idem.runs WHERE run_id = :run_id;

-- a known key with the same payload is known; with another, or with none where one is stored, JI006; payloads left
-- out are not compared
SELECT * FROM job_idem.add_items(:run_id, '{p,q,r}', ARRAY['{"x": 1.00}', NULL, 'null']::jsonb[]);
SELECT * FROM job_idem.add_items(:run_id, '{p,q,r}');
CREATE TEMP TABLE before AS TABLE manifest;
SELECT * FROM job_idem.add_items(:run_id, '{new,p}', ARRAY['1', '{"x": 2}']::jsonb[]);
SELECT * FROM job_idem.add_items(:run_id, '{new,p}', ARRAY['1', NULL]::jsonb[]);
SELECT * FROM job_idem.add_items(:run_id, '{new,q}', ARRAY['1', 'null']::jsonb[]);
SELECT * FROM job_idem.add_items(:run_id, '{new,new}', ARRAY['1', '2']::jsonb[]);
-- bad keys and payloads, the last of the call
SELECT * FROM job_idem.add_items(:run_id, '{new,NULL}');
SELECT * FROM job_idem.add_items(:run_id, '{new,""}');
SELECT * FROM job_idem.add_items(:run_id, ARRAY['new', repeat('k', 513)]);
SELECT * FROM job_idem.add_items(:run_id, ARRAY['new', repeat('é', 257)]);
SELECT *
FROM job_idem.add_items(:run_id, ARRAY['new', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 320) i)]);
SELECT * FROM job_idem.add_items(:run_id, '{new,new2}', ARRAY['1']::jsonb[]);
SELECT * FROM job_idem.add_items(:run_id, '{new}', '{}');
SELECT * FROM job_idem.add_items(:run_id, '{new,new2}', ARRAY['1', to_jsonb(repeat('x', 1024 * 1024 + 1))]);
SELECT * FROM job_idem.add_items(:run_id, NULL);
SELECT * FROM job_idem.add_items(NULL, '{new}');
SELECT * FROM job_idem.add_items(0, '{new}');
SELECT * FROM job_idem.add_items(-9223372036854775808, '{new}');
(TABLE manifest EXCEPT TABLE before) UNION ALL (TABLE before EXCEPT TABLE manifest);

-- the longest key, in bytes; keys of blanks are distinct; case and accents count
SELECT * FROM job_idem.add_items(:run_id, ARRAY[repeat('é', 256), ' ', '  ', E'\t', 'K1', 'é', 'e']);
-- as large a payload as may be; the limit is a setting of the server
SELECT * FROM job_idem.add_items(:run_id, '{large}', ARRAY[to_jsonb(repeat('x', 1000 * 1024))]);
SET job_idem.max_payload = '2MB';
SELECT * FROM job_idem.add_items(:run_id, '{larger}', ARRAY[to_jsonb(repeat('x', 2000 * 1024))]);
SET job_idem.max_payload = '1kB';
SELECT * FROM job_idem.add_items(:run_id, '{small}', ARRAY[to_jsonb(repeat('x', 2000))]);
RESET job_idem.max_payload;

-- a part that is rolled back leaves no hole either
BEGIN;
SELECT * FROM job_idem.add_items(:run_id, '{gone,gone2}');
ROLLBACK;
SELECT * FROM job_idem.add_items(:run_id, '{last}');
SELECT count(*), max(item_no) FROM manifest;

-- nothing is handed out before the seal; the seal counts, and a second one changes nothing
SELECT count(*) FROM job_idem.claim_items('add_items');
SELECT * FROM job_idem.seal_run(:run_id);
SELECT sealed_at AS first_seal FROM job_idem.runs WHERE run_id = :run_id \gset
SELECT * FROM job_idem.seal_run(:run_id);
SELECT state, n_items, n_slices, batch_size, sealed_at = :'first_seal' AS sealed_once
FROM job_idem.runs WHERE run_id = :run_id;
SELECT count(*) FROM job_idem.event WHERE run_id = :run_id AND verb = 'seal_run';
SELECT * FROM job_idem.seal_run(0);
SELECT * FROM job_idem.seal_run(NULL);
-- the batch size is frozen with it
SELECT outcome FROM job_idem.define_job('add_items', batch_size => 1000);
SELECT batch_size, n_slices FROM job_idem.runs WHERE run_id = :run_id;

-- late items: waiting, due at once, out of the slices, whose number stays; known keys are found in either part
SELECT * FROM job_idem.add_items(:run_id, '{late1,a,late2,late1}');
SELECT * FROM job_idem.add_items(:run_id, '{late2,late3}');
SELECT item_no < 0 AS no_slice, item_key, state FROM manifest WHERE item_key LIKE 'late%' ORDER BY item_key;
SELECT * FROM job_idem.add_items(:run_id, '{late4,p}', ARRAY['1', '2']::jsonb[]);
SELECT * FROM job_idem.add_items(:run_id, '{late4,late1}', ARRAY['1', '2']::jsonb[]);
SELECT * FROM job_idem.add_items(:run_id, '{late4,""}');
SELECT count(*) FROM manifest WHERE item_key = 'late4';
SELECT n_items, n_late, n_slices FROM job_idem.run WHERE run_id = :run_id;
-- above READ COMMITTED refused
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM job_idem.add_items(:run_id, '{late4}');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM job_idem.add_items(:run_id, '{late4}');
ROLLBACK;
-- and so it is past close_after, which counts from the business date; the last moment still counts
SET job_idem.clock_freeze = '2026-12-07 00:00:00+00';
SELECT * FROM job_idem.add_items(:run_id, '{late4}');
SELECT item_no < 0 AS no_slice, due_at = job_idem.now() AS due
FROM job_idem.items WHERE run_id = :run_id AND item_key = 'late4';
SET job_idem.clock_freeze = '2026-12-07 00:00:00.000001+00';
SELECT * FROM job_idem.add_items(:run_id, '{late5}');

-- all of them are handed out once, and then the run ends and takes no more
CREATE TEMP TABLE given (item_key text, payload jsonb);
DO $$
DECLARE
	t bigint;
	n bigint;
BEGIN
	LOOP
		WITH c AS (SELECT token, item_key, payload FROM job_idem.claim_items('add_items')),
			g AS (INSERT INTO given SELECT item_key, payload FROM c)
		SELECT min(token), count(*) INTO t, n FROM c;
		EXIT WHEN n = 0;
		ASSERT n <= 4;
		PERFORM job_idem.mark_all_done(t, n);
	END LOOP;
END
$$;
SELECT count(*), count(DISTINCT item_key) AS keys,
	(SELECT count(*) FROM manifest) AS items,
	(SELECT count(*) FROM given g JOIN manifest m USING (item_key)
WHERE m.payload IS DISTINCT FROM g.payload) AS other_payload
FROM given;
CALL job_idem.tick();
SELECT state, n_items, n_done, n_dead FROM job_idem.runs WHERE run_id = :run_id;
SELECT * FROM job_idem.add_items(:run_id, '{too_late}');
SELECT * FROM job_idem.add_items(:run_id, '{a}');
SELECT * FROM job_idem.seal_run(:run_id);
SELECT * FROM job_idem.audit(:run_id);

-- a run without items can be sealed, and is done
SELECT run_id AS empty FROM job_idem.open_run('add_items', '2026-12-01') \gset
SELECT * FROM job_idem.seal_run(:empty);
CALL job_idem.tick();
SELECT state, n_items, n_done, n_dead FROM job_idem.runs WHERE run_id = :empty;
SELECT * FROM job_idem.audit(:empty);

-- a cancelled run takes nothing, and cannot be sealed
SELECT run_id AS cancelled FROM job_idem.open_run('add_items', '2026-12-02') \gset
SELECT job_idem.cancel_run(:cancelled, 'not wanted');
SELECT * FROM job_idem.add_items(:cancelled, '{a}');
SELECT * FROM job_idem.seal_run(:cancelled);

-- a keyed run takes items before its seal, which are due at once, and none after it
SELECT outcome FROM job_idem.define_job('add_items keyed', kind => 'keyed');
SELECT run_id AS keyed FROM job_idem.open_run('add_items keyed', '2026-11-30') \gset
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT * FROM job_idem.add_items(:keyed, '{a,b,a}');
SELECT item_no < 0 AS no_slice, item_key, state, due_at = job_idem.now() AS due
FROM job_idem.items WHERE run_id = :keyed ORDER BY item_key;
SELECT * FROM job_idem.seal_run(:keyed);
SELECT * FROM job_idem.add_items(:keyed, '{c}');
SELECT * FROM job_idem.add_items(:keyed, '{a}');
SELECT n_items, n_late, n_slices, state FROM job_idem.run WHERE run_id = :keyed;
SELECT * FROM job_idem.audit(:keyed);
