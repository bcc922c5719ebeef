# An immediate stop of the server in the middle of what is done in bulk: afterwards each part is there whole or not at all,
# and the next call goes on.
#
# During load, between load and seal, and inside seal: the run is loading with the committed parts, the same add_items
# again counts what is known, and nothing was claimable before the seal. In the middle of 1,000 overdue leases: each item
# is moved once, with `attempts` and `lost` right. Before and after the commit of finish: state and event are there
# together or not at all. Between the steps of the fold: the sums are right.
# K08, K51, K67.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);

sub stop_and_start
{
	$cluster->stop('immediate');
	$cluster->start;
	return;
}

sub value { return $cluster->safe_psql('postgres', shift); }

# A list of keys, as SQL.
sub keys_from { my ($from, $to) = @_; return "ARRAY(SELECT 'k' || i FROM generate_series($from, $to) AS i ORDER BY i)"; }

# --- load and seal
value("SELECT FROM job_idem.define_job('load', batch_size => 10)");
my $run = value("SELECT run_id FROM job_idem.open_run('load', '$DATE')");
value("SELECT FROM job_idem.add_items($run, " . keys_from(1, 100) . ')');
my $loader = session($cluster);
$loader->query('BEGIN');
is($loader->query("SELECT * FROM job_idem.add_items($run, " . keys_from(81, 200) . ')'), '100|20', 'the second part');
my $worker = session($cluster);
is(scalar(my @before = claim($worker, 'load')), 0, 'nothing is claimable while it is loaded');
stop_and_start();
is(value("SELECT state, n_items FROM job_idem.runs WHERE run_id = $run"), 'loading|100', 'stopped during load: the first part is there');
is(value("SELECT * FROM job_idem.add_items($run, " . keys_from(81, 200) . ')'), '100|20', 'the second part again: what is known counts as known');
stop_and_start();
is(value("SELECT * FROM job_idem.add_items($run, " . keys_from(81, 200) . ')'), '0|120', 'and again, between load and seal: all of it is known');
is(value("SELECT min(item_no), max(item_no), count(*) FROM job_idem.items WHERE run_id = $run"), '1|200|200', 'numbers have no hole');

my $gate = session($cluster);
$gate->query('SELECT pg_advisory_lock(1)');
$loader = session($cluster);
$loader->start_query("SET job_idem.fault_point = 'seal_run:wait:1'; SELECT * FROM job_idem.seal_run($run)");
$loader->wait_blocked(20);
$worker = session($cluster);
is(scalar(@before = claim($worker, 'load')), 0, 'nothing is claimable while it is sealed');
stop_and_start();
is(value("SELECT state, n_items, n_slices FROM job_idem.runs WHERE run_id = $run"), 'loading|200|0', 'stopped inside seal: loading still');
is(value('SELECT count(*) FROM job_idem.leases'), 0, 'nobody has claimed anything');
is(value("SELECT * FROM job_idem.seal_run($run)"), '200|20', 'sealed');
$worker = session($cluster);
is(drain($worker, 'load'), 200, 'then all of it is worked');
is(value("SELECT state FROM job_idem.runs WHERE run_id = $run"), 'done', 'and the run ends');
ledger_right($cluster, $run, 200, 'load');
value('TRUNCATE ledger');

# --- expiry
my $n = 1000;
$run = batch_job($cluster, 'overdue', $n, 'batch_size => 1');
value("SET synchronous_commit = off; DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM job_idem.claim_items('overdue'); COMMIT; END LOOP; END \$\$;");
is(value("SELECT count(*) FROM job_idem.leases WHERE run_id = $run AND outcome = 'open'"), $n, "$n leases");
# nothing of ours ever locks an item without its lease; this stops the tick where nothing else would
my $blocker = session($cluster);
$blocker->query("BEGIN; SELECT FROM job_idem.item WHERE run_id = $run AND item_no = 520 FOR UPDATE");
my $ticker = session($cluster, options => '-c job_idem.clock_offset=400');
$ticker->start_query('CALL job_idem.tick()');
$ticker->wait_blocked(60);
stop_and_start();
my $consistent = <<"SQL";
SELECT count(*) FILTER (WHERE outcome = 'open') > 0, count(*) FILTER (WHERE outcome = 'expired') > 0,
	count(*) FILTER (WHERE (outcome = 'expired') <> (i.state = 'waiting' AND i.lost = 1 AND i.attempts = 1)),
	count(*) FILTER (WHERE (outcome = 'open') <> (i.state = 'pending' AND i.lost = 0 AND i.attempts = 0)),
	count(*) FILTER (WHERE outcome = 'expired') = (SELECT count(*) FROM job_idem.failure WHERE run_id = $run)
