# Every verb works where each statement may reach another backend: nothing of ours lives in a session.
#
# Twenty clients work a run through pgbouncer in transaction mode over three backends, half of them with simple queries,
# half with bound parameters, each with the whole life cycle: open, add, seal, claim, hold, heartbeat, completion in every
# form, failure, postpone, release, tick, replay. When all are idle, pg_locks shows no advisory lock. Then the same life
# cycle once more, each call on another backend than the one before, with DISCARD ALL in between.
# P4, C17, C50.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

plan(skip_all => 'pgbouncer is not installed') unless available_program('pgbouncer');
my $cluster = new_cluster('main');
my ($without) = python($cluster, '-c', 'import psycopg');
plan(skip_all => 'psycopg is not installed') if $without;
make_ledger($cluster);

my ($connstr, $bouncer) = pgbouncer($cluster, pool_size => 3);
my $n = scaled(400, 20_000);
my $run = batch_job($cluster, 'pooled', $n, "batch_size => 7, backoff_base => '0', max_attempts => 1000");
$cluster->safe_psql('postgres', "SELECT FROM job_idem.define_job('keys', 'keyed', close_after => '1000 years')");

# Twenty threads; arguments are the connection string and a seed. Every call may use another backend.
my $clients = <<'PYTHON';
import psycopg, random, sys, threading
connstr, seed = sys.argv[1], int(sys.argv[2])
errors, backends, lock = [], set(), threading.Lock()

def client(i):
    rnd = random.Random(seed + i)
    c = psycopg.connect(connstr, autocommit=True, prepare_threshold=None)
    simple = i % 2 == 0
    def call(text, *args):
        if simple:  # the simple protocol: literals, no parameters
            text = text % tuple("ARRAY[%s]::text[]" % ','.join("'%s'" % a for a in x) if isinstance(x, list)
                                else "'%s'" % x if isinstance(x, str) else x for x in args)
            r = psycopg.ClientCursor(c).execute(text)
        else:
            r = c.cursor().execute(text, args or None)
        return r.fetchall() if r.description else None
    def verb(name, *args):
        return call("SELECT job_idem." + name, *args)
    def write(token, keys):
        for k in keys:
            call("INSERT INTO ledger (item_key, token) VALUES (%s, %s)", k, token)
    while True:
        with lock:
            backends.add(call("SELECT pg_backend_pid()")[0][0])
        rows = call("SELECT token, item_key FROM job_idem.claim_items('pooled', %s)", 'client %d' % i)
        if not rows:
            state = call("SELECT state FROM job_idem.runs WHERE job = 'pooled'")[0][0]
            if state == 'done':
                break
            call("CALL job_idem.tick()")
            continue
        token, keys = rows[0][0], [r[1] for r in rows]
        verb("heartbeat(%s)", token)
        what = rnd.randrange(6)
        if what == 0:
            with c.transaction():
                verb("hold(%s)", token)
                write(token, keys)
                verb("mark_all_done(%s, %s)", token, len(keys))
        elif what == 1:
            for k in keys:
                with c.transaction():
                    verb("hold(%s, %s)", token, k)
                    write(token, [k])
                    verb("mark_done(%s, %s)", token, k)
        elif what == 2:
            verb("mark_failed(%s, %s, 'x', '40001')", token, keys[0])
            if keys[1:]:
                with c.transaction():
                    write(token, keys[1:])
                    verb("mark_done_many(%s, %s)", token, keys[1:])
        elif what == 3:
            verb("postpone(%s, %s, '0')", token, keys[0])
            verb("release(%s)", token)
        elif what == 4:
            verb("mark_failed(%s, %s, 'x', '23514')", token, keys[-1])
            verb("release(%s)", token)
            for (d,) in call("SELECT dead_letter_id FROM job_idem.dead_letters WHERE job = 'pooled' AND status = 'open'"):
                verb("replay(%s)", d)
        else:
            verb("release(%s)", token)
        key = 'key %d' % rnd.randrange(40)
        got = call("SELECT outcome, token FROM job_idem.claim_item('keys', '2026-11-30', %s)", key)[0]
        if got[0] == 'claimed':
            with c.transaction():
                call("INSERT INTO keys_seen VALUES (%s)", key)
                verb("mark_done(%s, %s)", got[1], key)
        call("SELECT run_id FROM job_idem.open_run('keys', '2026-11-30')")

def guarded(i):
    try:
        client(i)
    except Exception as e:
        errors.append('client %d: %s' % (i, str(e)))

