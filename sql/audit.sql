-- audit: a run that kept to the protocol gives no row, and every invariant that is broken is named (O10). Each is broken
-- here by a superuser, with all constraints and triggers gone, and the damage is undone.
\set VERBOSITY sqlstate
SET job_idem.clock_freeze = '2026-11-30 12:00:00+00';

-- A run with something of everything. Slices 0 to 4 are claimed, 5 and 6 not yet.
SELECT outcome FROM job_idem.define_job('audit', batch_size => 4, lease => '10 minutes', backoff_base => '1 second');
SELECT run_id FROM job_idem.open_run('audit', '2026-11-30') \gset
SELECT n_new FROM job_idem.add_items(:run_id, ARRAY(SELECT 'i' || to_char(n, 'fm00') FROM generate_series(1, 26) n));
SELECT * FROM job_idem.audit(:run_id);
SELECT n_slices FROM job_idem.seal_run(:run_id);
SELECT token AS t0 FROM job_idem.claim_items('audit') LIMIT 1 \gset
SELECT token AS t1 FROM job_idem.claim_items('audit') LIMIT 1 \gset
SELECT token AS t2 FROM job_idem.claim_items('audit') LIMIT 1 \gset
SELECT token AS t3 FROM job_idem.claim_items('audit') LIMIT 1 \gset
SELECT token AS t4 FROM job_idem.claim_items('audit') LIMIT 1 \gset
SELECT * FROM job_idem.audit(:run_id);
-- slice 0 is completed whole, slice 1 item by item, slice 2 is released, slice 3 expires, slice 4 stays open
SELECT job_idem.mark_all_done(:t0, 4);
SELECT job_idem.mark_done_many(:t1, '{i05,i06}');
SELECT state FROM job_idem.mark_failed(:t1, 'i07', transient => false);
SELECT state FROM job_idem.mark_failed(:t1, 'i08', transient => false);
SELECT job_idem.mark_done(:t2, 'i09'), job_idem.release(:t2);
SELECT job_idem.mark_done(:t4, 'i17'), job_idem.heartbeat(:t4, '10 hours') > job_idem.now() AS alive;
SET job_idem.clock_offset = 1200;
CALL job_idem.tick();
-- pick leases: one of three items is completed and counted, one is completed and not yet counted, one stays open
SELECT token AS p1, count(*) OVER () AS n FROM job_idem.claim_items('audit') LIMIT 1 \gset
SELECT :n AS claimed;
SELECT job_idem.mark_done(:p1, 'i10'), job_idem.mark_done(:p1, 'i12');
SELECT state FROM job_idem.mark_failed(:p1, 'i11', transient => true);
CALL job_idem.tick();
SET job_idem.clock_offset = 1300;
SELECT token AS p2 FROM job_idem.claim_item('audit', '2026-11-30', 'i13') \gset
SELECT token AS p3 FROM job_idem.claim_item('audit', '2026-11-30', 'i14') \gset
-- a dead letter is replayed and dies again; a late item comes
SELECT dead_letter_id AS letter FROM job_idem.dead_letters WHERE run_id = :run_id AND item_key = 'i07' \gset
SELECT job_idem.replay(:letter);
SELECT token AS p4 FROM job_idem.claim_item('audit', '2026-11-30', 'i07') \gset
SELECT state FROM job_idem.mark_failed(:p4, 'i07', transient => false);
SELECT n_new FROM job_idem.add_items(:run_id, '{late}');

