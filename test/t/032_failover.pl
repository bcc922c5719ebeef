# The node that was promoted goes on with what reached it: larger tokens, stale workers refused, lost claims claimed again.
#
# A standby is cut off, the primary issues more claims and does more work, and dies; the standby is promoted in the middle
# of the run, without those commits. There: the next token is larger than every one that the old primary issued; every
# claim the standby never saw is JI001, and one it saw ends by lease without a restart of anything; each item is done once
# in the ledger that was promoted with it. The same after recovery to a point in time. Two copies of the data folder that
# were started side by side issue the same tokens, as nothing in them differs; after advance_epoch() they do not.
# pg_upgrade from a later timeline begins a new epoch, too.
# K75, P6, P7, C51.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $primary = new_cluster('primary', init => { allows_streaming => 1, has_archiving => 1 });
make_ledger($primary);
my $run = batch_job($primary, 'settle', 300, 'batch_size => 10');
$primary->backup('backup');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

sub works
{
	my ($cluster, $n) = @_;
	my $worker = session($cluster);
	my @tokens;

	for (1 .. $n)
	{
		my ($token, @keys) = claim($worker, 'settle');

		work_on($worker, $token, @keys);
		push @tokens, $token;
	}
	$worker->quit;
	return @tokens;
}

# Holds a claim, with some of it done.
sub holds
{
	my ($cluster) = @_;
	my $worker = session($cluster);
	my ($token, @keys) = claim($worker, 'settle');

	$worker->query('BEGIN;' . write_items($token, $keys[0]) . "SELECT job_idem.mark_done($token, '$keys[0]'); COMMIT");
	$worker->quit;
	return ($token, @keys);
}

# The run goes on to its end, with nobody but workers.
sub goes_on
{
	my ($cluster, $name, $highest, $known, @unknown) = @_;
	my $worker = session($cluster);

	is($worker->query_error("SELECT job_idem.heartbeat($_)"), 'JI001', "$name: a claim that never came here is stale")
	  for @unknown;
	my ($token, @keys) = claim($worker, 'settle');
	cmp_ok($token, '>', $highest, "$name: the next token is larger than any before");
	is($worker->query_error("SELECT job_idem.mark_all_done($_, 10)"), 'JI001', "$name: stale still, after a new claim")
	  for @unknown;
	work_on($worker, $token, @keys);
	is($worker->query("SELECT outcome, n_left FROM job_idem.claim_status($known)"), 'open|9', "$name: what is known is held");
	for my $round (0 .. 12)
	{
		$worker->query('SET job_idem.clock_offset = ' . 400 * $round);
		drain($worker, 'settle');
	}
	is($worker->query("SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = $run"), 'done|300|0', "$name: the run ends");
	is($worker->query_error("SELECT job_idem.mark_all_done($known, 9)"), 'JI001', "$name: its holder is stale then");
	ledger_right($cluster, $run, 300, $name);
	$worker->quit;
	return;
}

my @first = works($primary, 3);
my ($known, @known_keys) = holds($primary);
$primary->wait_for_catchup($standby);

# the standby hears nothing more
$standby->append_conf('postgresql.conf', "primary_conninfo = ''\nrestore_command = 'false'\n");
$standby->reload;
poll_until($standby, 'SELECT count(*) = 0 FROM pg_stat_wal_receiver', 30);
my $point = $primary->safe_psql('postgres', 'SELECT pg_create_restore_point(\'here\')');
my @second = works($primary, 5);
my ($unknown) = holds($primary);
my $highest = $unknown;
cmp_ok($highest, '>', $known, 'tokens that never reached the standby');

$primary->stop('immediate');

$standby->promote;
poll_until($standby, 'SELECT NOT pg_is_in_recovery()', 60);
is($standby->safe_psql('postgres', 'SELECT count(*) FROM job_idem.leases'), 4, 'the promoted node lacks the last claims');
goes_on($standby, 'promoted', $highest, $known, $unknown, $second[-1]);

# --- recovery to a point in time
$primary->start;
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
$primary->poll_query_until('postgres', "SELECT last_archived_wal >= pg_walfile_name('$point') FROM pg_stat_archiver");
my $recovered = PostgreSQL::Test::Cluster->new('recovered');
$recovered->init_from_backup($primary, 'backup', has_restoring => 1, standby => 0);
$recovered->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_action = 'promote'\n");
$recovered->start;
poll_until($recovered, 'SELECT NOT pg_is_in_recovery()', 60);
is($recovered->safe_psql('postgres', 'SELECT count(*), (SELECT count(*) FROM ledger) FROM job_idem.leases'), '4|31',
	'recovered: job state and business data of one instant');
goes_on($recovered, 'recovered', $highest, $known, $unknown);
$recovered->stop;

# --- file-level copies: the same cluster, timeline and database twice
$primary->stop;
my @copies = map { PostgreSQL::Test::Cluster->new("copy$_") } 1, 2;
for my $copy (@copies)
{
	system('cp', '-a', $primary->data_dir, $copy->data_dir) == 0 or die 'cannot copy';
	$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\nunix_socket_directories = '" . $copy->host
		  . "'\nlisten_addresses = ''\narchive_mode = off\n");
	$copy->start;
}
my ($original, $restored) = @copies;
my @issued = works($original, 3);
is($restored->safe_psql('postgres', "SELECT job_idem.advance_epoch('restored from files') > max(epoch) FROM job_idem.epoch"), 't',
	'copied files: the operator advances the epoch');
goes_on($restored, 'copied files', $issued[-1], $known, @issued);
$restored->stop;

# --- pg_upgrade, from the promoted node, whose timeline is larger than that of a new cluster
my $upgraded = PostgreSQL::Test::Cluster->new('upgraded');
$upgraded->init(extra => [ '-U', 'postgres', '--no-sync', '--encoding=UTF8', '--locale=C' ]);
my $last = $standby->safe_psql('postgres', 'SELECT max(token) FROM job_idem.leases');
my $left = batch_job($standby, 'later', 20, 'batch_size => 10');
my $holder = session($standby);
my ($held) = claim($holder, 'later');
$holder->quit;
$standby->stop;
my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
chomp(my $bindir = `$pg_config --bindir`);
my $place = PostgreSQL::Test::Utils::tempdir_short();
ok(system_log("cd $place && pg_upgrade --no-sync -U postgres -b $bindir -B $bindir -d " . $standby->data_dir . ' -D '
		  . $upgraded->data_dir . ' -s ' . $standby->host . ' -p ' . $standby->port . ' -P ' . $upgraded->port) == 0, 'pg_upgrade');
$upgraded->start;
is($upgraded->safe_psql('postgres', "SELECT outcome, n_left FROM job_idem.claim_status($held)"), 'open|10', 'upgraded: the claim is held');
my $worker = session($upgraded);
my ($token, @keys) = claim($worker, 'later');
cmp_ok($token, '>', $held, 'upgraded: the next token is larger than any before');
work_on($worker, $token, @keys);
tick($upgraded, 400);
$worker->query('SET job_idem.clock_offset = 800');
is(drain($worker, 'later'), 10, 'upgraded: the lease of the old holder ends');
$worker->quit;
audit_empty($upgraded, $_) for $left, $run;

$upgraded->stop;
$original->stop;
done_testing();
