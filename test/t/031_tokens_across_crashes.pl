# No token is issued twice, whatever a crash forgets.
#
# Under synchronous_commit = off a crash loses what was committed last: claims, the position of the token sequence, the
# epoch row, also the step that moved the sequence on after the last start. The workers that hold those tokens are alive.
# After an immediate stop, after several in a row, and after a crash of one backend, which restarts the server without
# restarting the postmaster, the next token is larger than every one that anybody saw; forgotten tokens are JI001;
# slices whose claim was lost are claimed again and done once.
# K75, P7.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

# Nothing is written out but by the WAL writer, which sleeps for ten seconds.
my $cluster = new_cluster('main', conf => "wal_level = minimal\nmax_wal_senders = 0\nwal_writer_delay = 10s\n");
make_ledger($cluster);
my $run = batch_job($cluster, 'settle', 2000, 'batch_size => 2');
my @tokens;

# Claims so many slices without waiting for the disk; returns the tokens.
sub claim_some
{
	my ($n) = @_;
	my $worker = session($cluster);
	my @claimed;

	$worker->query('SET synchronous_commit = off');
	for (1 .. $n)
	{
		my ($token) = claim($worker, 'settle');

		push @claimed, $token;
	}
	$worker->quit;
	return @claimed;
}

# Claims, crashes, and does so again if the disk happened to have all of it: else the test would not see what it is about.
sub crash_and_check
{
	my ($name, $crash) = @_;
	my @forgotten;

	for (1 .. 20)
	{
		my @newest = claim_some(12);

		push @tokens, @newest;
		$crash->();
		my $reader = session($cluster);
		@forgotten = grep { $reader->query("SELECT count(*) FROM job_idem.leases WHERE token = $_") eq '0' } @newest;
		$reader->quit;
		last if @forgotten;
	}
	cmp_ok(scalar @forgotten, '>', 0, "$name: the crash has forgotten claims");
	check($name, @forgotten);
	return;
}

sub check
{
	my ($name, @forgotten) = @_;
	my ($highest) = sort { $b <=> $a } @tokens;
	my @after = claim_some(3);
	my ($lowest) = sort { $a <=> $b } @after;

	cmp_ok($lowest, '>', $highest, "$name: new tokens are larger than any before");
	push @tokens, @after;
	my $worker = session($cluster);
	is($worker->query_error("SELECT job_idem.mark_all_done($_, 2)"), 'JI001', "$name: a forgotten token is stale")
		for @forgotten ? $forgotten[-1] : ();
	$worker->quit;
	return;
}

sub stop_at_once
{
	$cluster->stop('immediate');
	$cluster->start;
	return;
}

# A backend crashes: the server starts anew, but not the postmaster.
sub crash_backend
{
	my $victim = session($cluster);

	$victim->kill9_backend;
	is($victim->query_error('SELECT 1'), '08006', 'a backend crashes');
	poll_until($cluster, 'SELECT NOT pg_is_in_recovery()', 60);
	return;
}

# a first start whose tokens are lost, and then a second and a third
crash_and_check("immediate stop $_", \&stop_at_once) for 1 .. 3;
$cluster->safe_psql('postgres', 'CHECKPOINT');
crash_and_check("backend crash $_", \&crash_backend) for 1 .. 2;

# What advance_epoch has answered holds as well.
my $operator = session($cluster);
my $epoch = $operator->query("SET synchronous_commit = off; SELECT job_idem.advance_epoch('test')");
push @tokens, claim_some(1);
stop_at_once();
check('advance_epoch');
cmp_ok($cluster->safe_psql('postgres', 'SELECT max(epoch) FROM job_idem.epoch'), '>=', $epoch,
	'an epoch that was advanced to is not forgotten');

is(scalar(keys %{ { map { $_ => 1 } @tokens } }), scalar @tokens, 'no token was issued twice');

# What was lost is work again, and what was held comes back by lease.
my $worker = session($cluster);
drain($worker, 'settle');
tick($cluster, 400);
$worker->query('SET job_idem.clock_offset = 800');
drain($worker, 'settle');
tick($cluster, 800);
is($worker->query("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), 'done|2000', 'the run ends');
ledger_right($cluster, $run, 2000);
$worker->quit;

$cluster->stop;
done_testing();
