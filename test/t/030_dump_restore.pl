# A dump taken in the middle of everything carries job state and business data of one instant, and work goes on from it.
#
# Every kind of row is there when the dump is taken: jobs of several versions, one of them paused, a loading, a running,
# a done, a partial and a cancelled run, claimed, waiting, done and dead items, leases of all outcomes. It is restored
# plain, custom, and schema and data apart, into another cluster and into a new database of the same one. In each: row
# counts are the same, sequences collide with nothing, the next token is larger than every one that the old database ever
# issued, also after the dump, so that stale tokens are JI001 there; leases of workers that the restore cut off end by
# themselves; and what is finished is finished once.
# K75, P6, C19, S15 (pause).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
my $other = new_cluster('other', extension => 0);
my $folder = PostgreSQL::Test::Utils::tempdir_short();

# Roles belong to a cluster, not to a database: they come first.
$_->safe_psql('postgres', 'CREATE ROLE clerk LOGIN; CREATE ROLE boss LOGIN') for $cluster, $other;

make_ledger($cluster);
batch_job($cluster, 'finished', 30, 'batch_size => 10');
batch_job($cluster, 'partial', 30, 'batch_size => 10');
batch_job($cluster, 'cancelled', 30, 'batch_size => 10');
my $run = batch_job($cluster, 'settle', 100, "batch_size => 10, lease => '5 min'");
$cluster->safe_psql('postgres', <<"SQL");
SELECT FROM job_idem.define_job('settle', batch_size => 20, lease => '5 min', max_attempts => 7);
SELECT FROM job_idem.grant_worker('settle', 'clerk');
SELECT FROM job_idem.grant_access('boss', 'operator');
SELECT FROM job_idem.add_dependency('settle', 'finished', -1, 'block');
SELECT FROM job_idem.add_dependency('partial', 'settle');
SELECT FROM job_idem.define_calendar('bank', 'SUN-THU', days_query => \$\$SELECT DATE '$DATE', false, 'closed'\$\$);
SELECT FROM job_idem.define_job('loading');
SELECT FROM job_idem.open_run('loading', '$DATE', params => '{"a": "\u00e9"}');
SELECT FROM job_idem.add_items((SELECT run_id FROM job_idem.runs WHERE job = 'loading'), '{a,b,c}', ARRAY['{"x": 1}', NULL, '[2]']::jsonb[]);
SELECT FROM job_idem.define_job('paused');
SELECT FROM job_idem.pause_job('paused', 'for the winter');
SELECT FROM job_idem.define_job('dropped');
SELECT FROM job_idem.drop_job('dropped', 'gone');
SELECT FROM job_idem.define_job('push', 'keyed', close_after => '1000 years');
SELECT FROM job_idem.claim_item('push', '$DATE', 'one');
SELECT FROM job_idem.claim_item('push', '$DATE', 'two');
SELECT FROM job_idem.mark_done((SELECT token FROM job_idem.items WHERE item_key = 'two' AND job = 'push'), 'two', '{"r": 1}');
SQL

my $worker = session($cluster);
drain($worker, 'finished');
my ($token, @keys) = claim($worker, 'partial');
$worker->query("SELECT job_idem.mark_failed($token, '$keys[0]', 'no such account', '23514')");
$worker->query('BEGIN; ' . write_items($token, @keys[ 1 .. 9 ])
	  . "SELECT job_idem.mark_all_done($token, 9, ARRAY['$keys[0]']); COMMIT");
drain($worker, 'partial');
my ($dead_token) = claim($worker, 'cancelled');
$worker->query("SELECT job_idem.cancel_run((SELECT run_id FROM job_idem.runs WHERE job = 'cancelled'), 'not needed')");

