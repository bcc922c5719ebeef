# PREPARE TRANSACTION (K74, and what K56 says of savepoints). A transaction that has claimed or holds items cannot be
# prepared: its claim lives in backend memory, which would not follow it. The whole transaction rolls back. One that only
# marks items can: until it is resolved, also across a crash of the server, expiry passes over the claim and nobody else
# gets the items; COMMIT PREPARED makes them done once, ROLLBACK PREPARED gives them back.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $cluster = new_cluster('main', conf => 'max_prepared_transactions = 10');
my $c1 = session($cluster);
my $c2 = session($cluster);
my $token;

# The test's clock for expiry: far past any deadline.
my $late = "SET job_idem.clock_offset = 100000;";

# A run of three items; worker A has them unless told otherwise.
sub new_run
{
	my ($key, $claim) = @_;
	my $run_id = $c2->query("SELECT run_id FROM job_idem.open_run('j', '2026-11-30', '$key')");

	$c2->query("SELECT n_new FROM job_idem.add_items($run_id, ARRAY['k1', 'k2', 'k3'])");
	$c2->query("SELECT n_slices FROM job_idem.seal_run($run_id)");
	$token = $c2->query("SELECT DISTINCT token FROM job_idem.claim_items('j', 'A', run_key => '$key')")
	  unless defined $claim && !$claim;
	return $run_id;
}

# What every run must be like in the end: each item done, with one effect, and no broken invariant.
sub finish_and_audit
{
	my ($run_id, $what) = @_;

	$c2->query($late);
	$c2->query('CALL job_idem.tick()');
	$c2->query('SET job_idem.clock_offset = 200000');
	$c2->query('SELECT work_off()');
	$c2->query('CALL job_idem.tick()');
	$c2->query('RESET job_idem.clock_offset');
	is($c2->query("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run_id"), 'done|3', "$what: the run ends done");
	is($c2->query("SELECT item_key, count(*) FROM ledger WHERE run_id = $run_id GROUP BY 1 ORDER BY 1"),
		"k1|1\nk2|1\nk3|1", "$what: one effect for each item");
	is($c2->query("SELECT invariant FROM job_idem.audit($run_id)"), '', "$what: no invariant is broken");
	return;
}

sub outcome
{
	return $c2->query("SELECT outcome FROM job_idem.claim_status($token)");
}

$c2->query(q{
	CREATE TABLE ledger (run_id bigint, item_key text);
	CREATE FUNCTION work_off() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		c record;
	BEGIN
		LOOP
			SELECT min(token) AS token, min(run_id) AS run_id, array_agg(item_key) AS keys INTO c
			FROM job_idem.claim_items('j');
			EXIT WHEN c.keys IS NULL;
			INSERT INTO ledger SELECT c.run_id, unnest(c.keys);
			PERFORM job_idem.mark_all_done(c.token, cardinality(c.keys));
		END LOOP;
	END $$;
	SELECT outcome FROM job_idem.define_job('j')});

# A claim, or a hold, cannot be prepared; all of the transaction is gone.
{
	my $run_id = new_run('claim', 0);

	$c1->query('BEGIN');
	is($c1->query("SELECT count(*) FROM job_idem.claim_items('j', 'A')"), 3, 'claim: three items');
	is($c1->query_error("PREPARE TRANSACTION 'claim'"), '0A000', 'claim: cannot be prepared');
	is($c2->query("SELECT count(*) FROM job_idem.leases WHERE run_id = $run_id"), 0, 'claim: it is gone');
	finish_and_audit($run_id, 'claim');

	$run_id = new_run('keyed claim');
	$c2->query("SELECT job_idem.release($token)");
	$c1->query('BEGIN');
	is($c1->query("SELECT outcome FROM job_idem.claim_item('j', '2026-11-30', 'k1', run_key => 'keyed claim')"),
		'claimed', 'claim of one item');
	is($c1->query_error("PREPARE TRANSACTION 'item'"), '0A000', 'claim of one item: cannot be prepared');
	finish_and_audit($run_id, 'claim of one item');

	$run_id = new_run('hold');
	$c1->query('BEGIN');
	$c1->query("SELECT job_idem.hold($token)");
	$c1->query("INSERT INTO ledger VALUES ($run_id, 'k1')");
	$c1->query("SELECT job_idem.mark_done($token, 'k1')");
	is($c1->query_error("PREPARE TRANSACTION 'hold'"), '0A000', 'hold: cannot be prepared');
	is($c2->query("SELECT count(*) FROM ledger WHERE run_id = $run_id"), 0, 'hold: its write is gone');
	is(outcome(), 'open', 'hold: the claim is as it was');
	finish_and_audit($run_id, 'hold');
}

