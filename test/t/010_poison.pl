# Items that kill their worker, and workers that are killed, are told apart by the company the items were claimed in.
#
# One item of 500 kills whoever works on it: the claims that contain it shrink from 500 to at most 31 to 1, only losses
# of the item alone count as attempts, and it ends dead (kind lost) by itself while its 499 neighbours are done, with
# max_attempts 4, 2 and 1; no report of the worker is needed for that. Four deploys in a row that kill every worker,
# on the other hand, kill no item at the default settings.
# K17, R10, F19, C33.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);

# One claim by a worker that dies as soon as it meets the item; another takes its place. 'idle', 'died' or 'done', and the
# company.
my $worker;
sub one_claim
{
	my ($job, $poison, $clock) = @_;

	$worker ||= session($cluster);
	$worker->query("SET job_idem.clock_offset = $clock");
	my ($token, @keys) = claim($worker, $job);
	return ('idle', 0) if !defined $token;
	if (grep { $_ eq $poison } @keys)
	{
		$worker->query("BEGIN; INSERT INTO ledger (item_key, token) VALUES ('$poison', $token)");
		$worker->kill9;
		$worker = undef;
		return ('died', scalar @keys);
	}
	work_on($worker, $token, @keys);
	return ('done', scalar @keys);
}

sub poison
{
	my ($job, $run, $max_attempts) = @_;
	my $clock = 0;
	my @companies;

	for (1 .. 1000)
	{
		my ($what, $company) = one_claim($job, 'k250', $clock);

		push @companies, $company if $what eq 'died';
		last if $what eq 'idle'
		  && $cluster->safe_psql('postgres', "SELECT state FROM job_idem.runs WHERE run_id = $run") eq 'partial';
		# past the lease and every back-off
		$clock += 700 if $what eq 'idle';
	}
	is($companies[0], 500, "$job: first claimed with the whole slice");
	cmp_ok($companies[1], '<=', 31, "$job: then in small company");
	is(join(' ', @companies[ 2 .. $#companies ]), join(' ', (1) x $max_attempts), "$job: then alone, $max_attempts times");
	is($cluster->safe_psql('postgres', "SELECT item_key, kind, attempts, status FROM job_idem.dead_letters WHERE job = '$job'"),
		"k250|lost|$max_attempts|open", "$job: it ends dead alone, as lost");
	is($cluster->safe_psql('postgres', "SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = $run"),
		'partial|499|1', "$job: its neighbours are done");
	is($cluster->safe_psql('postgres',
			"SELECT max(attempts), max(lost) FROM job_idem.items WHERE run_id = $run AND state = 'done'"),
		'0|2', "$job: no neighbour has a try counted, or was lost more than twice");
	ledger_right($cluster, $run, 499, "$job: ledger");
	$cluster->safe_psql('postgres', 'TRUNCATE ledger');
	return;
}

poison('poison', batch_job($cluster, 'poison', 500, 'batch_size => 500'), 4);
poison('poison two', batch_job($cluster, 'poison two', 500, 'batch_size => 500, max_attempts => 2'), 2);

# max_attempts 1 is refused for larger slices, but the slices of a run that is sealed stay as they are when it comes
my $run = batch_job($cluster, 'poison one', 500, 'batch_size => 500');
$cluster->safe_psql('postgres', "SELECT FROM job_idem.define_job('poison one', batch_size => 1, max_attempts => 1)");
poison('poison one', $run, 1);

$run = batch_job($cluster, 'slices of one', 20, 'batch_size => 1, max_attempts => 1');
my $clock = 0;
my $died = 0;
for (1 .. 100)
{
	my ($what) = one_claim('slices of one', 'k7', $clock);

	$died++ if $what eq 'died';
	last if $what eq 'idle'
	  && $cluster->safe_psql('postgres', "SELECT state FROM job_idem.runs WHERE run_id = $run") eq 'partial';
	$clock += 700 if $what eq 'idle';
}
is($died, 1, 'slices of one, max_attempts 1: one try');
is($cluster->safe_psql('postgres', "SELECT item_key, kind, attempts FROM job_idem.dead_letters WHERE run_id = $run"),
	'k7|lost|1', 'slices of one, max_attempts 1: dead after it, without a report');
ledger_right($cluster, $run, 19, 'slices of one: ledger');
$cluster->safe_psql('postgres', 'TRUNCATE ledger');

# Four deploys in a row, each killing all five workers in the middle of their claims.
$run = batch_job($cluster, 'deploys', 100, 'batch_size => 20');
$clock = 0;
for my $deploy (1 .. 4)
{
	my @workers = map { session($cluster, options => "-c job_idem.clock_offset=$clock") } 1 .. 5;
	my $claimed = 0;

	for my $worker (@workers)
	{
		my ($token, @keys) = claim($worker, 'deploys');

		$worker->query('BEGIN; ' . write_items($token, @keys)) if defined $token;
		$claimed += @keys;
	}
	cmp_ok($claimed, '>=', 5, "deploy $deploy: every worker had something");
	$_->kill9 for @workers;
	$clock += 700;
	tick($cluster, $clock);
	$clock += 700;
}
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.dead_letters WHERE run_id = $run"),
	0, 'four deploys in a row: no dead letter');
$worker = session($cluster, options => "-c job_idem.clock_offset=$clock");
is(drain($worker, 'deploys'), 100, 'then all is done');
$worker->quit;
tick($cluster, $clock);
is($cluster->safe_psql('postgres', "SELECT state FROM job_idem.runs WHERE run_id = $run"), 'done', 'and the run as well');
ledger_right($cluster, $run, 100, 'four deploys: ledger');

$cluster->stop;
done_testing();
