-- prints the ratio: a bulk UPDATE's time over that of claiming and marking the same rows one by one
\set QUIET on
\o /dev/null
\set batch 500
\i fill_ours.sql
CREATE OR REPLACE PROCEDURE pg_temp.drain(batches integer) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..batches LOOP
		PERFORM job_idem.mark_done(c.token, c.item_key) FROM job_idem.claim_items('bench') c;
		COMMIT;
	END LOOP;
END $$;
SELECT clock_timestamp() AS t0 \gset
CALL pg_temp.drain(:items / 500);
SELECT clock_timestamp() AS t1 \gset
\i fill_ours.sql
SELECT max(run_id) AS run_id FROM job_idem.run \gset
SELECT clock_timestamp() AS t2 \gset
UPDATE job_idem.item SET state = 'done', done_at = now(), token = 1 WHERE run_id = :run_id;
SELECT clock_timestamp() AS t3 \gset
\o
SELECT round((extract(epoch FROM :'t3'::timestamptz - :'t2') / extract(epoch FROM :'t1'::timestamptz - :'t0'))::numeric, 3);
