# Stress: sixteen clients at work on one run, as unruly as clients are, some of them killed at random moments.
#
# Claims are worked whole, item by item, in sets, by two threads at once, late, under savepoints that are rolled back,
# in the claim's own transaction; items are failed, postponed and released; leases end early or are ended by an
# operator; transactions are sent again, as after a lost answer to COMMIT; clients are killed (-9), cut off, and stopped
# until their lease is over. Some clients work at REPEATABLE READ. At the end every item is done exactly once in a
# ledger and a balance that have no unique key, under the token that the queue names, and audit() finds nothing. No
# statement may end in an error that the manual does not announce for it; none in a deadlock.
#
# Proves: F1-F4 under load, K10, K12, K16, K18, K25, K26, K28-K40, K43-K49, K63, K64, K71, K72 by random interleavings.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Stress;

my $seed = seed();
my $cluster = new_cluster('main',
	conf => "max_connections = 120\nsynchronous_commit = off\ndeadlock_timeout = 200ms\n");
plan skip_all => 'psycopg is not installed' unless has_psycopg($cluster);
new_ledger($cluster, 'postgres');

my $n_items = scaled(2000, 100_000);
my $run_id = new_run($cluster, 'postgres', 'stress', $n_items,
	definition => "batch_size => 20, lease => '1 s', max_attempts => 30000, backoff_base => '1 ms',
		backoff_max => '20 ms'");
# what does not happen is not tested
my @events = qw(killed terminated stopped stale already repeats lost_connections);
my ($orderly, $happened) = stress($cluster,
	run_id => $run_id,
	job => 'stress',
	seed => $seed,
	workers => 16,
	repeatable => 5,
	plans => {
		whole => 3, single => 3, together => 2, many => 3, except => 3, mixed => 3, abandon => 2, savepoint => 1,
		rollback => 1, hold => 1, race => 2
	},
	leases => [ '1 microsecond', '10 ms', '100 ms', '1 s', undef ],
	one => 0.1,
	repeat => 0.2,
	transient => 0.7,
	kill_every => 0.1,
	tick_every => 0.1,
	operator => JSON::PP::true,
	need => \@events,
	seconds => scaled(10, 1200),
	limit => scaled(240, 3600));

ok($orderly, 'no client met an error that it need not expect');
is(wrongs($cluster, 'postgres', $run_id), '', 'every item is done exactly once');
is(audit($cluster, 'postgres', $run_id), '', 'no invariant is broken');
is($cluster->safe_psql('postgres', "SELECT state, n_items, n_done FROM job_idem.runs WHERE run_id = $run_id"),
	"done|$n_items|$n_items", 'the run is done');
is($happened->{repeats_done}, 0, 'no repeated transaction went through');
is(index(slurp_file($cluster->logfile), 'deadlock detected'), -1, 'no deadlock');

cmp_ok($happened->{$_} || 0, '>', 0, "$_: $happened->{$_}") for @events;
my $met = $cluster->safe_psql('postgres', "SELECT count(DISTINCT outcome) || ' ' ||
	count(DISTINCT picks IS NULL) FROM job_idem.lease WHERE outcome <> 'open' AND run_id = $run_id");
is($met, '3 2', 'leases of slices and of single items ended completed, released and expired');
cmp_ok($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.dead_letter WHERE status = 'replayed'"),
	'>', 0, 'dead letters were replayed');

$cluster->stop;
done_testing();
