# Ids are 64 bits wide and names are whatever people write.
#
# Before anything exists every sequence is set past 2^31, and then past 2^53, the token sequence close below 2^44, and the
# epoch to 512, whose tokens no longer fit into the numbers of JavaScript. The whole life cycle, and the regress tests of
# the suite, go on as with small numbers. Names of jobs, run keys, item keys, workers, roles and databases have capitals,
# quotes, blanks, backslashes, Chinese; all of them come back as they were given.
# P14, C46.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main', extension => 0);
my $top = "$FindBin::RealBin/../..";

my @ids = qw(error_rule_id_seq job_id_seq run_id_seq late_item_seq run_trigger_id_seq failure_id_seq dead_letter_id_seq event_id_seq);

# A new database whose sequences start late.
sub late_database
{
	my ($dbname, $start) = @_;

	$cluster->safe_psql('postgres', qq{CREATE DATABASE "$dbname"});
	$cluster->safe_psql($dbname, 'CREATE EXTENSION job_idem; '
		  . join(' ', map { "SELECT setval('job_idem.$_', $start);" } @ids)
		  . " SELECT setval('job_idem.token_seq', 17592186044415 - 5000000);");
	# every sequence of ours is meant, also one that a later version adds
	is($cluster->safe_psql($dbname, "SELECT string_agg(sequencename, ' ') FROM pg_sequences WHERE schemaname = 'job_idem'"
			  . ' AND last_value IS NULL'), '', "$dbname: all sequences start late");
	# epoch 512, as after so many failovers
	$cluster->safe_psql($dbname, 'SELECT job_idem.advance_epoch() FROM generate_series(1, 512)');
	is($cluster->safe_psql($dbname, 'SELECT max(epoch) FROM job_idem.epoch'), 512, "$dbname: epoch 512");
	return;
}