# settle: 10 done whole, 10 released, 10 expired, one waiting after a failure, 3 done singly and 6 held when it ends
($token, @keys) = claim($worker, 'settle');
work_on($worker, $token, @keys);
($token, @keys) = claim($worker, 'settle');
$worker->query("SELECT job_idem.release($token)");
($token, @keys) = claim($worker, 'settle');
$worker->query("SELECT job_idem.expire_lease($token, 'test')");
my ($held, @held) = claim($worker, 'settle');
$worker->query("BEGIN; " . write_items($held, @held[ 0 .. 2 ]) . join('', map { "SELECT job_idem.mark_done($held, '$_');" } @held[ 0 .. 2 ])
	  . " SELECT job_idem.mark_failed($held, '$held[3]', 'later', '40001'); SELECT job_idem.step_done($held, '$held[4]', 'half', '{\"rate\": 2}'); COMMIT");
my ($picked, @picked) = claim($worker, 'settle');
tick($cluster);
is($cluster->safe_psql('postgres', "SELECT string_agg(DISTINCT state, ' ' ORDER BY state) FROM job_idem.runs"),
	'cancelled done loading partial running', 'runs in every state so far');
is($cluster->safe_psql('postgres', "SELECT string_agg(DISTINCT outcome, ' ' ORDER BY outcome) FROM job_idem.leases"),
	'completed expired open released', 'leases of every outcome');

