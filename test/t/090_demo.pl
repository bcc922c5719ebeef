# The demonstration at a small size: the main job under faults comes out right, and it would say so if it did not (W4).
# Three workers settle merchants while one is killed, one is frozen past its lease, the job is triggered again and the
# server is stopped at once. The race in it: the frozen worker, continued when others have finished its merchants, must
# be refused (JI001), and nobody may be paid twice (F11, F14, F24).
# Its worker is also the example for clients, so more is tried on it: told to stop, it gives back what is not done (F21);
# frozen inside a transaction, it keeps its claim until the server ends that transaction, and is refused after it (F14).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $demo = "$FindBin::RealBin/../demo";
my $cluster = new_cluster('demo');

plan skip_all => 'psycopg is not installed' if (python($cluster, '-c', 'import psycopg'))[0];
plan skip_all => 'pgbench is not installed' unless available_program('pgbench');

# the demonstration stops and starts the server itself
$ENV{PGDATA} = $cluster->data_dir;

sub demo
{
	my ($dbname, @arguments) = @_;
	my $program = program($cluster, 'env', "PGDATABASE=$dbname", "$demo/run", @arguments);
	my $status = $program->wait(300);

	return ($status, $program->output . $program->errors);
}

# --- under faults ---

my ($status, $output) = demo('postgres', '--merchants', 3000, '--accident', 300, '--batch', 50);

is($status, 0, 'the demonstration ends well') or diag($output);
like($output, qr/three times [1-9]/, 'the accident pays three times');
like($output, qr/kill -9 worker-\d in the middle of a slice: [1-9]\d* done, [1-9]/, 'a worker is killed in a slice');
like($output, qr/worker-\d is continued: others have finished its merchants/, 'a worker is frozen past its lease');
like($output, qr/recovered, the workers reconnect/, 'the server is stopped and comes back');

my %table = $output =~ /^  (\w[\w ]+\w) +([\d,.]+)$/mg;
s/,//g for values %table;
cmp_ok($table{'merchants planned'}, '>=', 3000, 'merchants planned');
is($table{'merchants settled'}, $table{'merchants planned'}, 'all are settled');
is($table{'paid more than once'}, 0, 'nobody is paid twice');
cmp_ok($table{'times triggered'}, '>=', 6, 'triggers: 3 workers, 1 in place of the killed one, 1 on the way, 1 at the end');
cmp_ok($table{'takeovers of lost claims'}, '>=', 2, 'the claims of both lost workers were taken over');
cmp_ok($table{'stale transactions refused'}, '>=', 1, 'the frozen worker was refused');
is($table{'sum paid'}, $table{'sum due'}, 'the sum is right');
like($output, qr/^The ledger is exactly right\.\n\z/m, 'and the last line says so');

# --- a spoiled ledger is noticed ---

sub spoil
{
	my ($name, $spoil, $restore, $complaint) = @_;

	$cluster->safe_psql('postgres', $spoil);
	($status, $output) = demo('postgres', '--check');
	is($status, 1, "$name: not accepted");
	like($output, $complaint, "$name: named");
	$cluster->safe_psql('postgres', $restore);
}

my $one = '(SELECT min(merchant_id) FROM settlement)';
my $still = "(SELECT min(merchant_id) FROM account WHERE merchant_id NOT IN (SELECT merchant_id FROM due))";
spoil('one cent too much', "UPDATE account SET balance = balance + 1 WHERE merchant_id = $one",
	"UPDATE account SET balance = balance - 1 WHERE merchant_id = $one", qr/1 merchants were paid too much/);
spoil('one cent too little', "UPDATE account SET balance = balance - 1 WHERE merchant_id = $one",
	"UPDATE account SET balance = balance + 1 WHERE merchant_id = $one", qr/1 balances are wrong/);
