# A bound claim ends with its backend: what it holds is free as soon as that process is gone, whatever the deadline.
#
# kill -9 of the client: tick, and as well an idle claim, takes the claim back with no deadline passed, and its items are
# due at once; lost again they back off as usual. An unbound claim of a dead client waits for its deadline. With another
# process under the same number it is as free; it is not while the backend is in a long statement, its client dead, nor
# while another connection is at work under it. After a crash of the server no bound claim is left. Claims of living
# backends, however many, do not hide that of a dead one.
# K53, F28.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);
my $bound = ', bind => true';

sub value { return $cluster->safe_psql('postgres', shift); }

sub outcome { my ($token) = @_; return value("SELECT outcome FROM job_idem.claim_status($token)"); }

sub gone { my ($session) = @_; return poll_until($cluster, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $session->pid, 20); }

# state, tries, losses of a run's items, and whether they are due now
sub items
{
	my ($run, $condition) = @_;

	return value("SELECT DISTINCT state, attempts, lost, due_at <= job_idem.now() FROM job_idem.items WHERE run_id = $run AND "
		  . ($condition || 'true'));
}

my $run = batch_job($cluster, 'bound', 6, "batch_size => 3, lease => '1 hour', max_attempts => 9");
my $other = session($cluster);

# --- the client dies
my $a = session($cluster);
my $b = session($cluster);
my ($ta, @ka) = claim($a, 'bound', $bound);
my ($tb, @kb) = claim($b, 'bound');
tick($cluster);
is(scalar(my @none = claim($other, 'bound')), 0, 'nobody takes what a living backend has');
is(outcome($ta), 'open', 'its claim is open');
$a->kill9;
$b->kill9;
gone($a);
gone($b);
tick($cluster);
is(outcome($ta), 'expired', 'the client is dead: the bound claim is taken back before its deadline');
is(outcome($tb), 'open', 'the other one, not bound, is not');
is(items($run, "item_key IN ('" . join("','", @ka) . "')"), 'waiting|0|1|t', 'its items are lost once, and due at once');
is(value("SELECT DISTINCT message FROM job_idem.failure WHERE token = $ta"), 'the claim\'s backend ended before the item was finished', 'the reason');

# --- again, single items this time: the second loss backs off
$a = session($cluster);
my ($t2, @k2) = claim($a, 'bound', $bound);
is(scalar @k2, 1, 'what was lost once comes in smaller company');
$a->kill9;
gone($a);
is(drain($other, 'bound'), 2, 'the others are there for others');
is(outcome($t2), 'expired', 'the idle claim at the end takes it back as well');
is(items($run, "item_key = '$k2[0]'"), 'waiting|1|2|f', 'lost alone it is a try, and lost twice it backs off');
$other->query('SET job_idem.clock_offset = 4000');
is(drain($other, 'bound'), 1, 'it is done when it is due');
is(outcome($tb), 'expired', 'the claim that is not bound is taken back after its deadline');
$other->query('SET job_idem.clock_offset = 8000');
drain($other, 'bound');
ledger_right($cluster, $run, 6, 'bound');
value('TRUNCATE ledger');
$other->query('SET job_idem.clock_offset = 0');

# --- a number that is used again, a statement that goes on, a transaction of another connection
$run = batch_job($cluster, 'alive', 3, "batch_size => 1, lease => '1 hour'");
$a = session($cluster);
($ta, @ka) = claim($a, 'alive', $bound);
value("UPDATE job_idem.lease SET bound_start = bound_start - interval '1 microsecond' WHERE token = $ta");
tick($cluster);
is(outcome($ta), 'expired', 'another process has its number: free');
is($a->query_error("SELECT job_idem.mark_done($ta, '$ka[0]')"), 'JI001', 'and who had it is refused');

my $gate = session($cluster);
$gate->query('SELECT pg_advisory_lock(1)');
my $c = session($cluster);
my ($tc) = claim($c, 'alive', $bound);
$c->start_query('SELECT pg_advisory_lock(1)');
$c->wait_blocked(20);
$c->kill9;
tick($cluster);
is(outcome($tc), 'open', 'its client is dead, but its backend is in a statement still: not free');
$gate->query('SELECT pg_advisory_unlock_all()');
gone($c);
tick($cluster);
is(outcome($tc), 'expired', 'free when it ends');

my ($te, @ke) = claim($a, 'alive', $bound);
$b = session($cluster);
$b->query('BEGIN; ' . write_items($te, @ke) . " SELECT job_idem.hold($te)");
$a->kill9;
gone($a);
tick($cluster);
is(outcome($te), 'open', 'another connection is at work under it: it is in use');
$b->query("SELECT job_idem.mark_all_done($te, 1); COMMIT");
is(outcome($te), 'completed', 'and may be completed');
$other->query('SET job_idem.clock_offset = 300');
is(drain($other, 'alive'), 2, 'the others do the rest');
ledger_right($cluster, $run, 3, 'alive');
value('TRUNCATE ledger');
$other->query('SET job_idem.clock_offset = 0');

# --- one dead behind many that live
$run = batch_job($cluster, 'many', 61, "batch_size => 1, lease => '1 hour'");
$a = session($cluster);
$a->query('DO $$ BEGIN FOR i IN 1 .. 60 LOOP PERFORM job_idem.claim_items(\'many\', bind => true); END LOOP; END $$');
$b = session($cluster);
my ($last) = claim($b, 'many', $bound);
$b->kill9;
gone($b);
is(scalar(@none = claim($other, 'many')), 0, 'an idle claim among many bound ones');
is(outcome($last), 'expired', 'finds the one whose backend is dead');
is(value("SELECT count(*) FROM job_idem.leases WHERE run_id = $run AND outcome = 'open'"), 60, 'and lets the others be');

# --- the server crashes
$cluster->stop('immediate');
$cluster->start;
tick($cluster);
is(value("SELECT count(*) FROM job_idem.leases WHERE run_id = $run AND outcome = 'open'"), 0, 'no bound claim outlives the server');
$other = session($cluster);
is(drain($other, 'many'), 61, 'all is claimed at once');
ledger_right($cluster, $run, 61, 'many');

$cluster->stop;
done_testing();
