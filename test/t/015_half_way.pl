# A run that was stopped half-way is finished, not repeated; a deploy loses nothing; and at most once is to be had.
#
# 30,000 items, every worker killed when 5,000 are done: the rest, and nothing else, is done afterwards. Five workers
# restarted in turn, each giving back what it has in hand: every item done once, no try counted, no lease waited for. With
# max_attempts 1 and slices of one, claimed in a transaction before the act, whose effect is outside the database's
# protection: no effect happens twice, however the workers crash, and every miss is a dead letter.
# F4, F21, F25.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);

sub value { return $cluster->safe_psql('postgres', shift); }

# Workers inside the server: so many batches, each claim and each completion committed; the last one stays uncommitted.
value(<<'SQL');
CREATE PROCEDURE work(job text, batches integer DEFAULT NULL, gate bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	keys text[];
	n integer := 0;
BEGIN
	LOOP
		SELECT max(c.token), array_agg(c.item_key) INTO t, keys FROM job_idem.claim_items(job) c;
		COMMIT;
		EXIT WHEN t IS NULL;
		INSERT INTO ledger (item_key, token) SELECT k, t FROM unnest(keys) AS k;
		PERFORM job_idem.mark_all_done(t, cardinality(keys));
		n := n + 1;
		IF n > batches THEN PERFORM pg_advisory_xact_lock_shared(gate); END IF;
		COMMIT;
	END LOOP;
END
$$;
SQL

# --- half-way
my $n = 30_000;
my $run = batch_job($cluster, 'half-way', $n, 'batch_size => 100');
my $gate = session($cluster);
$gate->query('SELECT pg_advisory_lock(1)');
my @workers = map { session($cluster) } 1 .. 5;
$_->start_query("CALL work('half-way', 10, 1)") for @workers;
poll_until($cluster, "SELECT count(*) = 5 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 60);
is(value("SELECT count(*) FROM job_idem.items WHERE run_id = $run AND state = 'done'"), 5000, 'half-way: 5,000 are done');
$_->kill9 for @workers;
# the backends find out when they talk to their clients; until then they could still commit
value('SELECT pg_terminate_backend(' . $_->pid . ', 10000)') for @workers;
$gate->quit;
is(value('SELECT count(*), count(DISTINCT item_key) FROM ledger'), '5000|5000', 'half-way: and written');

my $before = value('SELECT max(entry) FROM ledger');
@workers = map { session($cluster) } 1 .. 2;
$_->start_query("CALL work('half-way')") for @workers;
$_->finish for @workers;
is(value("SELECT count(*) FROM ledger WHERE entry > $before"), 24_500, 'half-way: then all that nobody holds');
tick($cluster, 400);
$workers[0]->query("SET job_idem.clock_offset = 800; CALL work('half-way')");
tick($cluster, 800);
is(value("SELECT count(*) FROM ledger WHERE entry > $before"), 25_000, 'half-way: and what the dead had');
is(value("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), "done|$n", 'half-way: the run is done');
ledger_right($cluster, $run, $n, 'half-way');
value('TRUNCATE ledger');
$_->quit for @workers;

# --- a rolling deploy
$run = batch_job($cluster, 'deploy', 500, 'batch_size => 20');
sub new_worker
{
	my $worker = session($cluster);

	($worker->{token}, @{ $worker->{keys} }) = claim($worker, 'deploy');
	return $worker;
}
sub some_work
{
	my ($worker, $part) = @_;

	for my $key (splice @{ $worker->{keys} }, 0, $part)
	{
		$worker->query('BEGIN; ' . write_items($worker->{token}, $key) . "SELECT job_idem.mark_done($worker->{token}, '$key'); COMMIT");
	}
	return;
}
@workers = map { new_worker() } 1 .. 5;
for my $turn (0 .. 4)
{
	some_work($_, 3) for @workers;
	my $old = $workers[$turn];
	is($old->query("SELECT job_idem.release($old->{token})"), scalar @{ $old->{keys} }, "deploy: worker $turn gives back the rest");
	$old->quit;
	$workers[$turn] = new_worker();
	cmp_ok(scalar @{ $workers[$turn]{keys} }, '>', 0, "deploy: the new worker $turn has something at once");
}
for my $worker (@workers)
{
	some_work($worker, 100);
	drain($worker, 'deploy');
}
$_->quit for @workers;
tick($cluster);
is(value("SELECT state, n_done FROM job_idem.runs WHERE run_id = $run"), 'done|500', 'deploy: the run is done, no clock was moved');
is(value("SELECT max(attempts), max(lost) FROM job_idem.items WHERE run_id = $run"), '0|0', 'deploy: no try counted, nothing lost');
is(value("SELECT count(*) FROM job_idem.leases WHERE run_id = $run AND outcome = 'expired'"), 0, 'deploy: no lease ran out');
ledger_right($cluster, $run, 500, 'deploy');
value('TRUNCATE ledger');

# --- at most once: the effect commits by itself, between the claim and the mark
$n = scaled(300, 1000);
$run = batch_job($cluster, 'at most once', $n, 'batch_size => 1, max_attempts => 1');
value(<<'SQL');
CREATE TABLE claims (n bigserial, token bigint);
CREATE PROCEDURE once(job text) LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	k text;
	n bigint;
BEGIN
	LOOP
		SELECT token, item_key INTO t, k FROM job_idem.claim_items(job);
		EXIT WHEN t IS NULL;
		INSERT INTO claims (token) VALUES (t) RETURNING claims.n INTO n;
		COMMIT;
		IF n % 20 = 0 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
		INSERT INTO ledger (item_key, token) VALUES (k, t);
		COMMIT;
		IF n % 20 = 10 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
		PERFORM job_idem.mark_done(t, k);
		COMMIT;
	END LOOP;
END
$$;
SQL
my $crashes = 0;
my $clock = 0;
for (1 .. 1000)
{
	my $worker = session($cluster, options => "-c job_idem.clock_offset=$clock");
	if ($worker->query_error("CALL once('at most once')") ne '')
	{
		$crashes++;
		next;
	}
	$worker->quit;
	tick($cluster, $clock);
	last if value("SELECT state FROM job_idem.runs WHERE run_id = $run") eq 'partial';
	$clock += 400;
}
is($crashes, $n / 10, 'at most once: a tenth of the claims crashed');
is(value('SELECT count(*) - count(DISTINCT item_key) FROM ledger'), 0, 'at most once: no effect happened twice');
is(value('SELECT count(*) FROM ledger'), $n - $n / 20, 'at most once: half of the crashes came before the effect');
is(value("SELECT count(*), min(kind), max(attempts) FROM job_idem.dead_letters WHERE run_id = $run AND status = 'open'"),
	$n / 10 . '|lost|1', 'at most once: every crash is a dead letter');
is(value("SELECT count(*) FROM job_idem.items i WHERE run_id = $run AND NOT EXISTS (SELECT FROM ledger l WHERE l.item_key = i.item_key)"
	  . ' AND NOT EXISTS (SELECT FROM job_idem.dead_letters d WHERE d.run_id = i.run_id AND d.item_key = i.item_key)'), 0,
	'at most once: every item without an effect is among them');
audit_empty($cluster, $run, 'at most once: audit is empty');

$cluster->stop;
done_testing();
