# What stands in the way of expiry does not stop it.
#
# A fleet is at work in long transactions, its leases are overdue but in use; behind them, in the same run, is one whose
# holder is dead. Idle claims, and ticks, find that one, however many are in front of it, and leave the others alone.
# P12 (in one run), K51, F19.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');

sub behind
{
	my ($job, $held, $way) = @_;
	my $of = batch_job($cluster, $job, $held + 1, "batch_size => 1, lease => '1 min'");
	my $holder = session($cluster);
	my @tokens = map { (claim($holder, $job))[0] } 1 .. $held + 1;

	# one transaction is at work under all of them but the last
	$holder->query('BEGIN; ' . join '; ', map { "SELECT job_idem.hold($_)" } @tokens[ 0 .. $held - 1 ]);
	if ($way eq 'tick')
	{
		tick($cluster, 400);
	}
	else
	{
		my $idle = session($cluster, options => '-c job_idem.clock_offset=400');
		claim($idle, $job);
		$idle->quit;
	}
	is($cluster->safe_psql('postgres', "SELECT outcome FROM job_idem.claim_status($tokens[-1])"), 'expired',
		"$way: the free lease behind $held that are in use");
	is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.leases WHERE run_id = $of AND outcome = 'open'"), $held,
		"$way: those in use are left alone");
	$holder->query('COMMIT');
	$holder->quit;
	audit_empty($cluster, $of);
	return;
}
behind('few', 5, 'idle claim');
behind('held, idle claim', 60, 'idle claim');
behind('held, tick', 300, 'tick');

$cluster->stop;
done_testing();
