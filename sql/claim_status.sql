-- claim_status: what became of a claim, for a client that lost the answer to its COMMIT (F12): outcome and counts
-- of a claim open, completed whole or one by one, released, expired, by slice and by picks; a viewer may ask; it
-- writes nothing.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';
SELECT outcome FROM job_idem.define_job('claim_status', batch_size => 4);
SELECT run_id FROM job_idem.open_run('claim_status', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, 18) i));
SELECT job_idem.seal_run(:run_id);
CREATE FUNCTION pg_temp.status(claim bigint)
RETURNS TABLE (outcome text, n_items bigint, n_done bigint, n_left bigint, deadline interval) LANGUAGE sql AS $$
	SELECT outcome, n_items, n_done, n_left, deadline - '2026-11-30 12:00:00+00' FROM job_idem.claim_status(claim)
$$;
SELECT min(token) AS whole FROM job_idem.claim_items('claim_status') \gset
SELECT min(token) AS one_by_one FROM job_idem.claim_items('claim_status') \gset
SELECT min(token) AS given_back FROM job_idem.claim_items('claim_status', lease => '1 hour') \gset
SELECT min(token) AS lost FROM job_idem.claim_items('claim_status') \gset
SELECT min(token) AS last FROM job_idem.claim_items('claim_status') \gset
-- open, with something done, failed, dead and left
SELECT * FROM pg_temp.status(:one_by_one);
SELECT job_idem.mark_done(:one_by_one, 'm5');
SELECT state FROM job_idem.mark_failed(:one_by_one, 'm6', transient => true);
SELECT state FROM job_idem.mark_failed(:one_by_one, 'm7', transient => false);
SELECT * FROM pg_temp.status(:one_by_one);
SELECT job_idem.mark_done(:one_by_one, 'm8');
SELECT * FROM pg_temp.status(:one_by_one);
-- whole, and in the transaction that does it
BEGIN;
SELECT job_idem.mark_all_done(:whole, 4);
SELECT * FROM pg_temp.status(:whole);
ROLLBACK;
SELECT * FROM pg_temp.status(:whole);
SELECT job_idem.mark_all_done(:whole, 4);
SELECT * FROM pg_temp.status(:whole);
-- given back and lost
SELECT job_idem.mark_done(:given_back, 'm9');
SELECT job_idem.release(:given_back);
SELECT * FROM pg_temp.status(:given_back);
SELECT job_idem.mark_done(:lost, 'm13');
SET job_idem.clock_offset = 300;
SELECT * FROM pg_temp.status(:lost);
CALL job_idem.tick();
SELECT * FROM pg_temp.status(:lost);
SELECT * FROM pg_temp.status(:last);
-- picks
SET job_idem.clock_offset = 1000;
SELECT min(token) AS picks FROM job_idem.claim_items('claim_status') \gset
SELECT * FROM pg_temp.status(:picks);
SELECT item_key AS some FROM job_idem.items WHERE token = :picks ORDER BY item_key LIMIT 1 \gset
SELECT job_idem.mark_done(:picks, :'some');
SELECT * FROM pg_temp.status(:picks);
SELECT job_idem.mark_all_done(:picks, n_left, ARRAY[:'some']) > 0 AS done FROM job_idem.claim_status(:picks);
SELECT n_items = n_done AS whole, outcome, n_left FROM pg_temp.status(:picks);
-- old claims answer for ever the same, whatever happens to their items later
DO $$
DECLARE
	c record;
BEGIN
	LOOP
		PERFORM set_config('job_idem.clock_offset', (current_setting('job_idem.clock_offset')::float8 + 1000)::text, true);
		SELECT token, count(*) AS n INTO c FROM job_idem.claim_items('claim_status') GROUP BY token;
		EXIT WHEN c.token IS NULL;
		PERFORM job_idem.mark_all_done(c.token, c.n);
	END LOOP;
END
$$;
CALL job_idem.tick();
SELECT state FROM job_idem.runs WHERE run_id = :run_id;
SELECT * FROM pg_temp.status(:whole) UNION ALL SELECT * FROM pg_temp.status(:one_by_one)
UNION ALL SELECT * FROM pg_temp.status(:given_back) UNION ALL SELECT * FROM pg_temp.status(:lost);
-- no claim
SELECT * FROM pg_temp.status(0);
SELECT * FROM pg_temp.status(-1);
SELECT * FROM pg_temp.status(9223372036854775807);
SELECT * FROM pg_temp.status(NULL);
-- asking writes nothing, so it may be asked where nothing can be written
BEGIN READ ONLY;
SELECT outcome FROM pg_temp.status(:whole);
COMMIT;
CREATE ROLE regress_claim_status;
SELECT job_idem.grant_access('regress_claim_status', 'viewer');
SET ROLE regress_claim_status;
SELECT outcome, n_done FROM job_idem.claim_status(:whole);
RESET ROLE;
SELECT job_idem.revoke_access('regress_claim_status');
DROP ROLE regress_claim_status;
SELECT a.* FROM job_idem.audit(:run_id) a;
