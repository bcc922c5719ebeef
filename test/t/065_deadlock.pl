# No deadlocks: verbs take their locks in one order, or only try for them.
#
# Sixteen clients call every verb that there is, in transactions of up to five calls, with shuffled key lists, each on
# leases of its own: claims of slices, of due items and of new keys, completion one by one, in sets and whole, failure,
# postponement, release, steps, holds and heartbeats, expiry by ticks, idle claims and operators, adding of known and new keys,
# loading, sealing, cancelling, replay of one and of all, discard, redefinition and pause. Every pair of verbs meets, with the
# transaction of the one open while the other is called. At the end there is no 40P01 in the server's log, no statement
# has waited for a lock for more than 20 s, and audit() finds nothing in any run. That the log would tell is shown
# first, with the one deadlock that is lawful: two calls each of two threads of one lease, in opposite order. Two
# cases that chance seldom meets are played: keys that are claimed and added crosswise, and sets with foreign keys.
#
# Proves: P11, C15; K33, and K27 and K28 for sets, at the beginning; K20 under load.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use JobIdem;
use Stress;

my $seed = seed();
my $cluster = new_cluster('main', conf => "max_connections = 60\nsynchronous_commit = off\ndeadlock_timeout = 50ms\n");
plan skip_all => 'psycopg is not installed' unless has_psycopg($cluster);

sub deadlocks
{
	my @found = slurp_file($cluster->logfile) =~ /deadlock detected/g;

	return scalar @found;
}

$cluster->safe_psql('postgres', q{
	DO $$ BEGIN
		PERFORM job_idem.define_job('threads', batch_size => 2);
		PERFORM job_idem.add_items((SELECT run_id FROM job_idem.open_run('threads', '2026-01-01')), '{a,b}');
		PERFORM job_idem.seal_run(run_id) FROM job_idem.runs;
		PERFORM job_idem.define_job('batch', batch_size => 10, lease => '100 ms', max_attempts => 2,
			backoff_base => '1 ms', backoff_max => '5 ms', close_after => '100 years');
		PERFORM job_idem.open_run('batch', '2026-01-01', 'main');
		PERFORM job_idem.define_job('keyed', kind => 'keyed', batch_size => 5, lease => '100 ms',
			backoff_base => '1 ms', backoff_max => '5 ms', close_after => '100 years');
		PERFORM job_idem.open_run('keyed', '2026-01-01');
	END $$;
	DO $$ BEGIN
		PERFORM job_idem.add_items(run_id, (SELECT array_agg('k' || i) FROM generate_series(1, 200) i)),
			job_idem.seal_run(run_id) FROM job_idem.runs WHERE run_key = 'main';
	END $$;
	-- one item is never due, so that the run goes on
	SELECT job_idem.postpone(token, item_key, '1 year'), job_idem.release(token)
	FROM (SELECT token, item_key FROM job_idem.claim_items('batch') LIMIT 1) c;
});

my ($one, $two) = map { session($cluster) } 1, 2;
my $token = $one->query("SELECT token FROM job_idem.claim_items('threads') LIMIT 1");
$one->query("BEGIN; SELECT job_idem.mark_done($token, 'a')");
$two->query("BEGIN; SELECT job_idem.mark_done($token, 'b')");
$one->start_query("SELECT job_idem.mark_done($token, 'b')");
$one->wait_blocked;
$two->start_query("SELECT job_idem.mark_done($token, 'a')");
my @answers = sort map { $_->finish_error } $one, $two;
is("@answers", ' 40P01', 'two calls each in opposite order, on one lease: a deadlock, of which one survives');
is(deadlocks(), 1, 'and the log tells');
$_->query('ROLLBACK') for $one, $two;

# keys claimed and keys added in opposite order: who claims does not wait
my $keyed = $one->query("SELECT run_id FROM job_idem.runs WHERE job = 'keyed'");
my $claim = "SELECT outcome FROM job_idem.claim_item('keyed', '2026-01-01', ";
is($one->query("BEGIN; $claim 'x')"), 'claimed', 'a new key is claimed');
$two->start_query("SELECT * FROM job_idem.add_items($keyed, '{y,x}')");
$two->wait_blocked;
like($one->query("SET lock_timeout = '10s'; $claim 'y')"), qr/^(busy|claimed)$/,
	'one that is just being added behind it does not make the claim wait');
$one->query('COMMIT');
like($two->finish, qr/^(1\|1|0\|2)$/, 'then both are there');

# a set of a stale worker, or with a key of another lease: refused, without waiting for who works on that key
$one->query("SELECT job_idem.expire_lease($token, 'test')");
my ($held) = $two->query("SET job_idem.clock_offset = 86400;
	SELECT token FROM job_idem.claim_item('threads', '2026-01-01', 'a')");
my ($other) = $one->query("SET job_idem.clock_offset = 86400;
	SELECT token FROM job_idem.claim_item('threads', '2026-01-01', 'b')");
$two->query("BEGIN; SELECT job_idem.mark_done($held, 'a')");
is($one->query_error("SELECT job_idem.mark_done_many($token, '{b,a}')"), 'JI001', 'a stale set is refused at once');
is($one->query_error("SELECT job_idem.mark_done_many($other, '{b,a}')"), 'JI001', 'and one with a foreign key');
$two->query('COMMIT');
$_->quit for $one, $two;

my $program = program($cluster, $JobIdem::PYTHON, '-B', "$FindBin::RealBin/../lib/deadlock.py",
	JSON::PP->new->encode({ seed => $seed, workers => 16, seconds => scaled(25, 600), keys => 3, lock_timeout => '20s' }));
is($program->wait(3600), 0, 'no call ended in an error that its verb does not announce') or diag($program->errors);
my $happened = JSON::PP::decode_json($program->output);
note($program->output);
is(deadlocks(), 1, 'no deadlock among the verbs');
is(join(', ', @{ $happened->{never_met} }), '', 'every pair of verbs has met');
is(join(', ', grep { $happened->{calls}{$_} < 10 } keys %{ $happened->{calls} }), '', 'every verb went through');

$cluster->safe_psql('postgres', 'CALL job_idem.tick()');
is($cluster->safe_psql('postgres', 'SELECT a.* FROM job_idem.runs r, job_idem.audit(r.run_id) a LIMIT 3'),
	'', 'no invariant is broken in any run');
is($cluster->safe_psql('postgres', "SELECT count(DISTINCT outcome) FROM job_idem.lease WHERE outcome <> 'open'"),
	3, 'leases were completed, released and expired');
cmp_ok($cluster->safe_psql('postgres', "SELECT count(DISTINCT status) FROM job_idem.dead_letter"),
	'>=', 2, 'dead letters were resolved');

$cluster->stop;
done_testing();
