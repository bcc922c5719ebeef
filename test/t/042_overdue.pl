# A fleet that died leaves very many overdue leases: each tick takes its share of them and ends, the number falls every time,
# runs behind a big one get their turn in the same tick, and claims go on meanwhile. Where somebody has locked the item table
# in a mode that lets nobody write, tick and idle claims give up soon, and claims of slices do not queue behind anybody.
# P12, C47, C48.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;
use Time::HiRes qw(time);

my $cluster = new_cluster('main', conf => 'max_locks_per_transaction = 256');
make_ledger($cluster);
my $n = scaled(20_000, 1_000_000);
# what a tick takes, and 50 more of each run
my $bound = 10_000 + 3 * 50;

# Claims n leases of one item each; each hundred commits.
$cluster->safe_psql('postgres', <<'SQL');
CREATE PROCEDURE die_with(job text, n integer) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		PERFORM FROM job_idem.claim_items(job);
		IF i % 100 = 0 THEN COMMIT; END IF;
	END LOOP;
END
$$;
SQL
my $run = batch_job($cluster, 'dead', $n, "batch_size => 1, lease => '1 min'");
my $small = batch_job($cluster, 'small', 200, "batch_size => 1, lease => '1 min'");
my $alive = batch_job($cluster, 'alive', 1000, 'batch_size => 1');
$cluster->safe_psql('postgres', "CALL die_with('dead', $n); CALL die_with('small', 40)");

sub open_leases
{
	return $cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.leases WHERE run_id = $_[0] AND outcome = 'open'");
}
is(open_leases($run), $n, "$n leases, none of them closed");

# A tick that is stopped at its first lease holds up no claim of any job.
my $gate = session($cluster);
$gate->query('SELECT pg_advisory_lock(4711)');
my $ticker = session($cluster, options => '-c job_idem.clock_offset=100');
$ticker->query("SET job_idem.fault_point = 'expire:wait:4711'");
$ticker->start_query('CALL job_idem.tick()');
$ticker->wait_blocked(60);
my $worker = session($cluster, options => '-c statement_timeout=10s');
is(drain($worker, 'alive'), 1000, 'claims and completions go on meanwhile');
my $other = session($cluster, options => '-c statement_timeout=10s');
is($other->query("SELECT count(*) FROM job_idem.claim_items('small')"), 1, 'so do claims of a job with overdue leases');
$ticker->terminate;
$ticker->finish_error;
$gate->query('SELECT pg_advisory_unlock(4711)');
$gate->quit;

my ($left, $ticks) = ($n, 0);
while ($left > 0)
{
	tick($cluster, 100);
	my $now = open_leases($run);
	my $taken = $left - $now;

	$ticks++;
	if ($taken <= 0 || $taken > $bound)
	{
		fail("tick $ticks took $taken of $left");
		last;
	}
	is(open_leases($small), 0, 'the run behind it has had its turn') if $ticks == 1;
	$left = $now;
}
is($left, 0, "all are taken back, after $ticks ticks");
cmp_ok($ticks, '>=', $n / $bound, "none took more than $bound");
is($cluster->safe_psql('postgres', "SELECT count(*) FILTER (WHERE state = 'waiting' AND attempts = 1 AND lost = 1) FROM job_idem.items"
	  . " WHERE run_id = $run"), $n, 'each item is lost once');
audit_empty($cluster, $run);

# a lock that lets nobody write items
my $late = batch_job($cluster, 'late', 10, "batch_size => 1, lease => '1 min'");
$cluster->safe_psql('postgres', "CALL die_with('late', 5)");
my $locker = session($cluster);
$locker->query('BEGIN; LOCK job_idem.item IN SHARE MODE');
my ($stdout, $stderr);
my $start = time();
$cluster->psql('postgres', "LOAD 'job_idem'; SET job_idem.clock_offset = 100; CALL job_idem.tick()", stdout => \$stdout,
	stderr => \$stderr);
cmp_ok(time() - $start, '<', 30, 'tick gives up');
like($stderr, qr/WARNING:  tick could not work on run .*lock timeout.*This tick ends here/s, 'and says why');
my $idle = session($cluster, options => '-c job_idem.clock_offset=100 -c statement_timeout=10s');
is($idle->query("SELECT count(*) FROM job_idem.claim_items('late')"), 1, 'a slice is claimed all the same');
$idle->query("SELECT count(*) FROM job_idem.claim_items('late')") for 1 .. 4;
is($idle->query("SELECT count(*) FROM job_idem.claim_items('late')"), 0, 'an idle claim gives up and says nothing');
$locker->query('COMMIT');
tick($cluster, 100);
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.leases WHERE run_id = $late AND outcome = 'expired'"), 5,
	'the next tick takes them');

$cluster->stop;
done_testing();