threads = [threading.Thread(target=guarded, args=(i,)) for i in range(20)]
for t in threads: t.start()
for t in threads: t.join()
print('backends', len(backends))
for e in errors[:5]:
    print('error', e)
sys.exit(1 if errors else 0)
PYTHON
$cluster->safe_psql('postgres', 'CREATE TABLE keys_seen (key text)');
my $program = program($cluster, $JobIdem::PYTHON, '-c', $clients, $connstr, seed());
$program->input("\n");
is($program->wait, 0, 'twenty clients over three backends: no error') or diag($program->output . $program->errors);
like($program->output, qr/^backends 3$/m, 'they have shared three backends');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype NOT IN ('relation', 'virtualxid')"), 0,
	'no lock is left when all are idle');
is($cluster->safe_psql('postgres', "SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = $run"), "done|$n|0", 'the run is done');
ledger_right($cluster, $run, $n, 'pooled');
is($cluster->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT key) FROM keys_seen'), 0, 'no key was taken twice');
audit_empty($cluster, run_of($cluster, 'keys'), 'keys: audit is empty');
$bouncer->signal('TERM');
$bouncer->wait(20);
$cluster->safe_psql('postgres', 'TRUNCATE ledger');

# Each call on another backend, with DISCARD ALL in between; a transaction stays where it is, as with a pooler.
my @backends = map { session($cluster) } 1 .. 3;
my $turn = 0;
sub call
{
	my ($sql) = @_;
	my $backend = $backends[ $turn++ % @backends ];
	my $answer = $backend->query($sql);

	$backend->query('DISCARD ALL');
	return $answer;
}
is(call("SELECT outcome FROM job_idem.define_job('life', batch_size => 3, backoff_base => '0')"), 'new', 'define_job');
my $life = call("SELECT run_id FROM job_idem.open_run('life', '$DATE')");
is(call("SELECT * FROM job_idem.add_items($life, '{k1,k2,k3,k4}')"), '4|0', 'add_items');
is(call("SELECT * FROM job_idem.load_items($life, 'SELECT ''k'' || i AS item_key FROM generate_series(4, 9) AS i ORDER BY i')"), '5|1', 'load_items');
is(call("SELECT * FROM job_idem.seal_run($life)"), '9|3', 'seal_run');
my @claims = map { call("SELECT min(token) FROM job_idem.claim_items('life')") } 1 .. 3;
is(call("SELECT job_idem.heartbeat($claims[0]) IS NOT NULL"), 't', 'heartbeat');
call('BEGIN; ' . write_items($claims[0], qw(k1 k2 k3)) . "SELECT job_idem.mark_all_done($claims[0], 3); COMMIT");
call('BEGIN; ' . "SELECT job_idem.hold($claims[1], 'k4'); " . write_items($claims[1], 'k4') . "SELECT job_idem.mark_done($claims[1], 'k4'); COMMIT");
is(call("SELECT state FROM job_idem.mark_failed($claims[1], 'k5', 'x', '23514')"), 'dead', 'mark_failed');
is(call("SELECT job_idem.postpone($claims[1], 'k6', '0') IS NOT NULL"), 't', 'postpone');
is(call("SELECT job_idem.expire_lease($claims[2], 'test')"), 3, 'expire_lease');
is(call("SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE job = 'life'"), 't', 'replay');
is(call("SELECT n_done, n_left FROM job_idem.claim_status($claims[1])"), '1|0', 'claim_status');
my $released;
for (1 .. 20)
{
	my @rows = split /\n/, call("SELECT token, item_key FROM job_idem.claim_items('life') ORDER BY item_key");
	last if !@rows;
	my ($token) = split /\|/, $rows[0];
	my @keys = map { (split /\|/)[1] } @rows;
	if (!$released++)
	{
		is(call("SELECT job_idem.release($token)"), scalar @keys, 'release');
		next;
	}
	call('BEGIN; ' . write_items($token, @keys) . 'SELECT job_idem.mark_done_many(' . "$token, '{" . join(',', @keys) . "}'); COMMIT");
}
call('CALL job_idem.tick()');
is(call("SELECT job_idem.is_done('life', '$DATE')"), 't', 'the run is done');
is(call("SELECT job_idem.pause_job('life')"), 't', 'pause_job');
is(call("SELECT job_idem.resume_job('life')"), 't', 'resume_job');
is(call("SELECT count(*) FROM pg_locks WHERE locktype NOT IN ('relation', 'virtualxid')"), 0, 'no lock is left');
ledger_right($cluster, $life, 9, 'each call on another backend');
$_->quit for @backends;

$cluster->stop;
done_testing();
