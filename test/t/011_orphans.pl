# Work of a dead worker comes back by its lease alone: no tick, no heartbeat, no list of workers is needed.
#
# kill -9 of the worker right after its claim, its backend terminated, an immediate stop of the server: before deadline and
# takeover_delay nobody gets the items; after it the idle claims of another worker expire the lease (lost = 1, back-off),
# later ones get the items, each is done once. Items lost alone are dead letters after max_attempts deaths. A namesake that
# heartbeats its own claim keeps nobody else's alive, and no record of the dead worker is needed to find its work.
# K16, F19, C04, C33.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);

my %deaths = (
	'client killed' => sub { $_[0]->kill9; },
	'backend terminated' => sub { $_[0]->terminate; },
	'immediate stop' => sub { $cluster->stop('immediate'); $cluster->start; });

for my $death (sort keys %deaths)
{
	my $run = batch_job($cluster, $death, 10, "batch_size => 10, lease => '5 min', takeover_delay => '2 min',"
		  . " backoff_base => '30 s'");
	my $victim = session($cluster);
	my ($token, @keys) = claim($victim, $death);
	is(scalar @keys, 10, "$death: claimed");
	$deaths{$death}->($victim);

	my $other = session($cluster);
	my $status = "SELECT outcome, n_left FROM job_idem.claim_status($token)";
	for my $clock (0, 290, 410)
	{
		$other->query("SET job_idem.clock_offset = $clock");
		is(scalar(my @none = claim($other, $death)), 0, "$death: nobody gets them after $clock s");
		is($other->query($status), 'open|10', "$death: the lease holds");
	}
	$other->query('SET job_idem.clock_offset = 430');
	is(scalar(my @none = claim($other, $death)), 0, "$death: an idle claim expires the lease");
	is($other->query($status), 'expired|0', "$death: it has ended");
	is($other->query("SELECT DISTINCT state, lost, attempts, due_at > job_idem.now(), due_at <= job_idem.now() + '30 s'"
			  . " FROM job_idem.items WHERE run_id = $run"), 'waiting|1|0|t|t', "$death: lost once, no try counted, backed off");
	$other->query('SET job_idem.clock_offset = 470');
	is(drain($other, $death), 10, "$death: then they are done");
	claim($other, $death);
	is($other->query("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), 'done|10', "$death: and the run ends");
	ledger_right($cluster, $run, 10, $death);
	$cluster->safe_psql('postgres', 'TRUNCATE ledger');
	$other->quit;
}

# One item whose worker dies each time, nobody ever reports anything and nobody calls tick.
my $run = batch_job($cluster, 'deadly', 1, 'batch_size => 1');
my $deaths = 0;
for my $round (0 .. 12)
{
	my $victim = session($cluster, options => '-c job_idem.clock_offset=' . 600 * $round);
	my ($token) = claim($victim, 'deadly');

	$deaths++ if defined $token;
	$victim->kill9;
}
is($deaths, 4, 'an item lost alone: as many tries as max_attempts');
is($cluster->safe_psql('postgres', "SELECT kind, attempts, status FROM job_idem.dead_letters WHERE run_id = $run"), 'lost|4|open',
	'an item lost alone: then it is a dead letter');
is($cluster->safe_psql('postgres', "SELECT string_agg(kind || attempt, ' ' ORDER BY failure_id) FROM job_idem.failure WHERE run_id = $run"),
	'lost1 lost2 lost3 lost4', 'an item lost alone: every try is on record');
audit_empty($cluster, $run);

# A namesake: same name, own claim, own heartbeats.
$run = batch_job($cluster, 'names', 20, "batch_size => 10, lease => '5 min'");
my $first = session($cluster);
my ($token, @keys) = claim($first, 'names', ", 'worker 1'");
$first->kill9;
my $second = session($cluster);
my ($own, @own) = claim($second, 'names', ", 'worker 1'");
for my $clock (100, 200, 299)
{
	$second->query("SET job_idem.clock_offset = $clock; SELECT job_idem.heartbeat($own)");
}
tick($cluster, 400);
is($second->query("SELECT outcome FROM job_idem.claim_status($own)"), 'open', 'a namesake keeps its own claim');
is($second->query("SELECT outcome FROM job_idem.claim_status($token)"), 'expired', "but not its predecessor's");
$second->query('SET job_idem.clock_offset = 500');
work_on($second, $own, @own);
is(drain($second, 'names'), 10, 'whose items are done by it later');
tick($cluster, 500);
is($second->query("SELECT state FROM job_idem.runs WHERE run_id = $run"), 'done', 'the run ends');
# nothing about workers is kept anywhere but as a name in the lease
is($second->query("SELECT count(*) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE relnamespace = 'job_idem'::regnamespace"
		  . " AND relkind = 'r' AND attname ~ 'worker' AND relname <> 'lease'"), 0, 'there is no list of workers');
ledger_right($cluster, $run, 20, 'names');

$cluster->stop;
done_testing();
