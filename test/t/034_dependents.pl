# Many upstreams of one run, and many runs of one upstream: what waits is released once, soon, and in bounded steps.
#
# A job waits for 50 others, which finish in 50 connections, in transactions that are all open at once and commit in random
# order, then again in no order at all: released once, at the latest at the next tick; while one of them is rolled back, not.
# A run is looked at while its upstream's finish waits between its locks and its update, and between the update and the
# commit: it goes with the commit, or at the next tick. A server that goes down in either place leaves both as they were.
# 2,000 jobs (10,000 in a soak) wait for one: its finish and idle claims release some each, ticks the others, and several
# at it at once release none twice; no transaction releases more than a hundred.
#
# Proves: C28, C63, S17, S18.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use List::Util qw(shuffle);
use JobIdem;
use Ledger;

my $seed = seed();
my $cluster = new_cluster('main', conf => 'max_connections = 120');
$cluster->safe_psql('postgres', <<'SQL');
-- a run with nothing to do, ready to be finished
CREATE FUNCTION ready(job text, day date) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	run bigint;
BEGIN
	SELECT run_id INTO run FROM job_idem.open_run(job, day);
	PERFORM job_idem.seal_run(run);
	RETURN run;
END $$;
CREATE FUNCTION idle(job text) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM job_idem.claim_items($1)';
CREATE FUNCTION state(job text, day date) RETURNS text LANGUAGE sql AS $$
	SELECT state || ' ' || (SELECT count(*) FROM job_idem.event e WHERE e.run_id = r.run_id AND verb = 'release')
	FROM job_idem.runs r WHERE r.job = $1 AND r.business_date = $2 $$;
SQL

sub value { return $cluster->safe_psql('postgres', 'SELECT ' . $_[0]); }

# --- fan-in of 50

my $n = 50;
$cluster->safe_psql('postgres', <<"SQL");
SELECT count(job_idem.define_job('up ' || i)) FROM generate_series(1, $n) AS i;
SELECT job_idem.define_job('down');
SELECT count(job_idem.add_dependency('down', 'up ' || i)) FROM generate_series(1, $n) AS i;
SQL
my @sessions = map { session($cluster) } 1 .. $n;

sub open_all
{
	my ($day) = @_;

	is(value("state FROM job_idem.open_run('down', '$day')"), 'blocked', "$day: born blocked");
	return value("count(ready('up ' || i, '$day')) FROM generate_series(1, $n) AS i");
}

# all of them open at once; $spoiled of them roll back
sub finish_together
{
	my ($day, $spoiled) = @_;

	open_all($day);
	$sessions[$_]->query('BEGIN; SELECT idle(\'up ' . ($_ + 1) . '\')') for shuffle(0 .. $n - 1);
	my @order = shuffle(0 .. $n - 1);
	my @early = splice @order, $spoiled;
	$_->query('COMMIT') for map { $sessions[$_] } @early;
	$_->query('ROLLBACK') for map { $sessions[$_] } @order;
	is(value("count(*) FROM job_idem.runs WHERE business_date = '$day' AND job LIKE 'up %' AND state = 'done'"),
		$n - $spoiled, "$day: as many are done as committed");
	return;
}

finish_together('2026-11-01', 0);
tick($cluster);
is(value("state('down', '2026-11-01')"), 'loading 1', 'released once');
tick($cluster);
is(value("state('down', '2026-11-01')"), 'loading 1', 'and not again');

finish_together('2026-11-02', 1);
$cluster->safe_psql('postgres', "SELECT idle('down')");
is(value("state('down', '2026-11-02')"), 'blocked 0', 'one of 50 was rolled back: nobody releases');
tick($cluster);
tick($cluster);
is(value("state('down', '2026-11-02')"), 'loading 1', 'until it is done');

# an idle claim of the job itself will do
finish_together('2026-11-03', 0);
$cluster->safe_psql('postgres', "SELECT idle('down')");
is(value("state('down', '2026-11-03')"), 'loading 1', 'released by an idle claim');

# each on its own, all at once, with two ticks among them
open_all('2026-11-04');
my @ticks = map { session($cluster) } 1 .. 2;
my @order = shuffle(0 .. $n - 1);
$sessions[$_]->start_query("SELECT idle('up " . ($_ + 1) . "')") for @order[ 0 .. $n / 2 ];
$_->start_query('CALL job_idem.tick()') for @ticks;
$sessions[$_]->start_query("SELECT idle('up " . ($_ + 1) . "')") for @order[ $n / 2 + 1 .. $n - 1 ];
$_->finish for @sessions, @ticks;
tick($cluster);
tick($cluster);
is(value("state('down', '2026-11-04')"), 'loading 1', 'released once by 50 at once');

# and in the end the same whoever was first
is(value("count(*) FROM job_idem.runs WHERE job LIKE 'up %' AND state <> 'done'"), 0, 'all upstreams are done');
$_->quit for @sessions;

# --- looked at while the upstream is just being finished

$cluster->safe_psql('postgres', "SELECT job_idem.define_job('last up'), job_idem.define_job('last down');"
	  . " SELECT job_idem.add_dependency('last down', 'last up')");
my ($gate, $finisher, $looker) = map { session($cluster) } 1 .. 3;

