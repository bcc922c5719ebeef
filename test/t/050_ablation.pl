# Ablation: which foundations the promise rests on, shown by taking them away one at a time.
#
# Whole runs, ten clients, kills at random moments, paying into a ledger and a balance without any unique key:
# - slice try-locks off; leases ending at once, with ticks and idle claims expiring all the time; the done marker taken
#   off finished runs, so that workers start again; and all three together. Time-outs, locks and the marker are never
#   trusted for correctness: the ledger is right, and audit() finds nothing.
# - UNIQUE (run_id, slice_no) off, and compare-and-swap off, each a build of the library of its own: the ledger MUST
#   come out wrong, by the same query. Otherwise the test could not see what it claims to prove. The wrong outcome is
#   certain: one run starts behind a gate, in the other every transaction is repeated. Besides, the decisive
#   interleavings are played step by step, with the whole library and with the one that lacks its foundation.
#
# Proves: K77, F23, F8; K11, K25 and K26 with and without what decides them.
use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Stress;

my $n_items = scaled(300, 5000);
my $definition = "batch_size => 10, lease => '500 ms', max_attempts => 30000, backoff_base => '0', backoff_max => '0'";
my $no_locks = '-c job_idem.try_locks=off';
my @at_once = ('1 microsecond');
my %clients = (
	workers => 10,
	plans => { whole => 4, single => 4, together => 2, many => 2, except => 2, mixed => 1, abandon => 1, hold => 1 },
	repeat => 0.1,
	one => 0.1,
	kill_every => 0.05,
	tick_every => 0.05,
	need => [qw(killed terminated repeats)],
	seconds => scaled(2, 60),
	limit => scaled(180, 1800));

seed();
my $cluster = new_cluster('main', conf => "max_connections = 120\nsynchronous_commit = off\n");
plan skip_all => 'psycopg is not installed' unless has_psycopg($cluster);

# --- whole runs with what is never trusted switched off ---------------------------------------------------------

# A whole run, whose ledger is right at the end. Then, `restarts` times, the done marker is taken off and all start
# again.
sub right
{
	my ($name, %options) = @_;
	my $job = $name =~ s/\W+/_/gr;
	my $restarts = delete $options{restarts} || 0;
	my $run_id = new_run($cluster, 'postgres', $job, $n_items, definition => $definition);
	my ($orderly, $happened) = stress($cluster, %clients, %options, run_id => $run_id, job => $job);

	ok($orderly, "$name: no client met an error that it need not expect");
	cmp_ok($happened->{killed} + $happened->{terminated}, '>=', 2, "$name: clients were killed");
	is($happened->{repeats_done}, 0, "$name: no repeated transaction went through");
	is(wrongs($cluster, 'postgres', $run_id), '', "$name: every item is paid once");
	is(audit($cluster, 'postgres', $run_id), '', "$name: no invariant is broken");
	for (1 .. $restarts)
	{
		$cluster->safe_psql('postgres',
			"UPDATE job_idem.run SET state = 'running', finished_at = NULL WHERE run_id = $run_id");
		is($cluster->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, $n_items, 37) i,
			job_idem.claim_item('$job', '2026-11-30', 'k' || lpad(i::text, 6, '0')) c WHERE c.outcome <> 'done'"),
			0, "$name: without the marker no item is claimed again by itself");
		($orderly, $happened) = stress($cluster, %clients, %options, need => [], run_id => $run_id, job => $job);
		ok($orderly, "$name: workers start again");
		is($happened->{rows}, 0, "$name: and claim nothing");
		is(wrongs($cluster, 'postgres', $run_id), '', "$name: nothing more is paid");
		is(audit($cluster, 'postgres', $run_id), '', "$name: no invariant is broken by it");
	}
	is($cluster->safe_psql('postgres', "SELECT state FROM job_idem.runs WHERE run_id = $run_id"),
		'done', "$name: the run is done");
	return;
}

new_ledger($cluster, 'postgres');
right('try-locks off', options => $no_locks);
right('leases end at once', leases => \@at_once, tick_every => 0.01, one => 0.2);
right('leases end at once and nobody ticks', leases => \@at_once, tick_every => undef, one => 0.2);
right('done marker off', restarts => 1);
right('all three off', options => $no_locks, leases => \@at_once, tick_every => 0.01, one => 0.2, restarts => 1);

# --- libraries without a foundation -----------------------------------------------------------------------------

# Build the library with a switch, anew only what the switch changes; returns the path that pg_proc wants.
sub ablated_library
{
	my ($switch) = @_;
	my $folder = tempdir(CLEANUP => 1);
	my $pg_config = $ENV{PG_CONFIG} || 'pg_config';

	my $output = `cd '$FindBin::RealBin/../..' &&
		tar -cf - Makefile *.control src sql/job_idem | tar -C '$folder' -xf - && cd '$folder' &&
		rm -f \$(grep -El 'JOB_IDEM_ABLATE|CAS\\(' src/*.c | sed 's/c\$/o/') &&
		make -s PG_CONFIG='$pg_config' with_llvm=no COPT='-D$switch' job_idem.so 2>&1`;
	die "cannot build without a foundation: $output" if $?;
	return "$folder/job_idem";
}

