# Any number of ticks at once, some of them killed in the middle, plan exactly what is due: every fire has one row.
#
# Eight sessions tick through 60 moved minutes, each at its own pace, so that they are at different minutes at the same
# time. One session is killed in its client, one is terminated and one crashes while it plans; planned_to is set to NULL,
# and to a time to come, half-way. What is planned is compared with cron_fires, and with what the policy says of it.
# S12, C02, S13 (clocks that differ).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $cluster = new_cluster('main');
my $from = '2026-11-30 00:00:30+00';
my $minutes = 60;

seed();
$cluster->safe_psql('postgres', <<"SQL");
LOAD 'job_idem';
SET job_idem.clock_freeze = '$from';
CREATE TABLE job (job text, schedule text);
INSERT INTO job VALUES ('every', '* * * * *'), ('every late', '* * * * *'), ('often', '*/3 * * * *'), ('list', '1,2,50-59 * * * *'),
	('source', '*/5 * * * *'), ('serial', '*/2 * * * *'), ('single', '*/7 * * * *'), ('other zone', '0,15,45 * * * *');
SELECT job_idem.define_job('every', 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => 'catch_up');
SELECT job_idem.define_job('every late', 'keyed', schedule => '* * * * *', run_per => 'fire', misfire => 'latest', catch_up_limit => 7);
SELECT job_idem.define_job('often', 'keyed', schedule => '*/3 * * * *', run_per => 'fire', misfire => 'skip');
SELECT job_idem.define_job('list', schedule => '1,2,50-59 * * * *', run_per => 'fire', misfire => 'expire', valid_for => '20 minutes');
SELECT job_idem.define_job('source', schedule => '*/5 * * * *', run_per => 'fire', misfire => 'catch_up',
	item_source => 'SELECT i::text FROM pg_catalog.generate_series(1, 3) AS i');
SELECT job_idem.define_job('serial', 'keyed', schedule => '*/2 * * * *', run_per => 'fire', misfire => 'catch_up', overlap => 'wait');
SELECT job_idem.define_job('single', 'keyed', schedule => '*/7 * * * *', run_per => 'fire', misfire => 'catch_up', overlap => 'skip');
SELECT job_idem.define_job('other zone', 'keyed', schedule => '0,15,45 * * * *', timezone => 'Asia/Kathmandu', run_per => 'fire');
SQL

sub new_tick { return session($cluster, options => '-c client_min_messages=error -c job_idem.clock_freeze=2026-11-30T00:00:30Z'); }

# A session at work on the minutes from $first to $last, one after the other.
sub start_ticks
{
	my ($session, $first, $last) = @_;

	$session->start_query(join '; ',
		map { 'SET job_idem.clock_offset = ' . ($_ * 60 + int(rand 60)) . '; CALL job_idem.tick()' } $first .. $last);
	return;
}

# Ticks of eight sessions over some minutes. One of them is stopped with a plan half written, and is ended there; the others
# go on.
sub stretch
{
	my ($first, $last, $end) = @_;
	my $gate = session($cluster);
	my $victim = new_tick();
	my @others;

	$gate->query('SELECT pg_advisory_lock(35)');
	$victim->query("SET job_idem.fault_point = 'plan:wait:35'");
	start_ticks($victim, $last, $last);
	$victim->wait_blocked;
	@others = map { new_tick() } 1 .. 7;
	start_ticks($_, $first, $last) for @others;
	$end->($victim);
	$gate->query_error('SELECT pg_advisory_unlock(35)');
	$_->finish_error for @others;
	poll_until($cluster, 'SELECT NOT pg_is_in_recovery()', 60);
	$_->kill9 for @others, $victim, $gate;
	return;
}

sub hint
{
	my ($to) = @_;

	return $cluster->safe_psql('postgres', "UPDATE job_idem.job SET planned_to = $to");
}

stretch(1, 15, sub { $_[0]->kill9; });
hint('NULL');
stretch(16, 30, sub { $_[0]->terminate; $_[0]->finish_error; });
hint("'2099-01-01'");
stretch(31, 45, sub { $_[0]->kill9_backend; $_[0]->finish_error; });
# the same time again, and then to the end, without the hint and in peace
my @last = map { new_tick() } 1 .. 8;
start_ticks($_, 40, $minutes - 1) for @last;
$_->finish for @last;
hint('NULL');
$last[0]->query("SET job_idem.clock_offset = 3600; CALL job_idem.tick()") for 1 .. 10;

is($cluster->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT (job_id, run_key)), count(*) > 100 FROM job_idem.run'), '0|t',
	'no run key twice');
$cluster->safe_psql('postgres', <<"SQL");
CREATE VIEW due AS SELECT job, to_char(f AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS run_key
FROM job, job_idem.cron_fires(schedule, '$from', timestamptz '$from' + interval '$minutes minutes',
	CASE job WHEN 'other zone' THEN 'Asia/Kathmandu' ELSE 'UTC' END) AS f;
CREATE VIEW planned AS SELECT job, run_key FROM job_idem.runs;
SQL
is($cluster->safe_psql('postgres', '(TABLE due EXCEPT TABLE planned)'), '', 'every fire has its row');
is($cluster->safe_psql('postgres', '(TABLE planned EXCEPT TABLE due)'), '', 'and nothing else has');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.runs WHERE job IN ('every', 'source', 'serial')"
	  . " AND state IN ('skipped', 'expired')"), 0, 'catch_up gives up none');
is($cluster->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE n_items = 3 AND sealed_at IS NOT NULL) FROM job_idem.runs"
	  . " WHERE job = 'source'"), '12|12', 'each run is loaded, once');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM job_idem.runs WHERE job IN ('serial', 'single') AND state = 'running'"), 2,
	'one run at a time where runs must not overlap');
is($cluster->safe_psql('postgres', 'SELECT count(*) FROM job_idem.event WHERE verb IN (\'open_run\', \'skip_run\', \'expire_run\')'),
	$cluster->safe_psql('postgres', 'SELECT count(*) FROM job_idem.run'), 'each row was written once, on record');
is($cluster->safe_psql('postgres', 'SELECT count(*) FROM job_idem.runs r, job_idem.audit(r.run_id)'), 0, 'audit is empty');
is($cluster->safe_psql('postgres', 'SELECT count(*) FROM job_idem.job WHERE planned_to IS NULL'), 0, 'the hint is there again');

$cluster->stop;
done_testing();