FROM job_idem.lease l JOIN job_idem.item i ON i.run_id = l.run_id AND i.item_no = l.slice_no + 1 WHERE l.run_id = $run
SQL
is(value($consistent), 't|t|0|0|t', 'stopped in the middle of expiry: each lease and its item moved together, or not');
audit_empty($cluster, $run, 'stopped in the middle of expiry: audit is empty');
tick($cluster, 400);
is(value($consistent), 'f|t|0|0|t', 'the next tick moves the rest, and nothing twice');
is(value("SELECT DISTINCT kind, attempt FROM job_idem.failure WHERE run_id = $run"), 'lost|1', 'each failure is a loss');
audit_empty($cluster, $run, 'after expiry: audit is empty');
value("SELECT job_idem.cancel_run($run, 'enough')");

# --- finish
sub finish_state
{
	my ($of) = @_;

	return value("SELECT r.state, r.finished_at IS NOT NULL, r.n_done, (SELECT count(*) FROM job_idem.event e"
		  . " WHERE e.run_id = r.run_id AND verb = 'finish') FROM job_idem.run r WHERE run_id = $of");
}

for my $way ('tick', 'idle claim')
{
	$run = batch_job($cluster, "finish by $way", 20, 'batch_size => 10');
	$worker = session($cluster);
	work_on($worker, claim($worker, "finish by $way")) for 1 .. 2;
	is(finish_state($run), 'running|f||0', "$way: all is done but the end");
	$gate = session($cluster);
	$gate->query('SELECT pg_advisory_lock(1)');
	my $last = session($cluster);
	$last->start_query("SET job_idem.fault_point = 'finish:wait:1'; "
		  . ($way eq 'tick' ? 'CALL job_idem.tick()' : "SELECT * FROM job_idem.claim_items('finish by $way')"));
	$last->wait_blocked(20);
	stop_and_start();
	is(finish_state($run), 'running|f||0', "$way: stopped before the commit of finish: nothing of it is there");
	tick($cluster);
	is(finish_state($run), 'done|t|20|1', "$way: the next tick finishes it");
	stop_and_start();
	is(finish_state($run), 'done|t|20|1', "$way: stopped after the commit: all of it is there");
	tick($cluster);
	is(finish_state($run), 'done|t|20|1', "$way: and it ends once");
	ledger_right($cluster, $run, 20, "finish by $way");
	value('TRUNCATE ledger');
}

# --- fold, in steps of 20,000 slices
$n = scaled(21_000, 1_000_000);
$run = batch_job($cluster, 'fold', $n, 'batch_size => 1');
value(<<"SQL");
SET synchronous_commit = off;
DO \$\$
DECLARE
	t bigint;
BEGIN
	FOR i IN 1 .. $n LOOP
		SELECT token INTO t FROM job_idem.claim_items('fold');
		IF i % 100 = 0 THEN
			PERFORM job_idem.postpone(t, 'k' || i, '1 hour');
		ELSIF i % 101 = 0 THEN
			PERFORM job_idem.mark_failed(t, 'k' || i, 'bad', '23514');
		ELSE
			PERFORM job_idem.mark_all_done(t, 1);
		END IF;
		IF i % 50 = 0 THEN COMMIT; END IF;
	END LOOP;
END
\$\$;
SQL
my $postponed = int($n / 100);
my $failed = int($n / 101) - int($n / 10_100);
my $sums = "SELECT folded, n_done, n_failed FROM job_idem.tally WHERE run_id = $run";
is(value($sums), '-1|0|0', 'fold: nothing is counted before somebody looks');
for my $step (1 .. $n / 20_000 + 1)
{
	tick($cluster);
	stop_and_start();
	my $seen = $step * 20_000 < $n ? $step * 20_000 : $n;
	is(value($sums), join('|', $seen - 1, value(
			"SELECT count(*) FILTER (WHERE i % 100 <> 0 AND i % 101 <> 0), count(*) FILTER (WHERE i % 100 <> 0 AND i % 101 = 0)"
			  . " FROM generate_series(1, $seen) AS i")), "fold: step $step is counted once");
}
tick($cluster);
is(value($sums), join('|', $n - 1, $n - $postponed - $failed, $failed), 'fold: the sums are right');
value("LOAD 'job_idem'; SET job_idem.clock_offset = 4000; DO \$\$ DECLARE t bigint; n bigint; BEGIN LOOP SELECT max(token), count(*) INTO t, n FROM job_idem.claim_items('fold'); EXIT WHEN n = 0;"
	  . ' PERFORM job_idem.mark_all_done(t, n); COMMIT; END LOOP; END $$');
tick($cluster);
is(value("SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = $run"), join('|', 'partial', $n - $failed, $failed),
	'fold: the run ends with the right numbers');
audit_empty($cluster, $run, 'fold: audit is empty');

$cluster->stop;
done_testing();
