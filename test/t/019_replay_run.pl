# "Retry all" queues nothing twice: every item of a run fails for good, at once and each time, while several workers are at
# it and operators replay the whole run again and again, in turns, one of them killed.
#
# The first replay_run crashes half-way, with the items moved and the letters not: nothing is moved. The next is half-way
# when items that were replayed before die again: it replays what was open at its start and leaves the new letters to the
# one that waits behind it. One is terminated half-way under load, and the one behind it replays all. In the end every letter
# but an item's last was replayed once, every item was tried once for each of its letters, and what was done at first was not
# touched. With the last letter discarded the run is done.
# R9, C09, K65.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $n = scaled(500, 5000);
my $cluster = new_cluster('main');
my $run = batch_job($cluster, 'replayed', $n + 20, 'batch_size => 50');

sub value { return $cluster->safe_psql('postgres', shift); }

value(<<'SQL');
CREATE TABLE try (item_key text, token bigint);
CREATE TABLE stop ();
CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	keys text[];
BEGIN
	LOOP
		SELECT max(c.token), array_agg(c.item_key) INTO t, keys FROM job_idem.claim_items('replayed') c;
		COMMIT;
		IF t IS NULL THEN
			EXIT WHEN EXISTS (SELECT FROM stop);
			CONTINUE;
		END IF;
		INSERT INTO try SELECT k, t FROM unnest(keys) AS k;
		PERFORM job_idem.mark_failed_many(t, keys, error_classes => array_fill('Again'::text, ARRAY[cardinality(keys)]));
		COMMIT;
	END LOOP;
END
$$;
SQL
sub letters { return value("SELECT count(*) FROM job_idem.dead_letters WHERE run_id = $run AND $_[0]"); }
sub all_died
{
	return poll_until($cluster, "SELECT count(*) FROM job_idem.dead_letters WHERE run_id = $run AND status = 'open'", 120, $n);
}

# at first 20 items are done, the others die: every other one of another class
my $first = session($cluster);
while (my ($token, @keys) = claim($first, 'replayed'))
{
	my @bad = grep { substr($_, 1) <= $n } @keys;
	my $bad = join ',', map { "'$_'" } @bad;
	my $classes = join ',', map { substr($_, 1) % 2 ? "'Left'" : "'Right'" } @bad;

	$first->query("INSERT INTO try SELECT k, $token FROM unnest(ARRAY['" . join("','", @keys) . "']) AS k");
	$first->query("SELECT FROM job_idem.mark_failed_many($token, ARRAY[$bad], error_classes => ARRAY[$classes])") if @bad;
	$first->query("SELECT job_idem.mark_all_done($token, " . (@keys - @bad) . ", ARRAY[$bad]::text[])") if @bad < @keys;
}
tick($cluster);
is(letters("status = 'open'"), $n, 'the dead letters');
is(value("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), 'partial|20', 'the run is partial');

my $gate = session($cluster);
sub operator
{
	my ($stopped) = @_;
	my $session = session($cluster);

	$session->query("SET job_idem.fault_point = 'replay_run:wait:19'") if $stopped;
	$session->start_query("SELECT job_idem.replay_run($run)");
	$session->wait_blocked;
	return $session;
}

# a crash half-way
$gate->query('SELECT pg_advisory_lock(19)');
my $crashed = operator(1);
$crashed->kill9_backend;
isnt($crashed->finish_error, '', 'crash: the call is lost');
poll_until($cluster, 'SELECT NOT pg_is_in_recovery()', 60);
is(letters("status = 'open'"), $n, 'crash: every letter is open still');
is(value("SELECT count(*) FROM job_idem.items WHERE run_id = $run AND state = 'dead'"), $n, 'crash: and every item dead');
is(value("SELECT state FROM job_idem.runs WHERE run_id = $run"), 'partial', 'crash: the run is partial');
audit_empty($cluster, $run, 'crash: audit is empty');

# half of them are replayed, and die again while another call is at the other half
my $replayed = value("SELECT job_idem.replay_run($run, 'Left')");
is($replayed, $n / 2, 'one half is replayed');
$gate = session($cluster);
$gate->query('SELECT pg_advisory_lock(19)');
my $second = operator(1);
my $third = operator(0);
my @workers = map { session($cluster) } 1 .. scaled(3, 8);
$_->start_query('CALL work()') for @workers;
poll_until($cluster, "SELECT count(*) FROM job_idem.dead_letters WHERE run_id = $run AND error_class = 'Again'", 60, $n / 2);
$gate->query('SELECT pg_advisory_unlock(19)');
is($second->finish, $n / 2, 'the call under way replays what was open at its start');
my $rest = $third->finish;
cmp_ok($rest, '>=', $n / 2, 'the call behind it those that died meanwhile');
is(letters("status = 'replayed'"), $n + $rest, 'each was replayed by one call');
is(letters("status <> 'replayed' AND error_class <> 'Again'"), 0, 'none of the old ones is left');

# one is ended half-way, under load; another has everything
all_died();
$gate->query('SELECT pg_advisory_lock(19)');
my $ended = operator(1);
my $last = operator(0);
$ended->terminate;
isnt($ended->finish_error, '', 'one is ended half-way');
is($last->finish, $n, 'the one behind it replays all');
$gate->query('SELECT pg_advisory_unlock(19)');

all_died();
value('INSERT INTO stop DEFAULT VALUES');
$_->finish for @workers;
my $total = 2 * $n + $rest;
is(letters("status = 'replayed'"), $total, 'replayed in all');
is(value("SELECT sum((detail->>'count')::bigint) FROM job_idem.event WHERE run_id = $run AND verb = 'replay_run'"), $total,
	'as the events say');
is(value("SELECT count(*) FROM (SELECT item_key FROM job_idem.dead_letters WHERE run_id = $run GROUP BY item_key"
	  . " HAVING (array_agg(status ORDER BY dead_letter_id DESC))[1] = 'open' AND count(*) FILTER (WHERE status = 'open') = 1) AS l"),
	$n, 'the last letter of each is open, all before it are replayed');
is(value("SELECT count(*) FROM (SELECT item_key, count(*) AS n FROM try GROUP BY 1) t"
	  . " LEFT JOIN (SELECT item_key, count(*) AS n FROM job_idem.dead_letters WHERE run_id = $run GROUP BY 1) l USING (item_key)"
	  . ' WHERE t.n <> coalesce(l.n, 1)'), 0, 'each item was tried once for each of its letters, and those that are done once');
audit_empty($cluster, $run, 'audit is empty');

# discarded for good
tick($cluster);
is(value("SELECT count(job_idem.discard(dead_letter_id, 'written off')) FROM (SELECT dead_letter_id FROM job_idem.dead_letters"
	  . " WHERE run_id = $run AND status = 'open' ORDER BY 1 LIMIT $n - 1) AS l"), $n - 1, 'all but one discarded');
is(value("SELECT state, n_dead FROM job_idem.runs WHERE run_id = $run"), 'partial|1', 'partial, with one left');
value("SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE run_id = $run AND status = 'open'");
is(value("SELECT state, n_done, n_dead FROM job_idem.runs WHERE run_id = $run"), 'done|20|0', 'the last one discarded: done');
is(value("SELECT job_idem.replay_run($run)"), 0, 'and nothing is left to replay');
audit_empty($cluster, $run, 'in the end: audit is empty');

$cluster->stop;
done_testing();
