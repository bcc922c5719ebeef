# A worker, a loader or a tick may end at any step inside the verbs, with any number of others beside it: the ledger is
# the same.
#
# One session is stopped at each fault point in turn while 0, 2 or 9 other workers and as many ticks go on, and is then
# ended: its client is killed, its backend is terminated or crashes, or the server is stopped at once. Then everybody
# comes again until nothing is left. Workers complete in whole, singly and in sets, report failures and give back. One
# item fails for good.
# F24, K08, K16, K51, K67.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);

# A worker inside the server: each claim, each failure and each set of effects in a transaction of its own. All draw the
# way of completion from one sequence: a worker that began each call with the same way could fail one item again and
# again until it is dead.
$cluster->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE way;
CREATE PROCEDURE work(job text) LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	keys text[];
	bad text[];
	k text;
BEGIN
	LOOP
		SELECT max(c.token), array_agg(c.item_key) INTO t, keys FROM job_idem.claim_items(job) c;
		COMMIT;
		EXIT WHEN t IS NULL;
		bad := '{}';
		IF 'k5' = ANY (keys) THEN
			PERFORM job_idem.mark_failed(t, 'k5', 'no such account', '23514');
			COMMIT;
			bad := '{k5}';
			keys := array_remove(keys, 'k5');
			CONTINUE WHEN keys = '{}';
		END IF;
		CASE nextval('way') % 4
			WHEN 0 THEN
				INSERT INTO ledger (item_key, token) SELECT x, t FROM unnest(keys) AS x;
				PERFORM job_idem.mark_all_done(t, cardinality(keys), bad);
			WHEN 1 THEN
				FOREACH k IN ARRAY keys LOOP
					INSERT INTO ledger (item_key, token) VALUES (k, t);
					PERFORM job_idem.mark_done(t, k);
					COMMIT;
				END LOOP;
			WHEN 2 THEN
				PERFORM job_idem.mark_failed(t, keys[1], 'come again', '40001');
				COMMIT;
				INSERT INTO ledger (item_key, token) SELECT x, t FROM unnest(keys[2:]) AS x;
				PERFORM job_idem.mark_done_many(t, keys[2:]);
			WHEN 3 THEN
				IF random() < 0.5 THEN
					INSERT INTO ledger (item_key, token) VALUES (keys[1], t);
					PERFORM job_idem.mark_done(t, keys[1]);
				END IF;
				PERFORM job_idem.release(t);
		END CASE;
		COMMIT;
	END LOOP;
END
$$;
CREATE PROCEDURE load(job text) LANGUAGE plpgsql AS $$
DECLARE
	r bigint;
BEGIN
	SELECT run_id INTO r FROM job_idem.open_run(job, '2026-11-30');
	COMMIT;
	FOR part IN 0 .. 2 LOOP
		PERFORM job_idem.add_items(r, ARRAY(SELECT 'k' || i FROM generate_series(part * 8 + 1, part * 8 + 10) AS i ORDER BY i));
		COMMIT;
	END LOOP;
	PERFORM job_idem.seal_run(r);
END
$$;
SQL

my %ends = (
	'client killed' => sub { $_[0]->kill9; },
	'terminated' => sub { $_[0]->terminate; $_[0]->finish_error; },
	'crashed' => sub { $_[0]->kill9_backend; $_[0]->finish_error; },
	'immediate stop' => sub { $cluster->stop('immediate'); $cluster->start; $_[0]->finish_error; });

# Who gets to which step.
my %steps = (
	add_items => 'load', seal_run => 'load', claim => 'work', mark_done => 'work', mark_all_done => 'work',
	mark_failed => 'work', release => 'work', expire_found => 'tick', expire => 'tick', finish => 'work');
my $number = 0;
my $reference;

sub up
{
	return poll_until($cluster, 'SELECT NOT pg_is_in_recovery()', 60);
}

# Everybody comes until the run has ended; the clock goes on.
sub finish
{
	my ($job, $n, $load) = @_;
	my $state = '';

	for my $round (1 .. 30)
	{
		my $clock = 400 * $round;
		my @all = map { session($cluster, options => "-c job_idem.clock_offset=$clock") } 1 .. ($n > 3 ? 3 : $n);

		$all[0]->query("CALL load('$job')") if $round == 1 && $load;
		$_->start_query("CALL work('$job'); CALL job_idem.tick()") for @all;
		$_->finish for @all;
		$state = $all[0]->query("SELECT state FROM job_idem.runs WHERE job = '$job'");
		$_->quit for @all;
		last if $state eq 'partial';
	}
	return $state;
}

sub stop_at
{
	my ($step, $end, $n) = @_;
	my $job = 'job ' . ++$number;
	my $name = "$step, $end, $n";
	my $key = 1000 + $number;
	my $gate = session($cluster);
	my $victim = session($cluster, options => '-c job_idem.clock_offset=200');
	my $who = $steps{$step};
	my @others;

	$gate->query("SELECT job_idem.define_job('$job', batch_size => 4, max_attempts => 20, lease => '1 min')");
	if ($who ne 'load')
	{
		$gate->query("CALL load('$job')");
		# somebody else's work in hand, overdue by the victim's clock
		$gate->query("SELECT * FROM job_idem.claim_items('$job')");
	}
	$gate->query("SELECT pg_advisory_lock($key)");

	$victim->query("SET job_idem.fault_point = '$step:wait:$key'");
	# a worker meets every way of completion within four claims, and the end of the run in the end
	$victim->start_query($who eq 'load' ? "CALL load('$job')"
		: $who eq 'tick' ? 'CALL job_idem.tick()'
		: join ';', map { "SET job_idem.clock_offset = ${_}00; CALL work('$job')" } 2 .. 300);
	$victim->wait_blocked(120);
	@others = map { session($cluster, options => '-c job_idem.clock_offset=100') } 2 .. $n;
	$_->start_query("CALL work('$job'); CALL job_idem.tick()") for @others;

	$ends{$end}->($victim);
	up();
	$gate->kill9;
	$_->finish_error for @others;
	$_->kill9 for @others;

	is(finish($job, $n, $who eq 'load'), 'partial', "$name: the run ends");
	my $run = run_of($cluster, $job);
	ledger_right($cluster, $run, 25, "$name: ledger");
	my $hash = ledger_hash($cluster);
	$reference ||= $hash;
	is($hash, $reference, "$name: the same ledger");
	$cluster->safe_psql('postgres', 'TRUNCATE ledger');
	return;
}

my @ends = sort keys %ends;
my $turn = 0;
for my $step (sort keys %steps)
{
	# one end and one number of workers for each step, all of them in a soak
	if (soak())
	{
		for my $end (@ends) { stop_at($step, $end, $_) for 1, 3, 10; }
	}
	else
	{
		stop_at($step, $ends[ $turn % 4 ], (1, 3, 10)[ $turn % 3 ]);
		$turn++;
	}
}

$cluster->stop;
done_testing();
