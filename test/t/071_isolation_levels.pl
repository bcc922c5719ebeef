# Workers at all isolation levels (C16, P5, K71). Each claims, works and completes in one transaction that has looked at
# a table first, so that above READ COMMITTED its snapshot is older than its claim; one try in ten fails and is claimed
# again. First the workers of each level by themselves, then all together. 40001 and 40P01 are repeated, no other error
# may come, and READ COMMITTED gets none at all. In the end each item is done once, and no worker was told "nothing to
# do" while there were free slices: an empty answer is wrong if more slices were claimed after it than other workers
# could have had in open transactions.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $n_items = scaled(600, 10_000);
my $n_workers = scaled(4, 16);
my @levels = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
my $cluster = new_cluster('main');
my $folder = PostgreSQL::Test::Utils::tempdir();

$cluster->safe_psql('postgres', q{
	CREATE TABLE look (n integer);
	INSERT INTO look VALUES (1);
	CREATE TABLE ledger (item_key text NOT NULL);
	CREATE TABLE idle (level text NOT NULL, at timestamptz NOT NULL);
	CREATE FUNCTION work_once() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		began timestamptz := clock_timestamp();
		c record;
	BEGIN
		SELECT min(token) AS token, array_agg(item_key) AS keys INTO c FROM job_idem.claim_items('j');
		IF c.keys IS NULL THEN
			INSERT INTO idle VALUES (current_setting('transaction_isolation'), began);
		ELSIF random() < 0.1 THEN
			PERFORM job_idem.mark_failed(c.token, c.keys[1], transient => true);
			INSERT INTO ledger SELECT k FROM unnest(c.keys) AS k WHERE k <> c.keys[1];
			PERFORM job_idem.mark_done(c.token, k) FROM unnest(c.keys) AS k WHERE k <> c.keys[1];
		ELSE
			INSERT INTO ledger SELECT unnest(c.keys);
			PERFORM job_idem.mark_all_done(c.token, cardinality(c.keys));
		END IF;
	END $$;
	SELECT job_idem.define_job('j', batch_size => 5, max_attempts => 50, backoff_base => '0', backoff_max => '0')});

# One round of the workers of these levels; returns what pgbench said.
sub work
{
	my (@at) = @_;
	my @scripts;

	for my $level (@at)
	{
		my $file = "$folder/" . ($level =~ s/ /_/r) . '.sql';

		open my $fh, '>', $file or die "$file: $!";
		print $fh "BEGIN ISOLATION LEVEL $level;\nSELECT n FROM look;\nSELECT work_once();\nCOMMIT;\n";
		close $fh;
		push @scripts, '-f', $file;
	}
	my $pgbench = program($cluster, 'pgbench', '-n', '-c', $n_workers * @at, '-t', 40, '--max-tries=100000',
		'--failures-detailed', @scripts);
	my $status = $pgbench->wait(170);

	is($status, 0, "@at: no error but 40001 and 40P01") or diag($pgbench->errors);
	return $pgbench->output;
}

my $run_key = 0;
for my $at ((map { [$_] } @levels), \@levels)
{
	my $what = join ', ', @$at;
	my $run_id = $cluster->safe_psql('postgres', "SELECT run_id FROM job_idem.open_run('j', '2026-11-30', '"
		  . ++$run_key . "')");
	my ($rounds, $retried) = (0, 0);

	$cluster->safe_psql('postgres', "SELECT job_idem.add_items($run_id,
			ARRAY(SELECT 'k' || i FROM generate_series(1, $n_items) AS i));
		SELECT job_idem.seal_run($run_id);
		TRUNCATE ledger, idle");
	while ($cluster->safe_psql('postgres', "SELECT done = total FROM job_idem.progress WHERE run_id = $run_id") ne 't')
	{
		my $output = work(@$at);

		$retried += $1 if $output =~ /number of transactions retried: (\d+)/;
		die "it does not end: $output" if ++$rounds > 200;
	}
	$cluster->safe_psql('postgres', 'CALL job_idem.tick()');

	note("$what: $retried transactions were repeated");
	is($retried, 0, "$what: a lost race raises nothing") if $what eq 'READ COMMITTED';
	is($cluster->safe_psql('postgres', "SELECT state, n_done FROM job_idem.runs WHERE run_id = $run_id"),
		"done|$n_items", "$what: the run is done");
	is($cluster->safe_psql('postgres', 'SELECT count(*), count(DISTINCT item_key) FROM ledger'),
		"$n_items|$n_items", "$what: each item is done once");
	is( $cluster->safe_psql('postgres', "SELECT level, at, n FROM idle, LATERAL (
				SELECT count(*) AS n FROM job_idem.lease
				WHERE run_id = $run_id AND slice_no IS NOT NULL AND claimed_at > at) AS l
			WHERE n >= " . $n_workers * @$at . ' ORDER BY 2'),
		'', "$what: no wrong empty answer");
	is($cluster->safe_psql('postgres', "SELECT invariant FROM job_idem.audit($run_id)"), '',
		"$what: no invariant is broken");
}

done_testing();