my %start = ('from 2^31' => 2**31, 'from 2^53' => '9007199254740993');
for my $dbname (sort keys %start)
{
	late_database($dbname, $start{$dbname});
	make_ledger($cluster, $dbname);
	my $run = batch_job($cluster, 'settle', 50, 'batch_size => 7', $dbname);
	cmp_ok($run, '>', 2**31, "$dbname: the run's number");
	my $worker = session($cluster, dbname => $dbname);
	my $value = sub { return $worker->query(shift) };

	$value->("SELECT * FROM job_idem.add_items($run, '{late 1,late 2}')");
	my ($token, @keys) = claim($worker, 'settle');
	cmp_ok($token, '>', 2**53, "$dbname: the token is larger than 2^53");
	is(scalar @keys, 2, "$dbname: late items");
	is($value->("SELECT max(item_no) < -2147483648 FROM job_idem.items WHERE run_id = $run AND item_no < 0"), 't', "$dbname: and their numbers");
	$value->("SELECT job_idem.release($token)");
	($token, @keys) = claim($worker, 'settle');
	work_on($worker, $token, @keys);
	($token, @keys) = claim($worker, 'settle');
	$value->("SELECT job_idem.mark_failed($token, '$keys[0]', 'x', '23514')");
	$value->('BEGIN; ' . write_items($token, @keys[ 1, 2 ]) . "SELECT job_idem.mark_done_many($token, '{$keys[1],$keys[2]}'); COMMIT");
	is($value->("SELECT job_idem.heartbeat($token) > job_idem.now(), n_left FROM job_idem.claim_status($token)"), 't|4', "$dbname: heartbeat");
	$value->("SELECT job_idem.expire_lease($token, 'test')");
	is($worker->query_error("SELECT job_idem.mark_done($token, '$keys[3]')"), 'JI001', "$dbname: stale token");
	is($worker->query_error('SELECT job_idem.mark_done(9223372036854775807, \'x\')'), 'JI001', "$dbname: the largest number is no token");
	is($value->('SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters'), 't', "$dbname: replay");
	my ($other) = claim($worker, 'settle');
	cmp_ok($other, '>', $token, "$dbname: tokens grow");
	$value->("SELECT job_idem.release($other)");
	for my $clock (400, 800)
	{
		$value->("SET job_idem.clock_offset = $clock");
		drain($worker, 'settle');
	}
	is($value->("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), 'done|52', "$dbname: the run is done");
	is($value->("SELECT count(*), count(DISTINCT item_key) FROM ledger JOIN job_idem.items USING (item_key, token)"), '52|52', "$dbname: ledger");
	is($value->("SELECT * FROM job_idem.audit($run)"), '', "$dbname: audit is empty");
	$worker->quit;
}

# The regress tests of the verbs, on such a database: their expected outputs hold no number of ours.
my @tests = qw(open_run add_items load_items claim_items claim_item mark_done mark_done_many mark_failed postpone release
  expire_lease replay claim_status poison cancel_run);
@tests = map { m{([^/]+)\.sql$} } sort glob "$top/sql/*.sql" if soak();
@tests = grep { -f "$top/expected/$_.out" && !/^(extension|hijack)/ } @tests;
SKIP:
{
	skip 'no regress tests are here', 1 if !@tests;
	my $output = PostgreSQL::Test::Utils::tempdir_short();
	late_database('regression', 2**31);
	my $ok = system_log($ENV{PG_REGRESS}, '--use-existing', '--dbname=regression', "--inputdir=$top", "--outputdir=$output",
		'--host=' . $cluster->host, '--port=' . $cluster->port, '--user=postgres', '--bindir=', @tests) == 0;
	ok($ok, 'the regress tests with late sequences') or diag(-f "$output/regression.diffs" ? slurp_file("$output/regression.diffs") : 'no diffs');
}

# --- names
my @names = ('CamelCase', "it's", 'with "quotes"', 'two  blanks ', "tab\tand\nnewline", 'back\\slash', '%s %d {}', '结算作业', 'üöß é', ';--', '{a,b}', 'NULL', '$1');
my $db = q{Data "Base" 库 it's};
$cluster->safe_psql('postgres', q{CREATE DATABASE "Data ""Base"" 库 it's" TEMPLATE template0 ENCODING 'UTF8'});
$ENV{PGCLIENTENCODING} = 'UTF8';
my $admin = session($cluster, dbname => $db);
$admin->query('CREATE EXTENSION job_idem');
for my $name (@names)
{
	(my $show = $name) =~ s/[\t\n]/ /g;
	# dollar quotes hold everything but themselves
	my $q = "\$q\$$name\$q\$";
	my $role = 'role ' . $name;
	(my $role_id = $role) =~ s/"/""/g;

	$admin->query(qq{CREATE ROLE "$role_id" LOGIN});
	$admin->query("SELECT FROM job_idem.define_job($q, batch_size => 2)");
	$admin->query("SELECT job_idem.grant_worker($q, \$q\$$role\$q\$)");
	$admin->query(qq{SET ROLE "$role_id"});
	my $run = $admin->query("SELECT run_id FROM job_idem.open_run($q, '$DATE', run_key => $q)");
	$admin->query("SELECT * FROM job_idem.add_items($run, ARRAY[$q, $q || '2', 'k'], ARRAY[jsonb_build_object($q, $q), NULL, NULL])");
	$admin->query("SELECT * FROM job_idem.seal_run($run)");
	is($admin->query("SELECT count(*), bool_and(run_key = $q), bool_or(item_key = $q AND payload = jsonb_build_object($q, $q))"
			  . " FROM job_idem.claim_items($q, worker => $q, run_key => $q)"), '2|t|t', "$show: claimed as given");
	$admin->query('RESET ROLE');
	my $token = $admin->query("SELECT token FROM job_idem.leases WHERE run_id = $run AND worker = $q");
	is($admin->query("SELECT job_idem.mark_done_many($token, ARRAY[$q])"), 1, "$show: done by key");
	is($admin->query("SELECT state FROM job_idem.mark_failed($token, $q || '2', $q, '23514', $q)"), 'dead', "$show: failed by key");
	is($admin->query("SELECT item_key = $q || '2', message = $q, error_class = $q FROM job_idem.dead_letters WHERE job = $q"), 't|t|t',
		"$show: its dead letter");
	is($admin->query("SELECT job_idem.is_done($q, '$DATE', $q)"), 'f', "$show: found by run key");
	is($admin->query("SELECT job_idem.cancel_run($run, $q)"), 't', "$show: cancelled");
	is($admin->query("SELECT * FROM job_idem.audit($run)"), '', "$show: audit is empty");
	$admin->query("SELECT job_idem.revoke_worker($q, \$q\$$role\$q\$)");
}
$admin->quit;

$cluster->stop;
done_testing();
