# A claim takes what it returns, and never more than a batch, whatever plan the server picks.
#
# A claim whose limited, row-locking subquery lands inside a nested loop is evaluated once per outer row, and takes
# other rows each time: more than asked for, or rows that nobody is told of. Sixteen clients claim in a tight loop,
# on fresh slices and on due items, with batches of 1, 10 and 1,000, under the plans that provoke it: nested loops only,
# kept (generic) and one-off (custom) plans, statistics from when the tables were empty, then from before a bulk delete.
# Each phase ends when nothing is left: the rows returned are the items of the run, each once; no answer is over
# batch_size; each token's rows are exactly what its lease holds, and no lease is without its rows.
#
# Proves: F8, C14.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use JobIdem;
use Stress;

my $nested = '-c enable_hashjoin=off -c enable_mergejoin=off -c enable_material=off -c enable_memoize=off';
my @plans = ("$nested -c plan_cache_mode=force_generic_plan", "$nested -c plan_cache_mode=force_custom_plan", $nested);
my $seed = seed();
# nobody but this test analyses
my $cluster = new_cluster('main', conf => "autovacuum = off\nsynchronous_commit = off\n");
plan skip_all => 'psycopg is not installed' unless has_psycopg($cluster);
new_ledger($cluster, 'postgres');
$cluster->safe_psql('postgres', 'CREATE TABLE got (phase integer, token bigint, item_key text)');

my $phase = 0;

# All items of the run are to be had: claim them all, and see that what was returned is what is leased.
sub claim_all
{
	my ($name, $job, $run_id, $n_items, $batch, $after) = @_;

	$phase++;
	my $program = program($cluster, $JobIdem::PYTHON, '-B', "$FindBin::RealBin/../lib/claim_loop.py",
		JSON::PP->new->encode(
			{ job => $job, phase => $phase, workers => 16, options => \@plans, after => $after, seed => $seed }));
	is($program->wait(3600), 0, "$name: every claim is of one token") or diag($program->errors);
	is($cluster->safe_psql('postgres', "SELECT count(*), count(DISTINCT item_key) FROM got WHERE phase = $phase"),
		"$n_items|$n_items", "$name: the rows returned are the items, each once");
	cmp_ok($cluster->safe_psql('postgres',
			"SELECT max(n) FROM (SELECT count(*) AS n FROM got WHERE phase = $phase GROUP BY token) AS c"),
		'<=', $batch, "$name: no answer is over batch_size");
	return;
}

# What each lease of the run holds, from the tables, against the rows returned.
sub differences
{
	my ($run_id) = @_;

	return $cluster->safe_psql('postgres', qq{
		WITH held AS (
			SELECT l.token, i.item_key FROM job_idem.lease l JOIN job_idem.run r USING (run_id)
				JOIN job_idem.item i USING (run_id)
			WHERE l.run_id = $run_id AND l.slice_no = (i.item_no - 1) / r.batch_size
			UNION ALL
			SELECT l.token, i.item_key FROM job_idem.lease l, unnest(l.picks) AS p (item_no)
				JOIN job_idem.item i ON i.run_id = $run_id AND i.item_no = p.item_no
			WHERE l.run_id = $run_id),
		returned AS (SELECT g.token, g.item_key FROM got g JOIN job_idem.lease l USING (token) WHERE l.run_id = $run_id)
		SELECT * FROM (
			(SELECT 'not returned', * FROM held EXCEPT ALL SELECT 'not returned', * FROM returned)
			UNION ALL
			(SELECT 'not held', * FROM returned EXCEPT ALL SELECT 'not held', * FROM held)
			UNION ALL
			SELECT 'lease says ' || l.n_items, l.token, 'rows: ' || count(g.token)
			FROM job_idem.lease l LEFT JOIN got g USING (token) WHERE l.run_id = $run_id
			GROUP BY l.token HAVING count(g.token) <> l.n_items) AS d
		LIMIT 3});
}

# while they are empty
$cluster->safe_psql('postgres', 'ANALYZE job_idem.item, job_idem.lease, job_idem.run, job_idem.tally');

for my $size ([ 1, 320, 40_000 ], [ 10, 2000, 200_000 ], [ 1000, 20_000, 200_000 ])
{
	my ($batch, @sizes) = @$size;
	my $n_items = scaled(@sizes);
	my $job = "batch_$batch";
	my $run_id = new_run($cluster, 'postgres', $job, $n_items, definition => "batch_size => $batch");

	claim_all("batch $batch, fresh slices", $job, $run_id, $n_items, $batch, 'release');
	claim_all("batch $batch, due items", $job, $run_id, $n_items, $batch, 'release');
	if ($batch == 10)
	{
		# other statistics, wrong in another way
		my $filler = new_run($cluster, 'postgres', 'filler', 20_000);
		$cluster->safe_psql('postgres', "ANALYZE job_idem.item;
			SELECT job_idem.cancel_run($filler, 'only there to be gone'); DELETE FROM job_idem.item WHERE run_id = $filler");
	}
	claim_all("batch $batch, due items, completed", $job, $run_id, $n_items, $batch, 'complete');
	is(differences($run_id), '', "batch $batch: every lease's items were returned, and nothing else");
	is(audit($cluster, 'postgres', $run_id), '', "batch $batch: no invariant is broken");
	$cluster->safe_psql('postgres', 'CALL job_idem.tick()');
	is($cluster->safe_psql('postgres', "SELECT state, n_done FROM job_idem.runs WHERE run_id = $run_id"),
		"done|$n_items", "batch $batch: the run is done");
}

$cluster->stop;
done_testing();