-- a run that is done, with a discarded letter, and one that is partial
SELECT run_id AS done_id FROM job_idem.open_run('audit', '2026-12-01') \gset
SELECT n_new FROM job_idem.add_items(:done_id, '{a,b}');
SELECT n_slices FROM job_idem.seal_run(:done_id);
SELECT token AS done_token FROM job_idem.claim_items('audit', run_key => '2026-12-01') LIMIT 1 \gset
SELECT job_idem.mark_done(:done_token, 'a');
SELECT state FROM job_idem.mark_failed(:done_token, 'b', transient => false);
SELECT run_id AS partial_id FROM job_idem.open_run('audit', '2026-12-02') \gset
SELECT n_new FROM job_idem.add_items(:partial_id, '{a,b}');
SELECT n_slices FROM job_idem.seal_run(:partial_id);
SELECT token AS partial_token FROM job_idem.claim_items('audit', run_key => '2026-12-02') LIMIT 1 \gset
SELECT state FROM job_idem.mark_failed(:partial_token, 'a', transient => false);
SELECT job_idem.mark_done(:partial_token, 'b');
SELECT count(*) FROM job_idem.claim_items('audit', run_key => '2026-12-01');
SELECT count(*) FROM job_idem.claim_items('audit', run_key => '2026-12-02');
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = :done_id;
-- a keyed run, and one that is only loading
SELECT outcome FROM job_idem.define_job('audit keyed', 'keyed');
SELECT token AS key_token FROM job_idem.claim_item('audit keyed', '2026-11-30', 'k1') \gset
SELECT job_idem.mark_done(:key_token, 'k1', '1');
SELECT outcome FROM job_idem.claim_item('audit keyed', '2026-11-30', 'k2');
SELECT run_id AS keyed_id FROM job_idem.runs WHERE job = 'audit keyed' \gset
SELECT run_id AS loading_id FROM job_idem.open_run('audit', '2026-12-03') \gset
SELECT n_new FROM job_idem.add_items(:loading_id, '{a,b}');
-- and a run of an empty list, and a cancelled one with an open lease
SELECT run_id AS empty_id FROM job_idem.open_run('audit', '2026-12-04') \gset
SELECT n_slices FROM job_idem.seal_run(:empty_id);
SELECT count(*) FROM job_idem.claim_items('audit', run_key => '2026-12-04');
SELECT run_id AS cancelled_id FROM job_idem.open_run('audit', '2026-12-05') \gset
SELECT n_new FROM job_idem.add_items(:cancelled_id, '{a,b}');
SELECT n_slices FROM job_idem.seal_run(:cancelled_id);
SELECT count(*) FROM job_idem.claim_items('audit', run_key => '2026-12-05');
SELECT job_idem.cancel_run(:cancelled_id, 'enough');

-- an item done in steps
SELECT job_idem.step_done(:p2, 'i13', 'one'), job_idem.step_done(:p2, 'i13', 'two', '1');
-- last, since any idle claim would count it
SELECT job_idem.mark_done(:p2, 'i13');

-- untouched, none of them gives a row
SELECT job, run_key, state, n_items, n_slices, n_done, n_dead, a.*
FROM job_idem.runs r LEFT JOIN LATERAL job_idem.audit(r.run_id) a ON true WHERE job LIKE 'audit%' ORDER BY run_id;
SELECT slice_no, outcome, n_items, n_done, n_failed, n_lost, pick_open, picks IS NOT NULL AS is_pick
FROM job_idem.lease WHERE run_id = :run_id ORDER BY token;
SELECT folded, behind, n_done, n_failed, n_lost FROM job_idem.tally WHERE run_id = :run_id;
SELECT state, count(*) FROM job_idem.items WHERE run_id = :run_id GROUP BY state ORDER BY state;

CREATE TEMP TABLE damage (n integer GENERATED ALWAYS AS IDENTITY, invariant text, run_id bigint, statement text);
-- psql does not look into quoted text for its variables, so tokens and runs are named there
CREATE TEMP TABLE named (name text, id bigint);
INSERT INTO named VALUES ('t0', :t0), ('t1', :t1), ('t2', :t2), ('t3', :t3), ('t4', :t4), ('p1', :p1), ('p2', :p2), ('p3', :p3),
	('p4', :p4), ('run', :run_id), ('done', :done_id), ('partial', :partial_id), ('keyed', :keyed_id), ('loading', :loading_id),
	('empty', :empty_id), ('cancelled', :cancelled_id), ('done_token', :done_token), ('key_token', :key_token), ('nowhere', -1);
