# Whoever ends a worker's transaction, and wherever in it, each item has its effect once.
#
# The client is killed, the backend is terminated, the session is ended because it is idle in its transaction, the server
# is stopped at once: before the write, between write and mark, between mark and COMMIT, and right after COMMIT. Nothing
# is done before COMMIT and everything after it; what is not done comes back by lease, and not before. A time-out that
# ends the session between claim and mark is seen by the caller. A claim, work and completion in one transaction leave
# nothing behind, and the slice is claimed at once.
# K18, K34, F11, F24, C59 (ends inside the verbs: 013_fault_points).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);

# How a worker may end; each takes all workers of a round.
my %ends = (
	'client killed' => sub { $_->kill9 for @_; gone($_) for @_; },
	'backend terminated' => sub { $_->terminate for @_; },
	'idle in transaction' => sub {
		for my $worker (@_)
		{
			next if !$worker->{in_transaction};
			$worker->start_query("SET idle_in_transaction_session_timeout = '1ms'");
			gone($worker);
			$worker->finish_error;
			my $told = $worker->errors;
			$worker->query_error('SELECT 1') if $told !~ /25P03/;
			like($told . $worker->errors, qr/25P03/, 'idle in transaction: the caller is told why the connection is lost');
		}
	},
	'immediate stop' => sub { $cluster->stop('immediate'); $cluster->start; });

# Where it may be at that time.
my $write = q{INSERT INTO ledger (item_key, token) VALUES ('k1', TOKEN)};
my $mark = q{SELECT job_idem.mark_done(TOKEN, 'k1')};
my %places = (
	'before the write' => [ 'BEGIN' ],
	'between write and mark' => [ 'BEGIN', $write ],
	'between mark and COMMIT' => [ 'BEGIN', $write, $mark ],
	'after COMMIT' => [ 'BEGIN', $write, $mark, 'COMMIT' ]);

# Wait until the backend has noticed.
sub gone
{
	my ($worker) = @_;

	return poll_until($cluster, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $worker->pid, 20);
}

# A worker that has claimed and worked up to a place.
sub worker_at
{
	my ($job, $place) = @_;
	my $worker = session($cluster);
	my ($token) = claim($worker, $job);

	$worker->query($_) for map { s/TOKEN/$token/gr } @{ $places{$place} };
	$worker->{in_transaction} = $place ne 'after COMMIT';
	return $worker;
}

# A worker that does everything in one transaction, while another has the other slice.
sub worker_at_once
{
	my ($job) = @_;
	my $worker = session($cluster);

	$worker->query('BEGIN');
	my ($token, @keys) = claim($worker, $job);
	is(drain(session($cluster), $job), 3, "$job: others have the other slice only");
	$worker->query(write_items($token, @keys) . "SELECT job_idem.mark_all_done($token, 3)");
	$worker->{in_transaction} = 1;
	return $worker;
}

for my $end (sort keys %ends)
{
	my %run = map { $_ => batch_job($cluster, "$end $_", 3, 'batch_size => 3') } sort keys %places;
	my $at_once = batch_job($cluster, "$end at once", 6, 'batch_size => 3');

	$ends{$end}->((map { worker_at("$end $_", $_) } sort keys %places), worker_at_once("$end at once"));

	my $next = session($cluster);
	for my $place (sort keys %places)
	{
		my $done = $place eq 'after COMMIT';

		is($next->query("SELECT string_agg(state, ' ' ORDER BY item_no) FROM job_idem.items WHERE run_id = $run{$place}"),
			$done ? 'done claimed claimed' : 'claimed claimed claimed', "$end $place: " . ($done ? 'done' : 'not done'));
		is($next->query("SELECT count(*) FROM ledger JOIN job_idem.leases USING (token) WHERE run_id = $run{$place}"),
			$done ? 1 : 0, "$end $place: " . ($done ? 'written' : 'not written'));
		is(scalar(my @early = claim($next, "$end $place")), 0, "$end $place: held until the deadline");
	}
	is($next->query("SELECT count(*) FROM job_idem.leases WHERE run_id = $at_once"), 1, "$end at once: no lease is left");
	is(drain($next, "$end at once"), 3, "$end at once: the gap is claimed without waiting");

	# the deadline has come, and then the back-off is over
	tick($cluster, 400);
	$next->query('SET job_idem.clock_offset = 800');
	for my $place (sort keys %places)
	{
		is(drain($next, "$end $place"), $place eq 'after COMMIT' ? 2 : 3, "$end $place: then others do the rest");
		audit_empty($cluster, $run{$place}, "$end $place: audit is empty");
	}
	audit_empty($cluster, $at_once, "$end at once: audit is empty");
	$next->quit;
	tick($cluster, 800);
}

is($cluster->safe_psql('postgres', 'SELECT DISTINCT state, n_done = n_items FROM job_idem.runs'), 'done|t', 'all runs are done');
is($cluster->safe_psql('postgres', <<'SQL'), '72|72|72|0', 'each item of them has its effect once');
SELECT count(*), count(DISTINCT (i.run_id, i.item_key)), (SELECT count(*) FROM job_idem.items WHERE state = 'done'),
	(SELECT count(*) FROM job_idem.items WHERE state <> 'done')
FROM ledger l JOIN job_idem.items i USING (item_key, token)
SQL
is($cluster->safe_psql('postgres', 'SELECT count(*) FROM ledger'), 72, 'and there are no others');

$cluster->stop;
done_testing();