spoil('two wrongs that make the sum right',
	"UPDATE account SET balance = balance - 1 WHERE merchant_id = $one;
	 UPDATE account SET balance = balance + 1 WHERE merchant_id = $still",
	"UPDATE account SET balance = balance + 1 WHERE merchant_id = $one;
	 UPDATE account SET balance = balance - 1 WHERE merchant_id = $still", qr/2 balances are wrong/);
spoil('a settlement is missing',
	"CREATE TABLE kept AS SELECT * FROM settlement WHERE merchant_id = $one;
	 DELETE FROM settlement WHERE merchant_id = $one", 'INSERT INTO settlement TABLE kept', qr/not every merchant/);
spoil('the run is not the done marker it was', 'UPDATE job_idem.run SET n_done = n_done - 1',
	'UPDATE job_idem.run SET n_done = n_done + 1', qr/job_idem\.audit\(\d+\) finds [1-9]/);
($status, $output) = demo('postgres', '--check');
is($status, 0, 'restored: accepted') or diag($output);

# --- faults that did not happen are noticed: one slice is over before anything can be done to it ---

$cluster->safe_psql('postgres', 'CREATE DATABASE small');
($status, $output) = demo('small', '--merchants', 20, '--accident', 20, '--batch', 1000);
is($status, 1, 'a run without its faults proves nothing');
like($output, qr/^FAILED: /m, 'and is called a failure');

# --- a deploy: told to stop, a worker finishes its merchant and gives back the rest; the next one goes on ---

my $yesterday = '2026-11-29';
my $locker = session($cluster);
my $worker = program($cluster, 'env', 'PGUSER=settler', "$demo/worker.py", 'deployed', $yesterday);

$locker->query("BEGIN; SELECT FROM account WHERE merchant_id = (SELECT merchant_id FROM due
	WHERE settle_date = '$yesterday' ORDER BY merchant_id OFFSET 9 LIMIT 1) FOR UPDATE");
poll_until($cluster, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'deployed'
	AND wait_event_type = 'Lock')", 60);
$worker->signal('TERM');
$locker->query('COMMIT');
is($worker->wait(60), 0, 'the old worker ends well') or diag($worker->errors);
like($worker->output, qr/settled 10, refused 0/, 'it finished the merchant it was at');
is($cluster->safe_psql('postgres', "SELECT outcome, n_done, n_items - n_done > 0 FROM job_idem.leases
	WHERE business_date = '$yesterday'"), 'released|10|t', 'and gave back the rest');

$worker = program($cluster, 'env', 'PGUSER=settler', "$demo/worker.py", 'new', $yesterday);
is($worker->wait(60), 0, 'the new worker ends well') or diag($worker->errors);
is($cluster->safe_psql('postgres', "SELECT job_idem.is_done('settlement', '$yesterday')"), 't', 'the job is done');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.items
	WHERE business_date = '$yesterday' AND (state <> 'done' OR attempts > 1 OR lost > 0)"), 0, 'no try was counted');

# --- frozen inside a transaction, which holds the claim: nobody can take it until the server ends the transaction ---

my $tomorrow = '2026-12-01';
$cluster->safe_psql('postgres', "ALTER ROLE settler SET idle_in_transaction_session_timeout = '300ms'");
$worker = program($cluster, 'env', 'PGUSER=settler', "$demo/worker.py", 'frozen', $tomorrow);
$locker->query("BEGIN; SELECT FROM account WHERE merchant_id = (SELECT merchant_id FROM due
	WHERE settle_date = '$tomorrow' ORDER BY merchant_id OFFSET 9 LIMIT 1) FOR UPDATE");
poll_until($cluster, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'frozen'
	AND wait_event_type = 'Lock')", 60);
$worker->signal('STOP');
my $lease = "(SELECT token FROM job_idem.leases WHERE worker = 'frozen' AND outcome = 'open')";
my $expire = "SELECT job_idem.expire_lease($lease, 'test')";
is(session($cluster)->query_error($expire), '55P03', 'the claim is in use');
$locker->query('COMMIT');
poll_until($cluster, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'frozen')", 60);
cmp_ok($cluster->safe_psql('postgres', $expire), '>', 0, 'now it is not');
$worker->signal('CONT');
is($worker->wait(60), 0, 'the worker ends well') or diag($worker->errors);
like($worker->output, qr/refused [1-9]\d*, answers lost \d+, reconnects [1-9]/, 'refused, after it had reconnected');
is($cluster->safe_psql('postgres', "SELECT job_idem.is_done('settlement', '$tomorrow')"), 't', 'the job is done');

# --- all three dates ---

is($cluster->safe_psql('postgres', "SELECT count(*) FROM account a WHERE balance <> (SELECT coalesce(sum(amount), 0)
	FROM settlement s WHERE s.merchant_id = a.merchant_id)
	OR balance <> (SELECT coalesce(sum(amount), 0) FROM due d
	WHERE d.merchant_id = a.merchant_id)"), 0, 'the ledger is right');
is($cluster->safe_psql('postgres', 'SELECT count(*) FROM job_idem.runs r, job_idem.audit(r.run_id)'), 0,
	'no invariant is broken');

$cluster->stop;
done_testing();