INSERT INTO damage (invariant, run_id, statement)
SELECT d.invariant, n.id, d.statement FROM (VALUES
	(1, 'run', 'claimed_is_held', $$UPDATE item SET token = #p1 WHERE run_id = #run AND item_key = 'i14'$$),
	(2, 'run', 'claimed_is_held', $$UPDATE item SET token = #t4 WHERE run_id = #run AND item_key = 'i14'$$),
	(3, 'run', 'claimed_is_held', $$UPDATE item SET token = #done_token WHERE run_id = #run AND item_key = 'i14'$$),
	(4, 'run', 'claimed_is_held', $$UPDATE item SET token = NULL WHERE run_id = #run AND item_key = 'i14'$$),
	(5, 'run', 'claimed_is_held', $$UPDATE lease SET picks = '{15}' WHERE token = #p3$$),
	(6, 'run', 'claimed_is_held', $$UPDATE lease SET outcome = 'expired', closed_at = now(), n_done = 0, n_failed = 0, n_retried = 0,
		n_lost = 0, pick_open = false WHERE token = #p3$$),
	(7, 'run', 'claimed_is_held', $$DELETE FROM lease WHERE token = #p3$$),
	(8, 'run', 'closed_leaves_none', $$UPDATE item SET state = 'pending', due_at = NULL, lost = 0 WHERE run_id = #run
		AND item_key = 'i15'$$),
	(9, 'run', 'closed_leaves_none', $$UPDATE lease SET outcome = 'released' WHERE token = #t0$$),
	(10, 'run', 'pending_has_slice', $$UPDATE item SET state = 'pending', due_at = NULL WHERE run_id = #run
		AND item_key = 'late'$$),
	(11, 'run', 'pending_is_untouched', $$UPDATE item SET attempts = 1 WHERE run_id = #run AND item_key = 'i25'$$),
	(12, 'run', 'pending_is_untouched', $$UPDATE item SET token = #t4 WHERE run_id = #run AND item_key = 'i18'$$),
	(13, 'run', 'waiting_is_due', $$UPDATE item SET due_at = NULL WHERE run_id = #run AND item_key = 'late'$$),
	(14, 'run', 'waiting_is_due', $$UPDATE item SET due_at = now() WHERE run_id = #run AND item_key = 'i09'$$),
	(15, 'run', 'done_has_time', $$UPDATE item SET done_at = NULL WHERE run_id = #run AND item_key = 'i09'$$),
	(16, 'run', 'done_has_time', $$UPDATE item SET done_at = now() WHERE run_id = #run AND item_key = 'i08'$$),
	(17, 'run', 'done_has_lease', $$UPDATE item SET token = NULL WHERE run_id = #run AND item_key = 'i09'$$),
	(18, 'run', 'done_has_lease', $$UPDATE item SET token = #t1 WHERE run_id = #run AND item_key = 'i09'$$),
	(19, 'run', 'done_has_lease', $$UPDATE item SET token = #p1 WHERE run_id = #run AND item_key = 'i09'$$),
	(20, 'run', 'done_has_lease', $$UPDATE item SET token = #key_token WHERE run_id = #run AND item_key = 'i09'$$),
	(21, 'keyed', 'done_has_lease', $$DELETE FROM lease WHERE token = #key_token$$),
	(22, 'run', 'token_grows', $$UPDATE item SET token = #t3 WHERE run_id = #run AND item_key = 'i13'$$),
	(23, 'run', 'token_grows', $$UPDATE failure SET token = #t1 WHERE run_id = #run AND item_key = 'i07'$$),
	(24, 'run', 'dead_has_letter', $$DELETE FROM dead_letter WHERE run_id = #run AND item_key = 'i08'$$),
	(25, 'run', 'dead_has_letter', $$UPDATE dead_letter SET status = 'replayed' WHERE run_id = #run AND item_key = 'i07'$$),
	(26, 'run', 'dead_has_letter', $$UPDATE dead_letter SET status = 'open' WHERE run_id = #run AND item_key = 'i07'$$),
	(27, 'done', 'ended_is_over', $$UPDATE item SET state = 'waiting', due_at = now() WHERE run_id = #done
		AND item_key = 'b'$$),
	(28, 'partial', 'ended_is_over', $$UPDATE item SET state = 'claimed' WHERE run_id = #partial AND item_key = 'a'$$),
	(29, 'run', 'key_is_once', $$UPDATE item SET item_key = 'i26' WHERE run_id = #run AND item_key = 'i25'$$),
	(30, 'run', 'slice_or_picks', $$UPDATE lease SET slice_no = NULL WHERE token = #t4$$),
	(31, 'run', 'slice_or_picks', $$UPDATE lease SET slice_no = 5 WHERE token = #p3$$),
	(32, 'run', 'slice_exists', $$UPDATE lease SET slice_no = 7 WHERE token = #t4$$),
	(33, 'keyed', 'slice_exists', $$UPDATE lease SET slice_no = 0, picks = NULL WHERE token = #key_token$$),
	(34, 'run', 'picks_are_counted', $$UPDATE lease SET picks = '{14,15}' WHERE token = #p3$$),
	(35, 'run', 'open_is_marked', $$UPDATE lease SET pick_open = NULL WHERE token = #p3$$),
	(36, 'run', 'open_is_marked', $$UPDATE lease SET pick_open = true WHERE token = #p2$$),
	(37, 'run', 'open_is_marked', $$UPDATE lease SET pick_open = true WHERE token = #t4$$),
	(38, 'run', 'closed_has_counts', $$UPDATE lease SET closed_at = NULL WHERE token = #t0$$),
	(39, 'run', 'closed_has_counts', $$UPDATE lease SET n_lost = 0 WHERE token = #t4$$),
	(40, 'run', 'failed_is_counted', $$UPDATE lease SET n_failed = 1 WHERE token = #t1$$),
	(100, 'run', 'failed_is_counted', $$UPDATE lease SET n_retried = n_retried + 1 WHERE token = #t1$$),
	(101, 'run', 'tally_is_sum', $$UPDATE tally SET n_retried = n_retried + 1 WHERE run_id = #run$$),
	(41, 'run', 'counts_fit', $$UPDATE lease SET n_failed = 4 WHERE token = #t2$$),
	(42, 'run', 'failed_is_counted', $$DELETE FROM failure WHERE token = #t3$$),
	(43, 'run', 'lost_is_expired', $$UPDATE lease SET outcome = 'released' WHERE token = #t3$$),
	(44, 'run', 'done_is_counted', $$UPDATE lease SET n_done = 3, n_failed = 1 WHERE token = #t0$$),
	(45, 'run', 'done_is_counted', $$UPDATE item SET state = 'waiting', due_at = now(), done_at = NULL WHERE run_id = #run
		AND item_key = 'i05'$$),
	(46, 'run', 'deadline_is_bounded', $$UPDATE lease SET deadline = 'infinity' WHERE token = #t4$$),
	(47, 'done', 'ended_has_no_lease', $$UPDATE lease SET outcome = 'open', closed_at = NULL, n_done = NULL, n_failed = NULL, n_retried = NULL,
		n_lost = NULL WHERE run_id = #done$$),
	(48, 'loading', 'claims_need_running', $$UPDATE lease SET run_id = #loading WHERE token = #p3$$),
	(49, 'run', 'slice_is_leased_once', $$UPDATE lease SET slice_no = 3 WHERE token = #t4$$),
	(50, 'run', 'pick_has_item', $$DELETE FROM item WHERE run_id = #run AND item_key = 'i14'$$),
	(51, 'run', 'failure_has_lease', $$DELETE FROM lease WHERE token = #p4$$),
	(52, 'run', 'failure_has_lease', $$UPDATE lease SET run_id = #done WHERE token = #p4$$),
	(53, 'run', 'failure_has_item', $$UPDATE failure SET item_key = 'ghost' WHERE token = #p4$$),
	(54, 'run', 'letter_has_item', $$UPDATE dead_letter SET item_key = 'ghost' WHERE run_id = #run AND item_key = 'i08'$$),
	(55, 'run', 'letter_is_dead', $$UPDATE item SET state = 'waiting', due_at = now() WHERE run_id = #run
		AND item_key = 'i08'$$),
	(56, 'run', 'job_exists', $$DELETE FROM job WHERE name = 'audit'$$),
	(57, 'run', 'version_exists', $$UPDATE run SET version = 2 WHERE run_id = #run$$),
	(58, 'partial', 'purged_is_over', $$UPDATE run SET purged_at = now() WHERE run_id = #partial$$),
	(59, 'cancelled', 'purged_is_over', $$UPDATE run SET purged_at = now() WHERE run_id = #cancelled$$),
	(60, 'done', 'ended_has_time', $$UPDATE run SET finished_at = NULL WHERE run_id = #done$$),
	(61, 'run', 'numbers_have_no_holes', $$DELETE FROM item WHERE run_id = #run AND item_key = 'i25'$$),
	(62, 'run', 'numbers_have_no_holes', $$UPDATE item SET item_no = 30 WHERE run_id = #run AND item_key = 'i26'$$),
	(63, 'loading', 'numbers_have_no_holes', $$UPDATE run SET n_items = 3 WHERE run_id = #loading$$),
	(64, 'run', 'slices_fit', $$UPDATE run SET n_slices = 8 WHERE run_id = #run$$),
	(65, 'loading', 'slices_fit', $$UPDATE run SET n_slices = 1 WHERE run_id = #loading$$),
	(66, 'run', 'late_is_counted', $$DELETE FROM item WHERE run_id = #run AND item_key = 'late'$$),
	(67, 'keyed', 'late_is_counted', $$UPDATE run SET n_late = 2 WHERE run_id = #keyed$$),
	(68, 'done', 'run_counts_done', $$UPDATE run SET n_done = 2 WHERE run_id = #done$$),
	(69, 'empty', 'run_counts_done', $$UPDATE run SET n_done = NULL WHERE run_id = #empty$$),
	(70, 'partial', 'run_counts_dead', $$UPDATE run SET n_dead = 0 WHERE run_id = #partial$$),
	(71, 'partial', 'run_counts_dead', $$UPDATE run SET state = 'done' WHERE run_id = #partial$$),
	(72, 'done', 'run_counts_dead', $$UPDATE run SET state = 'partial' WHERE run_id = #done$$),
	(73, 'keyed', 'tally_exists', $$DELETE FROM tally WHERE run_id = #keyed$$),
	(74, 'run', 'tally_is_sum', $$UPDATE tally SET n_done = n_done + 1 WHERE run_id = #run$$),
	(75, 'run', 'tally_is_sum', $$UPDATE tally SET n_failed = 0 WHERE run_id = #run$$),
	(76, 'run', 'tally_is_sum', $$UPDATE tally SET n_lost = 0 WHERE run_id = #run$$),
	(77, 'run', 'tally_is_sum', $$UPDATE lease SET pick_open = NULL WHERE token = #p2$$),
	(78, 'run', 'behind_is_sound', $$UPDATE tally SET behind = '{4,4}' WHERE run_id = #run$$),
	(79, 'run', 'behind_is_sound', $$UPDATE tally SET behind = '{4,5}' WHERE run_id = #run$$),
	(80, 'run', 'behind_is_sound', $$UPDATE tally SET behind = '{4,-1}' WHERE run_id = #run$$),
	(81, 'run', 'folded_is_closed', $$UPDATE tally SET behind = '{}' WHERE run_id = #run$$),
	(82, 'run', 'folded_is_closed', $$UPDATE tally SET folded = 5 WHERE run_id = #run$$),
	(83, 'done', 'ended_is_counted', $$UPDATE tally SET folded = -1 WHERE run_id = #done$$),
	(84, 'done', 'ended_is_counted', $$UPDATE tally SET behind = '{0}' WHERE run_id = #done$$),
	(85, 'run', 'run_exists', $$DELETE FROM run WHERE run_id = #run$$),
	(102, 'run', 'step_has_item', $$UPDATE item_step SET item_key = 'ghost' WHERE run_id = #run AND step = 'two'$$),
	(103, 'run', 'step_has_lease', $$UPDATE item_step SET token = #done_token WHERE run_id = #run AND step = 'two'$$),
	(104, 'nowhere', 'run_exists', $$UPDATE item_step SET run_id = -1 WHERE run_id = #run AND step = 'two'$$),
	(86, '-', '-', $$UPDATE run SET purged_at = now() WHERE run_id = #done; DELETE FROM item WHERE run_id = #done;
		DELETE FROM lease WHERE run_id = #done; DELETE FROM failure WHERE run_id = #done$$)
	) AS d (n, name, invariant, statement) LEFT JOIN named n USING (name) ORDER BY d.n;
UPDATE damage SET run_id = :done_id WHERE run_id IS NULL;

-- Does the damage, and undoes it; what audit says of the run.
CREATE FUNCTION pg_temp.found(run_id bigint, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	names text;
	it record;
BEGIN
	FOR it IN SELECT * FROM named ORDER BY length(name) DESC
	LOOP
		statement := replace(statement, '#' || it.name, it.id::text);
	END LOOP;
	EXECUTE statement;
	SELECT string_agg(DISTINCT a.invariant, ' ' ORDER BY a.invariant) INTO names FROM job_idem.audit(run_id) a;
	RAISE SQLSTATE 'ZZ000' USING MESSAGE = coalesce(names, '-');
EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
	RETURN SQLERRM;
END
$$;
CREATE FUNCTION pg_temp.drop_constraints() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	it record;
	n bigint := 0;
BEGIN
	FOR it IN SELECT conrelid::regclass AS relation, conname FROM pg_constraint
		WHERE connamespace = 'job_idem'::regnamespace AND contype IN ('c', 'u')
	LOOP
		EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', it.relation, it.conname);
		n := n + 1;
	END LOOP;
	DROP INDEX job_idem.dead_letter_open;
	RETURN n;
END
$$;
BEGIN;
SELECT pg_temp.drop_constraints() > 10 AS many;
SET LOCAL session_replication_role = replica;
SET LOCAL search_path = job_idem, pg_catalog;
CREATE TEMP TABLE finding AS
SELECT d.*, found FROM damage d, LATERAL pg_temp.found(run_id, statement) AS found ORDER BY n;
SELECT invariant, found, split_part(statement, E'\n', 1) AS statement FROM finding ORDER BY n;
SELECT count(*) FROM finding WHERE invariant <> ALL (string_to_array(found, ' '));
ROLLBACK;
SELECT run_key, a.* FROM job_idem.runs r, LATERAL job_idem.audit(r.run_id) a WHERE job LIKE 'audit%';

-- each broken row is named with its key and token
BEGIN;
SET LOCAL session_replication_role = replica;
UPDATE job_idem.lease SET outcome = 'expired' WHERE token = :t0;
SELECT invariant, item_key, token = :t0 AS its_token, detail FROM job_idem.audit(:run_id);
ROLLBACK;

SELECT job_idem.audit(NULL);
SELECT job_idem.audit(-1);