# A database whose functions are of that library, and whose sessions have never seen another.
sub ablated_database
{
	my ($dbname, $library) = @_;

	$cluster->safe_psql('postgres', "CREATE DATABASE $dbname");
	create_extension($cluster, $dbname);
	new_ledger($cluster, $dbname);
	$cluster->safe_psql($dbname, "UPDATE pg_proc SET probin = '$library' WHERE probin = '\$libdir/job_idem'");
	return;
}

# What a claim returned, as (token, key, key, ...).
sub claimed
{
	my ($rows) = @_;
	my @rows = map { [ split /\|/ ] } split /\n/, $rows;

	return ($rows[0][0], map { $_->[1] } @rows);
}

sub claim
{
	my ($job) = @_;

	return "SELECT token, item_key FROM job_idem.claim_items('$job')";
}

sub pay
{
	my ($token, @keys) = @_;

	return "SELECT pay($token, '{" . join(',', @keys) . "}')";
}

sub pay_whole
{
	my ($session, $token, @keys) = @_;

	$session->query('BEGIN');
	finish_whole($session, $token, @keys);
	return;
}

sub finish_whole
{
	my ($session, $token, @keys) = @_;

	$session->query(pay($token, @keys) . "; SELECT job_idem.mark_all_done($token, " . @keys . '); COMMIT');
	return;
}

# --- without UNIQUE (run_id, slice_no) ---------------------------------------------------------------------------

ablated_database('no_unique', ablated_library('JOB_IDEM_ABLATE_UNIQUE'));
$cluster->safe_psql('no_unique', q{
	DO $$
	BEGIN
		EXECUTE (SELECT format('ALTER TABLE job_idem.lease DROP CONSTRAINT %I', conname) FROM pg_constraint
			WHERE conrelid = 'job_idem.lease'::regclass AND pg_get_constraintdef(oid) = 'UNIQUE (run_id, slice_no)');
	END $$;
	CREATE INDEX ON job_idem.lease (run_id, slice_no);
});

# K11, no slice locks: the second session claims while the first one's claim of slice 0 is open. It waits for the
# constraint, and takes slice 1.
sub claim_beside
{
	my ($dbname) = @_;
	my $run_id = new_run($cluster, $dbname, 'beside', 6, definition => 'batch_size => 3');
	my ($one, $two) = map { session($cluster, dbname => $dbname, options => $no_locks) } 1, 2;

	my @first = claimed($one->query('BEGIN; ' . claim('beside')));
	$two->start_query(claim('beside'));
	$two->wait_blocked if $dbname eq 'postgres';
	my @second = claimed($two->finish) if $dbname ne 'postgres';
	$one->query('COMMIT');
	@second = claimed($two->finish) if $dbname eq 'postgres';
	pay_whole($one, @first);
	pay_whole($two, @second);
	$_->quit for $one, $two;
	return wrongs($cluster, $dbname, $run_id);
}

# With slice locks: sessions have seen that no slice is leased, and are then kept from going on; one more session claims
# slice 0, completes it, and is gone when they come to its lock. What keeps them is a lock on all items, which only who
# sees a due item asks for; the one more session's clock is behind, so that it sees none. Item `late` is there for that.
sub shut_gate
{
	my ($dbname, $run_id) = @_;
	my $gate = session($cluster, dbname => $dbname);

	$gate->query("INSERT INTO balance VALUES ('late', 0); SELECT job_idem.add_items($run_id, '{late}')");
	$gate->query('BEGIN; LOCK TABLE job_idem.item IN EXCLUSIVE MODE');
	return $gate;
}

sub claim_and_open_gate
{
	my ($gate, $dbname, $job) = @_;
	my $first = session($cluster, dbname => $dbname, options => '-c job_idem.clock_offset=-3600');

	# in one transaction: its claim is overdue when others see it
	finish_whole($first, claimed($first->query('BEGIN; ' . claim($job))));
	$first->quit;
	# those behind the gate are to find nothing due
	$gate->query("UPDATE job_idem.item SET due_at = due_at + interval '1 hour' WHERE item_key = 'late'; COMMIT");
	return;
}

sub claim_late
{
	my ($dbname) = @_;
	my $run_id = new_run($cluster, $dbname, 'late', 6, definition => 'batch_size => 3');
	my $gate = shut_gate($dbname, $run_id);
	my $second = session($cluster, dbname => $dbname);

	$second->start_query(claim('late'));
	$second->wait_blocked;
	claim_and_open_gate($gate, $dbname, 'late');
	pay_whole($second, claimed($second->finish));
	$second->query('SET job_idem.clock_offset = 7200');
	pay_whole($second, claimed($second->query(claim('late'))));
	$_->quit for $gate, $second;
	return wrongs($cluster, $dbname, $run_id);
}

is(claim_beside('postgres'), '', 'two open claims of one slice: UNIQUE gives it to one');
like(claim_beside('no_unique'), qr/paid 2 times/, 'without UNIQUE both have it, and it is paid twice');
is(claim_late('postgres'), '', 'a slice that was taken and done since it was looked at: UNIQUE tells');
like(claim_late('no_unique'), qr/paid 2 times/, 'without UNIQUE it is paid twice, for all the locks');