# What a savepoint takes back can be prepared; what it leaves or hands to its parent cannot.
{
	my $run_id = new_run('savepoint');

	$c1->query("BEGIN; SAVEPOINT s; SELECT job_idem.hold($token); ROLLBACK TO s");
	is($c1->query_error("PREPARE TRANSACTION 'taken back'"), '', 'savepoint: a hold that was rolled back is none');
	$c1->query("COMMIT PREPARED 'taken back'");

	$c1->query("BEGIN; SELECT job_idem.hold($token); SAVEPOINT s; SELECT job_idem.hold($token); ROLLBACK TO s");
	is($c1->query_error("PREPARE TRANSACTION 'before'"), '0A000', 'savepoint: a hold from before it lasts');

	$c1->query("BEGIN; SAVEPOINT s; SELECT job_idem.hold($token); RELEASE s");
	is($c1->query_error("PREPARE TRANSACTION 'released'"), '0A000', 'savepoint: a released hold is the parent\'s');

	$c1->query("BEGIN; SAVEPOINT s; SAVEPOINT s2; SELECT job_idem.hold($token); RELEASE s2; ROLLBACK TO s");
	is($c1->query_error("PREPARE TRANSACTION 'both'"), '', 'savepoint: released, then rolled back with the parent');
	$c1->query("COMMIT PREPARED 'both'");

	# the memory of one transaction is not that of the next
	$c1->query("BEGIN; SELECT job_idem.hold($token); ROLLBACK");
	$c1->query("BEGIN; INSERT INTO ledger VALUES ($run_id, 'k1'); SELECT job_idem.mark_done($token, 'k1')");
	is($c1->query_error("PREPARE TRANSACTION 'next'"), '', 'savepoint: the next transaction starts afresh');
	$c1->query("COMMIT PREPARED 'next'");
	finish_and_audit($run_id, 'savepoint');
}

# Marks only: while it is prepared expiry skips the claim; then it is done once, or not at all.
for my $end ('COMMIT', 'ROLLBACK')
{
	my $run_id = new_run("marks, $end");

	$c1->query("BEGIN; INSERT INTO ledger VALUES ($run_id, 'k1'), ($run_id, 'k2')");
	is($c1->query("SELECT job_idem.mark_done_many($token, ARRAY['k1', 'k2'])"), 2, "$end: two items are marked");
	is($c1->query_error("PREPARE TRANSACTION 'marks'"), '', "$end: marks can be prepared");

	# also across a crash
	$cluster->stop('immediate');
	$cluster->start;
	$c1 = session($cluster);
	$c2 = session($cluster);
	$c2->query($late);
	$c2->query('CALL job_idem.tick()');
	is($c2->query("SELECT count(*) FROM job_idem.claim_items('j', 'B')"), 0, "$end: nobody else gets the items");
	is(outcome(), 'open', "$end: expiry skips the claim while it is prepared");
	is($c2->query_error("SELECT job_idem.expire_lease($token, 'too long')"), '55P03', "$end: so it does by hand");
	ok($c2->query("SELECT job_idem.heartbeat($token) IS NOT NULL"), "$end: a heartbeat goes by");

	$c1->query("$end PREPARED 'marks'");
	$c2->query('CALL job_idem.tick()');
	is(outcome(), 'expired', "$end: afterwards what is left of it expires");
	is( $c2->query("SELECT item_key, state, lost FROM job_idem.items WHERE run_id = $run_id ORDER BY 1"),
		$end eq 'COMMIT' ? "k1|done|0\nk2|done|0\nk3|waiting|1" : "k1|waiting|1\nk2|waiting|1\nk3|waiting|1",
		"$end: done once, or not at all");
	is($c2->query_error("SELECT job_idem.mark_done($token, 'k1')"), $end eq 'COMMIT' ? 'JI010' : 'JI001',
		"$end: a repeat is refused");
	finish_and_audit($run_id, $end);
}

# The whole of a claim, prepared
{
	my $run_id = new_run('whole');

	$c1->query("BEGIN; INSERT INTO ledger SELECT $run_id, 'k' || i FROM generate_series(1, 3) AS i");
	is($c1->query("SELECT job_idem.mark_all_done($token, 3)"), 3, 'whole: completed');
	is($c1->query_error("PREPARE TRANSACTION 'whole'"), '', 'whole: can be prepared');
	$c2->query($late);
	$c2->query('CALL job_idem.tick()');
	is(outcome(), 'open', 'whole: expiry skips the claim');
	$c2->query("COMMIT PREPARED 'whole'");
	is(outcome(), 'completed', 'whole: completed by COMMIT PREPARED');
	finish_and_audit($run_id, 'whole');
}

done_testing();
