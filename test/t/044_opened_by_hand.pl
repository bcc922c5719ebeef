# A run that somebody opens by hand under the planner's key is the planned run, and while that transaction is open tick
# waits for it for a second at most, plans the other jobs in the same call, and says which one it could not. A locked table
# ends the tick in place of making each job wait. Any other error of a job is a warning.
# C27, S21, S22 (the states: sql/tick_errors.sql).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Time::HiRes qw(time);

my $cluster = new_cluster('main');
my $user = session($cluster, options => '-c job_idem.clock_freeze=2026-11-30T00:00:00Z');
my @ticks = map { session($cluster, options => '-c job_idem.clock_freeze=2026-11-30T02:00:01Z') } 1, 2;

sub runs { return $cluster->safe_psql('postgres', 'SELECT job, run_key, trigger_count FROM job_idem.runs ORDER BY job, run_key'); }

# The warnings of both ticks, called at once.
sub tick_both
{
	my $start = time();

	$_->start_query('CALL job_idem.tick()') for @ticks;
	$_->finish for @ticks;
	cmp_ok(time() - $start, '<', 20, 'within a bounded wait');
	return join '', map { $_->errors } @ticks;
}

# one in the first place and one in the middle, so that others come after each
$user->query("SELECT job_idem.define_job('job ' || j, 'keyed', schedule => '0 2 * * *') FROM generate_series(1, 5) AS j");
my $first = $user->query("SELECT job_id FROM job_idem.jobs WHERE job = 'job 1'");
$user->query("BEGIN; SELECT job_idem.open_run('job ' || j, '2026-11-30') FROM unnest('{1,3}'::int[]) AS j");
like(tick_both(), qr/WARNING:  55P03: tick could not plan job number $first: .*HINT:  The others go on/s, 'it says which');
is(runs(), "job 2|2026-11-30|1\njob 4|2026-11-30|1\njob 5|2026-11-30|1", 'the others are planned in the same call');
$user->query('COMMIT');
is(tick_both(), '', 'nothing to say once it is committed');
is(runs(), join("\n", map { "job $_|2026-11-30|1" } 1 .. 5), 'the run opened by hand is the planned one');

# rolled back: planned by the next tick
$_->query("SET job_idem.clock_freeze = '2026-12-01T02:00:01Z'") for @ticks;
$user->query("BEGIN; SELECT job_idem.open_run('job 1', '2026-12-01')");
tick_both();
$user->query('ROLLBACK');
is(tick_both(), '', 'nothing to say once it is rolled back');
is($cluster->safe_psql('postgres', "SELECT count(*), count(DISTINCT job) FROM job_idem.runs WHERE run_key = '2026-12-01'"), '5|5',
	'and each job has its run');

# a whole table: one wait, not one for each job
$_->query("SET job_idem.clock_freeze = '2026-12-02T02:00:01Z'") for @ticks;
$user->query('BEGIN; LOCK TABLE job_idem.run IN SHARE MODE');
my $said = tick_both();
is(() = $said =~ /WARNING/g, 2, 'each tick meets a locked table once');
like($said, qr/This tick ends here/, 'and ends');
$user->query('COMMIT');
is(tick_both(), '', 'the next goes on');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.runs WHERE run_key = '2026-12-02'"), 5, 'with every job');

# an error says which job, what, and that the others go on
$user->query(<<'SQL');
SET job_idem.clock_freeze = '2026-12-03T00:00:00Z';
SELECT job_idem.define_calendar('never', 'MON-SUN');
SELECT job_idem.define_job('job 2', 'keyed', schedule => '0 2 * * *', calendar => 'never', closed_day => 'next');
UPDATE job_idem.calendar SET weekly = 0;
SELECT job_idem.define_job('job 6', schedule => '0 2 * * *', item_source => 'SELECT (1 / 0)::text');
SQL
my $second = $user->query("SELECT job_id FROM job_idem.jobs WHERE job = 'job 2'");
$ticks[0]->query("SET job_idem.clock_freeze = '2026-12-03T02:00:01Z'; CALL job_idem.tick()");
like($ticks[0]->errors, qr/WARNING:  \w{5}: tick could not plan job number $second: calendar "never" has no open day.*HINT:  The others go on/s,
	'a job that cannot be planned');
like($ticks[0]->errors, qr/WARNING:  22012: item_source failed: division by zero.*Run \d+ stays loading/s, 'a run that cannot be loaded');
is($cluster->safe_psql('postgres', "SELECT string_agg(job || ' ' || state, ', ' ORDER BY job) FROM job_idem.runs WHERE run_key = '2026-12-03'"),
	'job 1 running, job 3 running, job 4 running, job 5 running, job 6 loading', 'and all the others');

# a source that waits for a lock holds up nobody for long either, and is run again
$user->query(<<'SQL');
SET job_idem.clock_freeze = '2026-12-04T00:00:00Z';
CREATE TABLE listed AS SELECT 'a' AS key;
SELECT job_idem.define_job('job 6', schedule => '0 2 * * *', item_source => 'SELECT key FROM public.listed', backoff_base => '0');
SELECT job_idem.define_job('job 7', schedule => '0 2 * * *', item_source => 'SELECT ''b''');
BEGIN;
LOCK TABLE listed;
SQL
$ticks[0]->query("SET job_idem.clock_freeze = '2026-12-04T02:00:01Z'; CALL job_idem.tick()");
my $states = "SELECT string_agg(job || ' ' || state, ', ' ORDER BY job) FROM job_idem.runs WHERE run_key = '2026-12-04'"
  . " AND job IN ('job 6', 'job 7')";
is($cluster->safe_psql('postgres', $states), 'job 6 loading, job 7 running', 'a locked source leaves its run loading');
$user->query('COMMIT');
$ticks[0]->query('CALL job_idem.tick()');
is($cluster->safe_psql('postgres', $states), 'job 6 running, job 7 running', 'and is run again');

$cluster->stop;
done_testing();