# A whole run. What comes out depends on who is killed when; that something is wrong is seen every time.
{
	my ($wrongs, $audit) = ('', '');

	for my $job (map { "gated$_" } 1 .. 5)
	{
		my $run_id = new_run($cluster, 'no_unique', $job, $n_items, definition => $definition);
		my $gate = shut_gate('no_unique', $run_id);
		my $program = start_stress($cluster, %clients, dbname => 'no_unique', run_id => $run_id, job => $job,
			plans => { whole => 1 }, need => []);

		poll_until($cluster, "SELECT count(*) >= $clients{workers} FROM pg_stat_activity
			WHERE datname = 'no_unique' AND application_name LIKE 'stress-%' AND wait_event_type = 'Lock'", 120);
		claim_and_open_gate($gate, 'no_unique', $job);
		$gate->query("UPDATE job_idem.item SET due_at = due_at - interval '1 hour' WHERE due_at IS NOT NULL");
		finish_stress($program, 'broken');
		$wrongs = wrongs($cluster, 'no_unique', $run_id);
		$audit = audit($cluster, 'no_unique', $run_id);
		$gate->quit;
		last if $audit ne '';
	}
	isnt("$wrongs$audit", '', 'a whole run without UNIQUE comes out wrong');
	isnt($audit, '', 'and audit() sees it');
}

# --- without compare-and-swap -----------------------------------------------------------------------------------

ablated_database('no_cas', ablated_library('JOB_IDEM_ABLATE_CAS'));

# K26: two threads of one lease, one item; the second waits for the first.
sub two_threads
{
	my ($dbname) = @_;
	my $run_id = new_run($cluster, $dbname, 'threads', 3, definition => 'batch_size => 3');
	my ($one, $two) = map { session($cluster, dbname => $dbname) } 1, 2;
	my ($token, @keys) = claimed($one->query(claim('threads')));
	my $mark = "SELECT job_idem.mark_done($token, '$keys[0]')";

	$one->query("BEGIN; INSERT INTO ledger VALUES ('$keys[0]', $token, 10); $mark");
	$two->query("BEGIN; INSERT INTO ledger VALUES ('$keys[0]', $token, 10)");
	$two->start_query($mark);
	$two->wait_blocked;
	$one->query("UPDATE balance SET amount = amount + 10 WHERE account = '$keys[0]'; COMMIT");
	is($two->finish_error, $dbname eq 'postgres' ? 'JI010' : '', "the second thread's answer in $dbname");
	$two->query('COMMIT');
	$one->query('BEGIN; ' . pay($token, @keys[1, 2])
		. "; SELECT job_idem.mark_done_many($token, '{$keys[1],$keys[2]}'); COMMIT");
	$_->quit for $one, $two;
	return wrongs($cluster, $dbname, $run_id);
}

# K25: the answer to COMMIT is lost, and the transaction is sent again; one item, or several.
sub answer_lost
{
	my ($dbname) = @_;
	my $run_id = new_run($cluster, $dbname, 'lost', 3, definition => 'batch_size => 3');
	my $one = session($cluster, dbname => $dbname);
	my ($token, @keys) = claimed($one->query(claim('lost')));
	my $transaction = 'BEGIN; ' . pay($token, $keys[0]) . "; SELECT job_idem.mark_done($token, '$keys[0]')";
	my $set = 'BEGIN; ' . pay($token, $keys[1]) . "; SELECT job_idem.mark_done_many($token, '{$keys[1]}')";
	my $last = 'BEGIN; ' . pay($token, $keys[2]) . "; SELECT job_idem.mark_done($token, '$keys[2]')";

	for my $sent ($transaction, $set)
	{
		$one->query("$sent; COMMIT");
		is($one->query_error($sent), $dbname eq 'postgres' ? 'JI010' : '', "the same again in $dbname");
		$one->query('COMMIT');
	}
	$one->query("$last; COMMIT");
	$one->quit;
	return wrongs($cluster, $dbname, $run_id);
}

is(two_threads('postgres'), '', 'two threads, one item: compare-and-swap gives it to one');
like(two_threads('no_cas'), qr/paid 2 times/, 'without it the item is paid twice');
is(answer_lost('postgres'), '', 'a repeated transaction: compare-and-swap refuses it');
like(answer_lost('no_cas'), qr/paid 2 times/, 'without it the items are paid twice');

{
	my $run_id = new_run($cluster, 'no_cas', 'repeated', $n_items, definition => $definition);
	my (undef, $happened) = stress($cluster, %clients, dbname => 'no_cas', run_id => $run_id, job => 'repeated',
		plans => { single => 1 }, one => 0, repeat => 1, need => ['repeats_done'], broken => 1);

	cmp_ok($happened->{repeats_done} || 0, '>', 0,
		'a whole run without compare-and-swap: repeated transactions go through');
	like(wrongs($cluster, 'no_cas', $run_id), qr/paid 2 times/, 'and pay twice');
}

$cluster->stop;
done_testing();
