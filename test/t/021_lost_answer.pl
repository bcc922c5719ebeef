# The answer to COMMIT is lost: the client cannot know whether it was done, and does the same transaction again.
#
# A Python client sends COMMIT and closes its connection without reading the answer, or closes it just before sending. The
# same transaction again, from a new connection, is done if the first was not, and is JI010 and rolled back if it was:
# when it completed one item, the last item (which closed the lease), several, or the whole lease; also after the lease has
# expired with other items open. claim_status tells what was done. Then a worker that knows nothing but this rule, cut off
# at random again and again, makes no second effect.
# K25, K40, F12.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);
my ($without) = python($cluster, '-c', 'import psycopg');
plan(skip_all => 'psycopg is not installed') if $without;

# Runs statements, then COMMIT, and goes away: before COMMIT is sent, or after it without reading.
my $cut_text = <<'PYTHON';
import psycopg, sys
c = psycopg.connect(autocommit=True)
for statement in sys.argv[2:]:
    c.execute(statement)
if sys.argv[1] == 'after':
    c.pgconn.send_query(b'COMMIT')
    while c.pgconn.flush():
        pass
c.pgconn.finish()
PYTHON

sub cut
{
	my ($when, @statements) = @_;
	my ($status, $output, $errors) = python($cluster, '-c', $cut_text, $when, 'BEGIN', @statements);

	is($status, 0, "cut $when COMMIT") or diag($errors);
	# a COMMIT that was sent is carried out, whoever listens
	return poll_until($cluster,
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()", 20);
}

sub repeated
{
	my ($name, $n_done, $status, @statements) = @_;
	my $again = session($cluster);

	is($again->query_error(join ';', 'BEGIN', @statements), $n_done ? 'JI010' : '', "$name: the same transaction again");
	$again->query($n_done ? 'ROLLBACK' : 'COMMIT');
	my ($token) = "@statements" =~ /(\d{10,})/;
	is($again->query("SELECT outcome, n_done, n_left FROM job_idem.claim_status($token)"), $status, "$name: claim_status");
	$again->quit;
	return;
}

for my $when ('after', 'before')
{
	my $was = $when eq 'after';
	my $run = batch_job($cluster, "cut $when", 12, 'batch_size => 3');
	my $one = session($cluster);
	my @claims = map { [ claim($one, "cut $when") ] } 1 .. 4;
	$one->quit;

	# one item of three
	my ($token, @keys) = @{ $claims[0] };
	my @transaction = (write_items($token, $keys[0]), "SELECT job_idem.mark_done($token, '$keys[0]')");
	cut($when, @transaction);
	repeated("one, cut $when", $was, 'open|1|2', @transaction);

	# the last one, which closes the lease
	my @last = (write_items($token, $keys[2]), "SELECT job_idem.mark_done($token, '$keys[2]')");
	$cluster->safe_psql('postgres', write_items($token, $keys[1]) . "SELECT job_idem.mark_done($token, '$keys[1]')");
	cut($when, @last);
	repeated("last, cut $when", $was, 'completed|3|0', @last);

	# the whole
	($token, @keys) = @{ $claims[1] };
	my @whole = (write_items($token, @keys), "SELECT job_idem.mark_all_done($token, 3)");
	cut($when, @whole);
	repeated("whole, cut $when", $was, 'completed|3|0', @whole);

	# two as a set
	($token, @keys) = @{ $claims[2] };
	my @set = (write_items($token, @keys[ 0, 1 ]), "SELECT job_idem.mark_done_many($token, '{$keys[0],$keys[1]}')");
	cut($when, @set);
	repeated("set, cut $when", $was, 'open|2|1', @set);

	# one, and then the lease expires with the others open
	($token, @keys) = @{ $claims[3] };
	@transaction = (write_items($token, $keys[0]), "SELECT job_idem.mark_done($token, '$keys[0]')");
	cut($when, @transaction);
	tick($cluster, 400);
	my $again = session($cluster);
	is($again->query_error(join ';', 'BEGIN', @transaction), $was ? 'JI010' : 'JI001',
		"expired, cut $when: the same transaction again");
	$again->query('ROLLBACK');
	is($again->query("SELECT outcome, n_done FROM job_idem.claim_status($token)"), 'expired|' . ($was ? 1 : 0),
		"expired, cut $when: claim_status");
	$again->query('SET job_idem.clock_offset = 1200');
	drain($again, "cut $when");
	$again->quit;
	tick($cluster, 1200);
	is($cluster->safe_psql('postgres', "SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), 'done|12', "cut $when: run");
	ledger_right($cluster, $run, 12, "cut $when");
	$cluster->safe_psql('postgres', 'TRUNCATE ledger');
}

# A worker cut off at random: it repeats whatever had no answer, and takes JI010 for success. Nothing else is known to it.
my $n = scaled(300, 10_000);
my $run = batch_job($cluster, 'random', $n, 'batch_size => 10');
my ($status, $output, $errors) = python($cluster, '-c', <<'PYTHON', seed());
import psycopg, random, sys
random.seed(int(sys.argv[1]))
lost = repeated = 0
class Cut(Exception): pass
def transaction(c, token, keys, whole):
    """Works as one transaction; may be cut off around COMMIT."""
    global lost
    c.execute('BEGIN')
    for k in keys:
        c.execute('INSERT INTO ledger (item_key, token) VALUES (%s, %s)', (k, token))
    if whole:
        c.execute('SELECT job_idem.mark_all_done(%s, %s)', (token, len(keys)))
    else:
        c.execute('SELECT job_idem.mark_done_many(%s, %s)', (token, keys))
    p = random.random()
    if p < 0.2:
        c.pgconn.finish()
        raise Cut
    if p < 0.5:
        c.pgconn.send_query(b'COMMIT')
        while c.pgconn.flush():
            pass
        c.pgconn.finish()
        lost += 1
        raise Cut
    c.execute('COMMIT')
def until_known(c, token, keys, whole):
    global repeated
    while True:
        try:
            transaction(c, token, keys, whole)
            return c
        except Cut:
            c = psycopg.connect(autocommit=True)
        except psycopg.Error as e:
            if e.sqlstate != 'JI010':
                raise
            repeated += 1
            c.execute('ROLLBACK')
            return c
c = psycopg.connect(autocommit=True)
while True:
    rows = c.execute("SELECT token, item_key FROM job_idem.claim_items('random')").fetchall()
    if not rows:
        break
    token, keys = rows[0][0], [r[1] for r in rows]
    if random.random() < 0.5:
        c = until_known(c, token, keys, True)
    else:
        middle = random.randrange(1, len(keys))
        c = until_known(c, token, keys[:middle], False)
        c = until_known(c, token, keys[middle:], False)
print(lost, repeated)
PYTHON
is($status, 0, 'random cuts: the worker ends') or diag($errors);
my ($lost, $repeated) = $output =~ /(\d+) (\d+)/;
cmp_ok($repeated, '>', 0, "random cuts: some of $lost lost answers were repetitions");
is($cluster->safe_psql('postgres', "SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), "done|$n", 'random cuts: run');
ledger_right($cluster, $run, $n, 'random cuts');

$cluster->stop;
done_testing();
