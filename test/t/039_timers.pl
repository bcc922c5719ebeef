# Whoever triggers, and however often: one run, every item once.
#
# Three processes have a timer each and wake in the same second; each opens the run, ticks and works what it can get. Then a
# dispatcher that sends every message twice, the second one beside the first or after it.
# W3.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);
$cluster->safe_psql('postgres', <<'SQL');
LOAD 'job_idem';
SET job_idem.clock_freeze = '2026-11-30T00:00:00Z';
SELECT job_idem.define_job('mail', schedule => '* * * * *', run_per => 'fire', batch_size => 3, misfire => 'catch_up',
	item_source => 'SELECT $1 || ''/'' || i FROM pg_catalog.generate_series(1, 10) AS i');
SELECT job_idem.define_job('push', schedule => '* * * * *', run_per => 'fire', batch_size => 4, misfire => 'catch_up',
	item_source => 'SELECT $1 || ''/'' || i FROM pg_catalog.generate_series(1, 10) AS i');
SQL

# Each program waits for the next full half second of the real clock, so that all wake together; what the time is for the
# jobs is moved on by a minute with each.
my $timer = <<'PYTHON';
import math, sys, time
import psycopg

times = int(sys.argv[1])
db = psycopg.connect("options='-c timezone=UTC'", autocommit=True)
db.execute("LOAD 'job_idem'")
db.execute("SET job_idem.clock_freeze = '2026-11-30T00:00:00Z'")

def work(job):
    while True:
        with db.transaction():
            rows = db.execute("SELECT token, item_key FROM job_idem.claim_items(%s)", (job,)).fetchall()
        if not rows:
            return
        token = rows[0][0]
        with db.transaction():
            for row in rows:
                db.execute("INSERT INTO ledger (item_key, token) VALUES (%s, %s)", (job + '/' + row[1], token))
            db.execute("SELECT job_idem.mark_all_done(%s, %s)", (token, len(rows)))

def fire(minute):
    db.execute("SELECT set_config('job_idem.clock_offset', %s, false)", (str(minute * 60 + 1),))
    db.execute("SELECT job_idem.open_run('mail', '2026-11-30', run_key => %s)", (f"2026-11-30T00:{minute:02}:00Z",))
    db.execute("CALL job_idem.tick()")
    work('mail')
    work('push')

for minute in range(1, times + 1):
    time.sleep(math.ceil(time.time() * 2) / 2 - time.time())
    fire(minute)
    if 'twice' in sys.argv:
        fire(minute)
PYTHON

my @timers = map { program($cluster, $JobIdem::PYTHON, '-c', $timer, 4) } 1 .. 3;
is($_->wait(60), 0, 'a timer ends well') or diag($_->errors) for @timers;

sub right
{
	my ($minutes, $name) = @_;

	# who was last may have found the run in another's hands, and left its end to the next tick
	$cluster->safe_psql('postgres', "LOAD 'job_idem'; SET job_idem.clock_freeze = '2026-11-30T00:00:00Z';"
		  . ' SET job_idem.clock_offset = ' . ($minutes * 60 + 2) . '; CALL job_idem.tick()');
	for my $job (qw(mail push))
	{
		is($cluster->safe_psql('postgres', "SELECT count(*), count(DISTINCT run_key), min(run_key), max(run_key) FROM job_idem.runs WHERE job = '$job'"),
			"$minutes|$minutes|2026-11-30T00:01:00Z|2026-11-30T00:0$minutes:00Z", "$name, $job: one run each minute");
		is($cluster->safe_psql('postgres', "SELECT count(*), sum(n_items), sum(n_done) FROM job_idem.runs WHERE job = '$job' AND state = 'done'"),
			join('|', $minutes, $minutes * 10, $minutes * 10), "$name, $job: all of it done");
		is($cluster->safe_psql('postgres', "SELECT count(*) FROM ledger l WHERE item_key LIKE '$job/%'"), $minutes * 10,
			"$name, $job: each item once");
		is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.items i WHERE job = '$job' AND NOT EXISTS"
			  . " (SELECT FROM ledger l WHERE l.token = i.token AND l.item_key = '$job/' || i.item_key)"), 0, "$name, $job: by whom it says");
	}
	is($cluster->safe_psql('postgres', 'SELECT count(*) FROM job_idem.runs r, job_idem.audit(r.run_id)'), 0, "$name: audit is empty");
	return;
}
right(4, 'three timers');
# every one of them asked for every run of mail by hand
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.runs WHERE job = 'mail' AND trigger_count >= 3"), 4,
	'the triggers that came too late are on record');

# the same four minutes again and three new ones, every message twice, by two dispatchers
@timers = map { program($cluster, $JobIdem::PYTHON, '-c', $timer, 7, 'twice') } 1 .. 2;
is($_->wait(60), 0, 'a dispatcher ends well') or diag($_->errors) for @timers;
right(7, 'every message twice');

$cluster->stop;
done_testing();
