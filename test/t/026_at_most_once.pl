# At most once, on request: with max_attempts => 1 and batch_size => 1, and the claim committed before the act, nothing
# happens twice, and whatever did not happen, or nobody knows of, is a dead letter.
#
# A worker dies after one claim in ten, killed before its act or between the act and the mark; after a tenth of the claims
# it takes its backend, and so the server, with it. The act is in a transaction of its own, as an effect outside would be.
# F25.
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

my $n = scaled(1000, 20_000);
my $run = batch_job($cluster, 'once', $n, 'batch_size => 1, max_attempts => 1');

# Forks a life after the other until one has found nothing to do. Each kills itself after a claim drawn at random.
my $workers = <<'PYTHON';
import os, psycopg, random, signal, sys, time
seed, n = int(sys.argv[1]), int(sys.argv[2])

def connect():
    while True:
        try:
            return psycopg.connect(autocommit=True)
        except psycopg.OperationalError:  # the server is starting
            time.sleep(0.05)

def die(c, with_the_server):
    if with_the_server:
        os.kill(c.info.backend_pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

def live(rnd, lives):
    c = connect()
    while True:
        row = c.execute("SELECT token, item_key FROM job_idem.claim_items('once')").fetchone()
        if row is None:
            os._exit(0)
        death = rnd.random() < 0.1
        if death and rnd.random() < 0.5:
            die(c, lives == n // 100)
        c.execute("INSERT INTO ledger (item_key, token) VALUES (%s, %s)", (row[1], row[0]))
        if death:
            die(c, lives == n // 100)
        c.execute("SELECT job_idem.mark_done(%s, %s)", row)

lives = 0
while True:
    lives += 1
    pid = os.fork()
    if pid == 0:
        live(random.Random(seed + lives), lives)
    if os.waitpid(pid, 0)[1] == 0:
        break
print('lives', lives)
PYTHON

my $seed = seed();
my ($status, $output, $errors) = python($cluster, '-c', $workers, $seed, $n);
is($status, 0, 'the workers have come to the end') or diag($errors);
my ($lives) = $output =~ /lives (\d+)/;
cmp_ok($lives, '>', $n / 20, 'and many have died on the way');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.leases WHERE run_id = $run AND outcome = 'open'"), $lives - 1,
	'the last claim of each is open');
# each claim was of one item, so that its loss is the one try; nobody can try again before or after
tick($cluster, 400);
my $late = session($cluster, options => '-c job_idem.clock_offset=100000');
is(scalar(my @none = claim($late, 'once')), 0, 'nothing comes back');
tick($cluster, 100_000);

is($cluster->safe_psql('postgres', 'SELECT count(*) FROM (SELECT FROM ledger GROUP BY item_key HAVING count(*) > 1) AS twice'), 0,
	'no effect twice');
is($cluster->safe_psql('postgres', <<"SQL"), join('|', 0, 0, $lives - 1, $n), 'every miss is a dead letter');
SELECT count(*) FILTER (WHERE l.item_key IS NULL AND d.item_key IS NULL),
	count(*) FILTER (WHERE (i.state = 'done') = (d.item_key IS NOT NULL)),
	count(*) FILTER (WHERE d.kind = 'lost' AND d.status = 'open' AND i.attempts = 1), count(*)
FROM job_idem.items i LEFT JOIN ledger l USING (item_key) LEFT JOIN job_idem.dead_letters d USING (run_id, item_key)
WHERE i.run_id = $run
SQL
cmp_ok($cluster->safe_psql('postgres',
		"SELECT least(count(l.item_key), count(*) - count(l.item_key)) FROM job_idem.dead_letters d LEFT JOIN ledger l USING (item_key) WHERE run_id = $run"),
	'>', 0, 'some died before their act, some after');
is($cluster->safe_psql('postgres', "SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = $run"),
	join('|', 'partial', $n - $lives + 1, $lives - 1), 'the run is over, but for those');
audit_empty($cluster, $run);

$cluster->stop;
done_testing();
