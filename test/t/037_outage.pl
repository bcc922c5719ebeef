# A long outage costs bounded work and never stops a schedule.
#
# 720 minutes missed under each policy, with two ticks that come back at once; then days without a tick: no tick plans more
# than catch_up_limit, each costs about the same, in the end planned and skipped are what was due, and the normal cadence
# goes on. What a tick looks at does not grow with the runs there have been.
# S11, C05, S12.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Time::HiRes qw(time);

my $cluster = new_cluster('main');
my @ticks = map { session($cluster) } 1, 2;

sub clock { my ($instant) = @_; $_->query("SET job_idem.clock_freeze = '$instant'") for @ticks; return; }

sub tick_both { $_->start_query('CALL job_idem.tick()') for @ticks; $_->finish for @ticks; return; }

sub count_of
{
	my ($job) = @_;

	return $ticks[0]->query("SELECT count(*), count(DISTINCT run_key), count(*) FILTER (WHERE state = 'running'),"
		  . " count(*) FILTER (WHERE state = 'skipped') FROM job_idem.runs WHERE job = '$job'");
}

# C05: last planned at 20:00, up again at 08:00
clock('2026-11-29T19:59:30Z');
$ticks[0]->query("SELECT job_idem.define_job(p, 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => p, catch_up_limit => l)
	FROM (VALUES ('latest', 1000), ('skip', 1000), ('catch_up', 250)) AS x (p, l)");
clock('2026-11-29T20:00:01Z');
tick_both();
is(count_of($_), '1|1|1|0', "$_: one so far") for qw(latest skip catch_up);
clock('2026-11-30T08:00:01Z');
tick_both();
is(count_of('latest'), '721|721|2|719', 'latest: one make-up run, the others on record');
is($ticks[0]->query("SELECT max(run_key) FROM job_idem.runs WHERE job = 'latest' AND state = 'running'"), '2026-11-30T08:00:00Z',
	'and that is the newest');
# 08:00:00 is a second late, which is on time
is(count_of('skip'), '721|721|2|719', 'skip: none, but the one on time');
my $n = $ticks[0]->query("SELECT count(*) FROM job_idem.runs WHERE job = 'catch_up'");
ok($n == 251 || $n == 501, "catch_up: each tick its limit at most ($n)");
is($ticks[0]->query("SELECT count(*) FROM job_idem.runs WHERE job = 'catch_up' AND run_key > (SELECT to_char(timestamp '2026-11-29 20:00'"
	  . " + ($n - 1) * interval '1 minute', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'))"), 0, 'oldest first');
tick_both();
tick_both();
$ticks[0]->query('CALL job_idem.tick()');
is(count_of('catch_up'), '721|721|721|0', 'catch_up: until level');
clock('2026-11-30T08:01:01Z');
tick_both();
is((split /\|/, count_of($_))[0], 722, "$_: the normal cadence") for qw(latest skip catch_up);
$ticks[0]->query("SELECT job_idem.pause_job(job) FROM job_idem.jobs; SELECT job_idem.cancel_run(run_id, 'over', force => true) FROM job_idem.runs WHERE state = 'running'");
$ticks[0]->query('CALL job_idem.tick()') for 1, 2;

# days without a tick; a backlog of so many rows is worked off in equal parts
my $days = scaled(3, 30);
my $due = $days * 1440;
my $back = "timestamptz '2026-12-01 00:00:30+00' + interval '$days days'";
clock('2026-12-01T00:00:30Z');
$ticks[0]->query("SELECT job_idem.define_job('long ' || l, 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => 'latest', catch_up_limit => l)
	FROM unnest('{100,2000}'::int[]) AS l");
clock($ticks[0]->query("SET timezone = 'UTC'; SELECT $back"));
my %left = (100 => $due, 2000 => $due);
my @took;
my $over = 0;
my $rounds = 0;
while (($left{100} > 0 || $left{2000} > 0) && $rounds++ < $due / 100 + 2)
{
	my $start = time();

	$ticks[0]->query('CALL job_idem.tick()');
	push @took, time() - $start;
	for my $limit (100, 2000)
	{
		my $now = $due - $ticks[0]->query("SELECT count(*) FROM job_idem.run JOIN job_idem.job j USING (job_id) WHERE j.name = 'long $limit'");

		$over++ if $left{$limit} - $now > $limit || ($now == $left{$limit} && $now > 0);
		$left{$limit} = $now;
	}
	if ($rounds == 1)
	{
		is($ticks[0]->query("SELECT max(run_key) = to_char($back, 'YYYY-MM-DD\"T\"HH24:MI:00\"Z\"') FROM job_idem.runs WHERE job LIKE 'long %' AND state = 'running'"),
			't', 'the newest first: it is not held up by the others');
	}
}
is($over, 0, 'no tick plans more than the limit, and none stands still');
is($rounds, int(($due + 99) / 100), 'as few as there can be');
is(count_of("long $_"), "$due|$due|1|" . ($due - 1), "limit $_: planned and skipped are what was due") for 100, 2000;
my ($slowest) = sort { $b <=> $a } @took;
cmp_ok($slowest, '<', 60, 'no tick is long');

# A tick's work does not grow with history: buffers touched by a tick that plans one fire, now and with half as much more.
# Minutes that all jobs have behind them tell as little as those to come.
sub cost
{
	my ($instant) = @_;
	my $one = session($cluster);
	my $read = 'SELECT sum(idx_blks_hit + heap_blks_hit + idx_blks_read + heap_blks_read) FROM pg_statio_user_tables'
	  . " WHERE schemaname = 'job_idem'";

	$one->query("SET job_idem.clock_freeze = '$instant'; CALL job_idem.tick()");
	my $before = $one->query("SELECT pg_stat_force_next_flush(); $read");
	$one->query("SET job_idem.clock_offset = 60; CALL job_idem.tick()");
	my $after = $one->query("SELECT pg_stat_force_next_flush(); SELECT pg_stat_clear_snapshot(); $read");
	$one->quit;
	return (split /\n/, $after)[-1] - (split /\n/, $before)[-1];
}
$ticks[0]->query('VACUUM ANALYZE');
my $few = cost($ticks[0]->query("SELECT $back + interval '5 minutes'"));
clock($ticks[0]->query("SELECT $back + interval '2 days'"));
$ticks[0]->query('CALL job_idem.tick()') for 1 .. 30;
$ticks[0]->query('VACUUM ANALYZE');
my $many = cost($ticks[0]->query("SELECT $back + interval '2 days 5 minutes'"));
cmp_ok($many, '<', 2 * $few + 100, "a tick touches no more pages with more history ($few, then $many)");

$cluster->stop;
done_testing();