# One line for each table and sequence of ours.
my $counts = <<"SQL";
SELECT string_agg(format('%s %s', relname,
	(xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM job_idem.%I', relname), false, true, '')))[1]),
	E'\\n' ORDER BY relname)
FROM pg_class WHERE relnamespace = 'job_idem'::regnamespace AND relkind = 'r';
SELECT string_agg(format('%s %s', sequencename, last_value), E'\\n' ORDER BY sequencename)
FROM pg_sequences WHERE schemaname = 'job_idem';
SELECT md5(string_agg(i::text, ',' ORDER BY run_id, item_no)) FROM job_idem.item i;
SELECT md5(string_agg(i::text, ',' ORDER BY token)) FROM job_idem.lease i;
SELECT md5(string_agg(i::text, ',' ORDER BY job)) FROM job_idem.jobs i;
SELECT md5(string_agg(i::text, ',' ORDER BY run_id)) FROM job_idem.runs i;
SELECT md5(string_agg(i::text, ',' ORDER BY i::text)) FROM job_idem.dependencies i;
SELECT i, d FROM job_idem.calendars i JOIN job_idem.calendar_days d USING (calendar);
SQL
my $before = $cluster->safe_psql('postgres', $counts);

sub dump_to
{
	my ($file, @options) = @_;

	return $cluster->command_ok([ 'pg_dump', '--no-sync', '-f', $file, @options, '-d', $cluster->connstr('postgres') ],
		"pg_dump @options");
}
dump_to("$folder/plain");
dump_to("$folder/custom", '-Fc');
dump_to("$folder/schema", '--schema-only');
dump_to("$folder/data", '--data-only');

# The old database goes on after the dump: these tokens are nobody's in the restored ones.
my ($later) = claim($worker, 'settle');
my $last_old = $cluster->safe_psql('postgres', 'SELECT max(token) FROM job_idem.leases');
is($last_old, $later, 'the last token was issued after the dump');

sub check_restored
{
	my ($where, $dbname, $name) = @_;
	my $verb = sub { $where->safe_psql($dbname, shift) };

	is($verb->($counts), $before, "$name: every table, sequence and state as before");
	is($verb->("SELECT state, paused_reason FROM job_idem.jobs WHERE job = 'paused'"), 'paused|for the winter',
		"$name: still paused");

	my $one = session($where, dbname => $dbname, options => '-c job_idem.clock_offset=10');
	my ($new, @new) = claim($one, 'settle');
	cmp_ok($new, '>', $last_old, "$name: the next token is larger than any before");
	is($one->query_error("SELECT job_idem.mark_done($later, '$_')"), 'JI001', "$name: a token issued after the dump is stale")
	  for 'k50';
	is($one->query_error("SELECT job_idem.$_"), 'JI001', "$name: so it is for $_")
	  for "heartbeat($later)", "release($later)", "hold($later)", "mark_all_done($later, 10)";
	is($one->query("SELECT outcome, n_done, n_left FROM job_idem.claim_status($held)"), 'open|3|6',
		"$name: the claim that was held is held still");
	is($one->query("SELECT step, result, token = $held FROM job_idem.steps($held, '$held[4]')"), 'half|{"rate": 2}|t',
		"$name: and knows the steps of its items");
	work_on($one, $new, @new);

	# no key collision in any table that a sequence feeds
	is($one->query_error(<<"SQL"), '', "$name: a thousand new rows collide with nothing");
SELECT FROM job_idem.define_job('new job', 'keyed', close_after => '1000 years');
SELECT count(job_idem.open_run('new job', '2026-12-01', i::text)) FROM generate_series(1, 300) AS i;
SELECT count(job_idem.claim_item('new job', '2026-12-02', i::text)) FROM generate_series(1, 300) AS i;
SELECT count(job_idem.mark_failed(token, item_key, 'x', '23514')) FROM job_idem.items WHERE job = 'new job';
SELECT count(job_idem.replay(dead_letter_id)) FROM job_idem.dead_letters WHERE job = 'new job';
SQL
	is($verb->("SELECT count(*) FROM job_idem.dead_letters WHERE job = 'new job' AND status = 'replayed'"), 300,
		"$name: all of them are there");

	# rights as before
	my $clerk = session($where, dbname => $dbname, user => 'clerk');
	is($clerk->query_error("SELECT * FROM job_idem.claim_items('settle')"), '', "$name: the worker may work");
	$clerk->query("SELECT job_idem.release(token) FROM job_idem.leases WHERE outcome = 'open' AND token > $new");
	is($clerk->query_error("SELECT * FROM job_idem.claim_items('finished')"), '42501', "$name: but only its job");
	$clerk->quit;

	# the holders are gone; what they held comes back by lease, and all is done once
	my $done = 0;
	my $clock = 400;
	for (1 .. 20)
	{
		$one->query("SET job_idem.clock_offset = $clock");
		$done += drain($one, 'settle');
		last if $verb->("SELECT state FROM job_idem.runs WHERE run_id = $run") eq 'done';
		$clock += 400;
	}
	is($verb->("SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = $run"), 'done|100|0', "$name: the run ends");
	is($verb->("SELECT count(*), count(DISTINCT item_key) FROM ledger JOIN job_idem.items i USING (item_key, token) WHERE i.run_id = $run"),
		'100|100', "$name: each item has its one effect");
	is($verb->('SELECT count(*), sum(amount) FROM ledger'), '159|1590', "$name: and there are no others");
	is($verb->("SELECT count(*) FROM job_idem.runs r, job_idem.audit(r.run_id)"), 0, "$name: audit of all runs is empty");
	is($one->query_error("UPDATE job_idem.event SET verb = 'x'"), '42501', "$name: events are append-only still");
	$one->quit;
	return;
}

$other->safe_psql('postgres', "CREATE DATABASE $_") for qw(plain custom apart);
$cluster->safe_psql('postgres', 'CREATE DATABASE beside');
command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$folder/plain", '-d', $other->connstr('plain') ], 'plain restore');
check_restored($other, 'plain', 'plain');
command_ok([ 'pg_restore', '-e', '-d', $other->connstr('custom'), "$folder/custom" ], 'custom restore');
check_restored($other, 'custom', 'custom');
for my $part (qw(schema data))
{
	command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$folder/$part", '-d', $other->connstr('apart') ], "$part apart");
}
check_restored($other, 'apart', 'schema and data apart');

# into the cluster that it came from, which has not been restarted: as when somebody goes back to yesterday's dump
command_ok([ 'pg_restore', '-e', '-j', '2', '-d', $cluster->connstr('beside'), "$folder/custom" ], 'restore into the same cluster');
check_restored($cluster, 'beside', 'same cluster');

# a database copied as a template is a copy as well
$worker->quit;
$cluster->safe_psql('template1', 'CREATE DATABASE copied TEMPLATE postgres');
my $original = session($cluster);
my ($of_original) = claim($original, 'settle');
my $copy = session($cluster, dbname => 'copied');
my ($of_copy) = claim($copy, 'settle');
cmp_ok($of_copy, '!=', $of_original, 'a database and its copy do not issue one token twice');

$cluster->stop;
$other->stop;
done_testing();
