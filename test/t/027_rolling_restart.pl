# A rolling restart loses nothing, repeats nothing and waits for no lease.
#
# Five workers are in the middle of their claims. One after the other is told to stop (SIGTERM), finishes the item that it
# is at, gives the rest back by `release` and goes; its successor goes on with what is there. Every item is done once and
# no attempt is counted for any, in a test far shorter than a lease.
# F21, C24 (with test/specs/c24_rolling_restart.spec, which has the deadlines).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
my ($without) = python($cluster, '-c', 'import psycopg');
plan(skip_all => 'psycopg is not installed') if $without;
make_ledger($cluster);

my ($workers, $batch, $before) = (5, 20, 3);
my $n = scaled(400, 40_000);
my $run = batch_job($cluster, 'deploy', $n, "batch_size => $batch, lease => '10 hours'");

# Works item by item; stops after so many for a line of input, and at a signal.
my $worker_text = <<'PYTHON';
import psycopg, signal, sys
name, pause = sys.argv[1], int(sys.argv[2])
stopping = False
class Stop(Exception):
    pass
def stop(number, frame):
    global stopping
    stopping = True
    if waiting:
        raise Stop
waiting = False
signal.signal(signal.SIGTERM, stop)
done = 0
with psycopg.connect(autocommit=True) as c:
    while not stopping:
        rows = c.execute("SELECT token, item_key FROM job_idem.claim_items('deploy', %s)", (name,)).fetchall()
        if not rows:
            break
        for token, key in rows:
            with c.transaction():
                c.execute("INSERT INTO ledger (item_key, token) VALUES (%s, %s)", (key, token))
                c.execute("SELECT job_idem.mark_done(%s, %s)", (token, key))
            done += 1
            if done == pause:
                try:
                    waiting = True
                    print('in the middle', flush=True)
                    sys.stdin.readline()
                except Stop:
                    pass
                waiting = False
            if stopping:
                print('released', c.execute("SELECT job_idem.release(%s)", (token,)).fetchone()[0], flush=True)
                break
print('end', done, flush=True)
PYTHON

sub start { my ($name, $pause) = @_; return program($cluster, $JobIdem::PYTHON, '-c', $worker_text, $name, $pause); }

my @old = map { start("old $_", $before) } 1 .. $workers;
$_->wait_output(qr/^(in the middle)$/m) for @old;
my @new;
for my $i (1 .. $workers)
{
	my $worker = $old[ $i - 1 ];

	$worker->signal('TERM');
	is($worker->wait(30), 0, "worker $i stops") or diag($worker->errors);
	like($worker->output, qr/^released @{[ $batch - $before ]}$/m, "worker $i gives back what it has not done");
	push @new, start("new $i", -1);
}
for my $i (1 .. $workers)
{
	is($new[ $i - 1 ]->wait(60), 0, "its successor $i works to the end") or diag($new[ $i - 1 ]->errors);
}
my $done = $workers * $before;
$done += ($_->output =~ /^end (\d+)$/m)[0] for @new;
is($done, $n, 'every item was worked once');
is($cluster->safe_psql('postgres', "SELECT DISTINCT state, attempts, lost FROM job_idem.items WHERE run_id = $run"),
	'done|0|0', 'no attempt is counted, and nothing was lost');
is($cluster->safe_psql('postgres', "SELECT outcome, count(*) > 0 FROM job_idem.leases WHERE run_id = $run AND outcome <> 'completed' GROUP BY 1"),
	'released|t', 'no claim was waited for');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.failure WHERE run_id = $run"), 0, 'no failure');
tick($cluster);
is($cluster->safe_psql('postgres', "SELECT state FROM job_idem.runs WHERE run_id = $run"), 'done', 'the run is done');
ledger_right($cluster, $run, $n, 'deploy');

$cluster->stop;
done_testing();
