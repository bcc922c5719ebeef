# A pause holds: through restart, crash and dump and restore; and what is being planned at the moment of the pause is planned
# whole, or not at all until the job is resumed.
# S15, C25.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $cluster = new_cluster('main');
my $folder = PostgreSQL::Test::Utils::tempdir_short();

# A session at so many minutes past midnight.
sub at
{
	my ($minutes, %more) = @_;

	return session($cluster, options => "-c job_idem.clock_freeze=2026-11-30T00:00:30Z -c job_idem.clock_offset=" . $minutes * 60, %more);
}

sub runs
{
	my ($session, $job) = @_;

	return $session->query("SELECT state, count(*), min(run_key), max(run_key) FROM job_idem.runs WHERE job = '$job' GROUP BY state ORDER BY min(run_key)");
}

my $begin = at(0);
$begin->query(<<'SQL');
SELECT job_idem.define_job(j, 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => 'catch_up')
FROM unnest('{before,after,long}'::text[]) AS j;
SELECT job_idem.define_job('source', schedule => '* * * * *', run_per => 'fire', misfire => 'catch_up', item_source => 'SELECT ''a''')
SQL

# the tick is in the middle of a plan of five fires: the pause waits for all of it
my $gate = session($cluster);
my $tick = at(5);
my $operator = at(5);
$begin->query("SELECT job_idem.pause_job(j) FROM unnest('{after,long,source}'::text[]) AS j");
$gate->query('SELECT pg_advisory_lock(38)');
$tick->query("SET job_idem.fault_point = 'plan:wait:38'");
$tick->start_query('CALL job_idem.tick()');
$tick->wait_blocked;
$operator->start_query("SELECT job_idem.pause_job('before', 'in the middle')");
$operator->wait_blocked;
$gate->query('SELECT pg_advisory_unlock(38)');
$operator->finish;
$tick->finish;
is(runs($begin, 'before'), 'running|5|2026-11-30T00:01:00Z|2026-11-30T00:05:00Z', 'what was being planned is planned whole');

# the pause is in the middle: tick does not wait for it, and plans nothing of the job
$begin->query("SELECT job_idem.resume_job('after')");
$operator->query("BEGIN; SELECT job_idem.pause_job('after', 'slowly')");
$tick->query('RESET job_idem.fault_point; SET job_idem.clock_offset = 600; CALL job_idem.tick()');
is(runs($begin, 'after'), '', 'nothing of a job that is just being paused');
$operator->query('COMMIT');
$tick->query('CALL job_idem.tick()');
is(runs($begin, 'after'), '', 'nor after');
is(runs($begin, 'before'), 'running|5|2026-11-30T00:01:00Z|2026-11-30T00:05:00Z', 'nor of the one paused before');

# a source that was still to be run is not run in the pause
$begin->query("SELECT job_idem.resume_job('source')");
$begin->query("SET job_idem.fault_point = ''");
$operator->query("SET job_idem.clock_offset = 60; SELECT job_idem.define_job('source', schedule => '* * * * *', run_per => 'fire', misfire => 'catch_up', item_source => 'SELECT (1/0)::text')");
$operator->query('CALL job_idem.tick()');
$operator->query("SELECT job_idem.define_job('source', schedule => '* * * * *', run_per => 'fire', misfire => 'catch_up', item_source => 'SELECT ''a''')");
$operator->query("SELECT job_idem.pause_job('source', 'while it loads')");
$tick->query("SET job_idem.clock_offset = 86400; CALL job_idem.tick()");
is($begin->query("SELECT count(*), count(*) FILTER (WHERE state = 'loading') FROM job_idem.runs WHERE job = 'source'"), '1|1',
	'a run of a paused job is not loaded');
$tick->query('SET job_idem.clock_offset = 600');

# nothing gets lost on the way
my $paused = "SELECT string_agg(job || ' ' || paused_reason, ', ' ORDER BY job) FROM job_idem.jobs WHERE paused_reason IS NOT NULL";
my $who = $begin->query($paused);
is($who, 'after slowly, before in the middle, source while it loads', 'paused, and why');
$_->quit for $begin, $gate, $tick, $operator;
for my $mode (qw(fast immediate))
{
	$cluster->stop($mode);
	$cluster->start;
	my $later = at(30);
	$later->query('CALL job_idem.tick()');
	is($later->query($paused), $who, "$mode stop: still paused");
	is($later->query("SELECT count(*) FROM job_idem.runs"), 6, "$mode stop: nothing was planned");
	$later->quit;
}
command_ok([ 'pg_dump', '--no-sync', '-Fc', '-f', "$folder/dump", '-d', $cluster->connstr('postgres') ], 'dump');
$cluster->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok([ 'pg_restore', '-e', '-d', $cluster->connstr('restored'), "$folder/dump" ], 'restore');
for my $where ('postgres', 'restored')
{
	my $later = at(30, dbname => $where);

	$later->query('CALL job_idem.tick()');
	is($later->query($paused), $who, "$where: still paused");
	is($later->query("SELECT count(*) FROM job_idem.runs"), 6, "$where: nothing was planned");
	# resumed: two ticks at once do as the policy says, exactly
	$later->query("SELECT job_idem.resume_job(j) FROM unnest('{before,after,source}'::text[]) AS j");
	my @both = map { at(30, dbname => $where) } 1, 2;
	$_->start_query('CALL job_idem.tick()') for @both;
	$_->finish for @both;
	$later->query('CALL job_idem.tick()');
	is(runs($later, 'before'), 'running|30|2026-11-30T00:01:00Z|2026-11-30T00:30:00Z', "$where: every fire of the pause, once");
	is(runs($later, 'after'), 'running|30|2026-11-30T00:01:00Z|2026-11-30T00:30:00Z', "$where: also of one that had none before");
	is(runs($later, 'source'), 'running|30|2026-11-30T00:01:00Z|2026-11-30T00:30:00Z', "$where: and what waited is loaded");
	is(runs($later, 'long'), '', "$where: the one that stays paused has none");
	is($later->query('SELECT count(*) FROM job_idem.runs r, job_idem.audit(r.run_id)'), 0, "$where: audit is empty");
	$_->quit for @both, $later;
}

$cluster->stop;
done_testing();
