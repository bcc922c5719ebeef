# A worker that was frozen, or cut off, and goes on after its work went to another cannot commit anything.
#
# A Python worker is stopped by SIGSTOP: between its write and mark_done, until another has finished the items, and between
# its claim and its write. Then it goes on: its transaction fails with JI001, the ledger holds the other's rows alone. With
# a natural key in the business table and a write not yet committed, the other waits for it on that key, `stuck` shows
# who is waited for, the frozen one goes on and is refused, and then the other finishes. Every verb of the stale worker is JI001. A live worker that is only
# cut off and whose writes are in transactions of their own is told by heartbeat and by mark_done.
# K28, F13, F14, C01, C32.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);
$cluster->safe_psql('postgres',
	'CREATE TABLE settlement (merchant_id text, settle_date date, amount integer, PRIMARY KEY (merchant_id, settle_date))');

# Says what it does, one word a line, and waits for a line before each further step.
my $worker_text = <<'PYTHON';
import psycopg, sys
job, table = sys.argv[1], sys.argv[2]
insert = ("INSERT INTO settlement VALUES (%s, '2026-11-30', 10)" if table == 'settlement'
          else "INSERT INTO ledger (item_key, token) VALUES (%s, %s)")
def step(word):
    print(word, flush=True)
    sys.stdin.readline()
with psycopg.connect(autocommit=True) as c:
    rows = c.execute("SELECT token, item_key FROM job_idem.claim_items(%s, 'python')", (job,)).fetchall()
    token, keys = rows[0][0], [r[1] for r in rows]
    step('claimed %d' % token)
    try:
        with c.transaction():
            for key in keys:
                c.execute(insert, (key,) if table == 'settlement' else (key, token))
            step('written')
            for key in keys:
                c.execute("SELECT job_idem.mark_done(%s, %s)", (token, key))
        print('committed', flush=True)
    except psycopg.Error as e:
        print('refused', e.sqlstate, flush=True)
    for verb in ("mark_done(%d, 'k1')", "mark_done_many(%d, '{k1,k2}')", "mark_all_done(%d, 3)", "mark_failed(%d, 'k1', 'x')",
                 "mark_failed(%d, 'k1', 'x', transient => false)", "postpone(%d, 'k1', '1 min')", "release(%d)",
                 "heartbeat(%d)", "heartbeat(%d, '1 h')", "hold(%d)", "hold(%d, 'k1')",
                 "step_done(%d, 'k1', 'a step')"):
        try:
            c.execute("SELECT job_idem." + verb % token)
            print('accepted', verb, flush=True)
        except psycopg.Error as e:
            print('stale', verb.split('(')[0], e.sqlstate, flush=True)
    print(c.execute("SELECT 'status', outcome, n_done FROM job_idem.claim_status(%s)", (token,)).fetchone(), flush=True)
    print('end', flush=True)
PYTHON

my ($without) = python($cluster, '-c', 'import psycopg');
plan(skip_all => 'psycopg is not installed') if $without;

sub frozen
{
	my ($job, $table, $until) = @_;
	my $run = batch_job($cluster, $job, 3, "batch_size => 3, backoff_base => '0'");
	my $stale = program($cluster, $JobIdem::PYTHON, '-c', $worker_text, $job, $table);
	my $token = $stale->wait_output(qr/^claimed (\d+)$/m);

	if ($until eq 'written')
	{
		$stale->input("\n");
		$stale->wait_output(qr/^(written)$/m);
	}
	$stale->signal('STOP');
	tick($cluster, 400);
	return ($run, $stale, $token);
}

# What the stale worker says after it was let go on.
sub refused
{
	my ($stale, $name) = @_;

	$stale->wait_output(qr/^(end)$/m);
	like($stale->output, qr/^refused JI001$/m, "$name: the stale transaction is refused");
	unlike($stale->output, qr/^accepted|^committed/m, "$name: no verb of the stale worker is accepted");
	my @stale = $stale->output =~ /^stale (\w+ JI001)$/mg;
	is(scalar @stale, 12, "$name: each is JI001") or diag($stale->output);
	like($stale->output, qr/'status', 'expired', 0/, "$name: claim_status says what became of it");
	is($stale->wait, 0, "$name: the worker ends");
	return;
}

my $other = session($cluster, options => '-c job_idem.clock_offset=400');

