# An item of four steps whose worker crashes after the second is not begun anew: the next holder is given the results of
# the two, and does the other two only.
#
# Four workers each have an item and have done two steps of it, each in a transaction of its own. One stops there, one has
# written the third step, one has recorded it too and not committed, one is inside step_done. Then their clients are killed,
# their backends are terminated, one backend crashes (kill -9) and the server with it, or the server is stopped at once. In
# each case every step of every item takes effect once, under the claim that it is recorded with; an item that is replayed
# after all that is not begun anew either.
# X10, K61, F24.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
$cluster->safe_psql('postgres', 'CREATE TABLE effect (item_key text, step integer, token bigint)');

sub value { return $cluster->safe_psql('postgres', shift); }

my %ends = (
	'client killed' => sub { $_->kill9 for @_; },
	'terminated' => sub { $_->terminate for @_; },
	'crashed' => sub { $_[0]->kill9_backend; },
	'immediate stop' => sub { $cluster->stop('immediate'); $cluster->start; });

# The effect of a step and its record.
sub effect
{
	my ($worker, $step) = @_;

	return "INSERT INTO effect VALUES ('$worker->{key}', $step, $worker->{token})";
}
sub record
{
	my ($worker, $step) = @_;

	return "SELECT job_idem.step_done($worker->{token}, '$worker->{key}', 'step $step', '{\"of\": \"$worker->{key}\", \"n\": $step}')";
}

# A worker that has claimed an item and is told what is done of it already.
sub begin
{
	my ($worker) = @_;

	($worker->{token}, $worker->{key}) = claim($worker, 'steps');
	return if !defined $worker->{token};
	$worker->{told} =
	  $worker->query("SELECT step, result->'n' FROM job_idem.steps($worker->{token}, '$worker->{key}') WHERE result->>'of' = '$worker->{key}'");
	return $worker->{key};
}

# Does the steps that it was not told of, up to one of them.
sub work_to
{
	my ($worker, $last) = @_;

	for my $step (1 .. $last)
	{
		next if $worker->{told} =~ /^step $step\|$step$/m;
		$worker->query(join '; ', 'BEGIN', effect($worker, $step), record($worker, $step), 'COMMIT');
	}
	return;
}

for my $end (sort grep { soak() || $_ ne 'terminated' } keys %ends)
{
	my $run = batch_job($cluster, 'steps', 4, "batch_size => 1, backoff_base => '0'");
	my $gate = session($cluster);
	my @workers = map { session($cluster) } 1 .. 4;
	my %first;

	$gate->query('SELECT pg_advisory_lock(18)');
	for my $worker (@workers)
	{
		begin($worker);
		work_to($worker, 2);
		$first{ $worker->{key} } = $worker->{token};
	}
	$workers[1]->query(join '; ', 'BEGIN', effect($workers[1], 3));
	$workers[2]->query(join '; ', 'BEGIN', effect($workers[2], 3), record($workers[2], 3));
	$workers[3]->query("SET job_idem.fault_point = 'step_done:wait:18'");
	$workers[3]->start_query(join '; ', 'BEGIN', effect($workers[3], 3), record($workers[3], 3), 'COMMIT');
	$workers[3]->wait_blocked;

	# one of those that are within a step comes first: it is the one that crashes
	$ends{$end}->(reverse @workers);
	poll_until($cluster, 'SELECT NOT pg_is_in_recovery()', 60);
	# the backends find out when they next talk to their clients; what hangs is ended for good
	poll_until($cluster, 'SELECT count(*) = 0 FROM pg_stat_activity, pg_terminate_backend(pid) WHERE pid IN ('
		  . join(',', map { $_->pid } @workers) . ')', 20);
	$gate->kill9;
	is(value('SELECT string_agg(DISTINCT step::text, \' \') FROM effect'), '1 2', "$end: two steps of each item are done");

	tick($cluster, 400);
	my $next = session($cluster, options => '-c job_idem.clock_offset=800');
	my %second;
	while (my $key = begin($next))
	{
		is($next->{told}, "step 1|1\nstep 2|2", "$end: the next holder of $key is told of two steps");
		work_to($next, 4);
		is($next->query_error(record($next, 2)), 'JI010', "$end: a recorded step is refused");
		$next->query("SELECT job_idem.mark_done($next->{token}, '$key')");
		$second{$key} = $next->{token};
	}
	is(value('SELECT item_key, step, token FROM effect ORDER BY 1, 2'),
		join("\n", map { my $k = $_; map { "$k|$_|" . ($_ < 3 ? $first{$k} : $second{$k}) } 1 .. 4 } sort keys %first),
		"$end: each step took effect once, two under each claim");
	is(value("SELECT count(*) FROM job_idem.item_step s JOIN effect e ON s.item_key = e.item_key AND s.step = 'step ' || e.step"
		  . " AND s.token = e.token WHERE s.run_id = $run"), 16, "$end: as is recorded");
	tick($cluster, 800);
	is(value("SELECT state FROM job_idem.runs WHERE run_id = $run"), 'done', "$end: the run is done");
	audit_empty($cluster, $run, "$end: audit is empty");
	$next->quit;
	$_->kill9 for @workers;
	value("SELECT job_idem.drop_job('steps'); TRUNCATE effect; UPDATE job_idem.run SET run_key = '$end' WHERE run_id = $run");
}

# dead after step 2, and replayed: the same
my $run = batch_job($cluster, 'steps', 1);
my $worker = session($cluster);
begin($worker);
work_to($worker, 2);
$worker->query("SELECT job_idem.mark_failed($worker->{token}, 'k1', 'no such account', '23514')");
$worker->query("SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = $run");
begin($worker);
is($worker->{told}, "step 1|1\nstep 2|2", 'replayed: the next holder is told');
work_to($worker, 4);
$worker->query("SELECT job_idem.mark_done($worker->{token}, 'k1')");
is(value('SELECT step, count(*) FROM effect GROUP BY step ORDER BY step'), "1|1\n2|1\n3|1\n4|1", 'replayed: each step once');
audit_empty($cluster, $run, 'replayed: audit is empty');

$cluster->stop;
done_testing();