sub look
{
	my ($day, $name) = @_;

	$looker->query("CALL job_idem.tick(); SELECT idle('last down'); SELECT idle('last up')");
	return is(value("state('last down', '$day')"), 'blocked 0', "$name: still blocked");
}

sub set_up
{
	my ($day) = @_;

	value("run_id FROM job_idem.open_run('last down', '$day')");
	return value("ready('last up', '$day')");
}

# between its locks and its update
set_up('2026-11-01');
$gate->query('SELECT pg_advisory_lock(34)');
$finisher->query("SET job_idem.fault_point = 'finish:wait:34'");
$finisher->start_query("SELECT idle('last up')");
$finisher->wait_blocked;
look('2026-11-01', 'before the update');
$gate->query('SELECT pg_advisory_unlock(34)');
$finisher->finish;
is(value("state('last down', '2026-11-01')"), 'loading 1', 'released at the commit, with nobody else about');
$finisher->query('RESET job_idem.fault_point');

# between its update and its commit
set_up('2026-11-02');
$finisher->query("BEGIN; SELECT idle('last up')");
look('2026-11-02', 'before the commit');
$finisher->query('COMMIT');
is(value("state('last down', '2026-11-02')"), 'loading 1', 'released at the commit');

# somebody holds the run at that moment: the finish does not wait for him, and the next tick finds it
set_up('2026-11-03');
$looker->query("BEGIN; SELECT FROM job_idem.run JOIN job_idem.jobs USING (job_id)"
	  . " WHERE job = 'last down' AND run_key = '2026-11-03' FOR UPDATE OF run");
$finisher->query("SELECT idle('last up')");
is(value("state('last down', '2026-11-03')"), 'blocked 0', 'not had by the finish');
$looker->query('COMMIT');
tick($cluster);
is(value("state('last down', '2026-11-03')"), 'loading 1', 'had by the next tick');

# the server goes down in either place
$_->quit for $gate, $looker, @ticks;
my $day = 10;
for my $place ([ 'before the update', "SET job_idem.fault_point = 'finish:crash'; SELECT idle('last up')" ],
	[ 'before the commit', "BEGIN; SELECT idle('last up')" ])
{
	my ($name, $sql) = @$place;
	my $session = session($cluster);

	$day++;
	set_up("2026-11-$day");
	$session->query_error($sql);
	$session->kill9_backend if $name eq 'before the commit';
	$session->kill9;
	poll_until($cluster, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = " . $session->pid, 30);
	is(value("(SELECT state FROM job_idem.runs WHERE job = 'last up' AND run_key = '2026-11-$day') || ' ' || state('last down', '2026-11-$day')"),
		'running blocked 0', "$name: nothing of it has happened");
	tick($cluster);
	tick($cluster);
	is(value("state('last down', '2026-11-$day')"), 'loading 1', "$name: the next tick does both");
}
# --- 2,000 that wait for one

my $m = scaled(2000, 10_000);
$cluster->safe_psql('postgres', <<"SQL");
SELECT job_idem.define_job('one');
SELECT count(job_idem.define_job('of ' || i)) FROM generate_series(1, $m) AS i;
SELECT count(job_idem.add_dependency('of ' || i, 'one')) FROM generate_series(1, $m) AS i;
SELECT count(r.run_id) FROM generate_series(1, $m) AS i, job_idem.open_run('of ' || i, '2026-11-30') r;
SELECT ready('one', '2026-11-30');
SQL
my $released = "count(*) FROM job_idem.runs WHERE job LIKE 'of %' AND state = 'loading'";
is(value($released), 0, 'all wait');
my $some = $cluster->safe_psql('postgres', "BEGIN; SELECT idle('one') \\g /dev/null\nSELECT $released; ROLLBACK");
is(value($released), 0, 'a finish that is rolled back releases none');
$cluster->safe_psql('postgres', "SELECT idle('one')");
is(value($released), $some, "a finish releases some, $some");
cmp_ok($some, '>', 0, 'some are not none');
cmp_ok($some, '<=', 100, 'nor too many');
@ticks = map { session($cluster) } 1 .. 2;
my @idle = map { session($cluster) } 1 .. 4;
$_->start_query('CALL job_idem.tick()') for @ticks;
$_->start_query(join ';', map { "SELECT idle('one')" } 1 .. 5) for @idle;
$_->finish for @ticks, @idle;
tick($cluster);
is(value($released), $m, 'all are released');
is(value("count(*) || ' ' || count(DISTINCT run_id) FROM job_idem.event JOIN job_idem.jobs USING (job_id)"
		  . " WHERE job LIKE 'of %' AND verb = 'release'"),
	"$m $m", 'each once');
is(value("count(*) FROM (SELECT at FROM job_idem.event JOIN job_idem.jobs USING (job_id)"
		  . " WHERE job LIKE 'of %' AND verb = 'release' GROUP BY event.xmin, at HAVING count(*) > 100) AS x"),
	0, 'never more than 100 in a transaction');
$_->quit for @idle;

is(value("count(*) FROM job_idem.runs r, job_idem.audit(r.run_id) WHERE r.job IN ('down', 'last up', 'last down', 'one')"),
	0, 'audit is empty');

$cluster->stop;
done_testing();