for my $until ('claimed', 'written')
{
	my ($run, $stale, $token) = frozen("frozen $until", 'ledger', $until);

	is(drain($other, "frozen $until"), 3, "frozen when it had $until: another has done all");
	$stale->signal('CONT');
	$stale->input("\n") for 1 .. 2;
	refused($stale, "frozen when it had $until");
	is($cluster->safe_psql('postgres', "SELECT count(*) FROM ledger WHERE token = $token"), 0, 'no row of the stale worker');
	ledger_right($cluster, $run, 3, "frozen when it had $until");
	$cluster->safe_psql('postgres', 'TRUNCATE ledger');
}

# The same with a natural key: whoever is second waits for it, and the stale one gives way.
my ($run, $stale, $token) = frozen('natural key', 'settlement', 'written');
my @rows = split /\n/, $other->query("SELECT token, item_key FROM job_idem.claim_items('natural key') ORDER BY item_key");
my ($next) = map { (split /\|/)[0] } @rows;
# losses have made the company smaller
my @keys = map { (split /\|/)[1] } @rows;
$other->start_query(join ';', 'BEGIN', (map { "INSERT INTO settlement VALUES ('$_', '$DATE', 10)" } @keys),
	"SELECT job_idem.mark_all_done($next, " . scalar(@keys) . ')', 'COMMIT');
$other->wait_blocked(20);
is($cluster->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(' . $other->pid . '))'),
	1, 'natural key: the other waits for the frozen transaction');
my $operator = session($cluster, options => '-c job_idem.clock_offset=400');
my $frozen_pid = $operator->query("SELECT backend FROM job_idem.leases WHERE token = $token");
is($operator->query('SELECT what, pid, token FROM job_idem.stuck'), "blocked|{$frozen_pid}|$next", 'natural key: stuck shows its pid');
$stale->signal('CONT');
$stale->input("\n");
refused($stale, 'natural key');
$other->finish;
while (my ($t, @more) = claim($other, 'natural key'))
{
	$other->query(join ';', 'BEGIN', (map { "INSERT INTO settlement VALUES ('$_', '$DATE', 10)" } @more),
		"SELECT job_idem.mark_all_done($t, " . scalar(@more) . ')', 'COMMIT');
}
is($cluster->safe_psql('postgres', 'SELECT count(*), sum(amount) FROM settlement'), '3|30', 'natural key: each settled once');
is($cluster->safe_psql('postgres', "SELECT state FROM job_idem.runs WHERE run_id = $run"), 'done', 'natural key: the run is done');
is($operator->query('SELECT count(*) FROM job_idem.stuck'), 0, 'natural key: nothing is stuck any more');
audit_empty($cluster, $run);

# Cut off but alive: W1 works on while W2 has the items. In one transaction with mark_done nothing of W1's stays.
$run = batch_job($cluster, 'cut off', 500, "batch_size => 500, lease => '5 s', backoff_base => '0'");
my $w1 = session($cluster);
my ($t1, @k1) = claim($w1, 'cut off');
is($w1->query("SELECT job_idem.heartbeat($t1) IS NOT NULL"), 't', 'cut off: heartbeats while it is in touch');
tick($cluster, 10);
my $w2 = session($cluster, options => '-c job_idem.clock_offset=10');
my ($t2, @k2) = claim($w2, 'cut off');
cmp_ok($t2, '>', $t1, 'cut off: the new token is larger');
$w1->query('BEGIN; ' . write_items($t1, @k1));
$w2->query('BEGIN; ' . write_items($t2, @k2));
is($w1->query_error("SELECT job_idem.mark_done($t1, '$k2[0]')"), 'JI001', 'cut off: W1 is refused');
$w1->query('ROLLBACK');
is($w1->query_error("SELECT job_idem.heartbeat($t1)"), 'JI001', 'cut off: and its heartbeat as well');
# with the effect in a transaction of its own, W1's is there, and the refusal tells it
$w1->query("INSERT INTO ledger (item_key, token, amount) VALUES ('own transaction', $t1, 0)");
is($w1->query_error("SELECT job_idem.mark_done_many($t1, ARRAY['$k2[0]'])"), 'JI001', 'cut off: told, whatever it wrote apart');
$w1->query("DELETE FROM ledger WHERE token = $t1");
$w2->query("SELECT job_idem.mark_all_done($t2, " . scalar(@k2) . '); COMMIT');
drain($w2, 'cut off');
is($w2->query("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), 'done|500', 'cut off: the run is done');
ledger_right($cluster, $run, 500, 'cut off');

$cluster->stop;
done_testing();
