# Items that fail together do not come back together: a fleet fails 10,000 items within one second, five times over, and
# each time no second gets many more of them than the others.
# R4, C08.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
my $n = 10_000;
my $run = batch_job($cluster, 'fleet', $n,
	"batch_size => 1250, backoff_base => '10 s', backoff_max => '1 hour', max_attempts => 6, retry_budget => NULL");

# Each of 8 workers claims and fails until nothing is left to claim at that instant.
$cluster->safe_psql('postgres', <<'SQL');
CREATE PROCEDURE fail_all() LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	keys text[];
BEGIN
	LOOP
		SELECT max(token), array_agg(item_key) INTO t, keys FROM job_idem.claim_items('fleet');
		COMMIT;
		EXIT WHEN t IS NULL;
		PERFORM job_idem.mark_failed_many(t, keys, sqlstates => array_fill('08006'::text, ARRAY[cardinality(keys)]));
		COMMIT;
	END LOOP;
END
$$;
SQL

my $clock = 0;
for my $attempt (1 .. 5)
{
	my @workers = map { session($cluster, options => "-c job_idem.clock_freeze=2026-11-30T00:00:00Z -c job_idem.clock_offset=$clock") } 1 .. 8;
	my $delay = 10 * 2**($attempt - 1);

	$_->start_query('CALL fail_all()') for @workers;
	$_->finish for @workers;
	$_->quit for @workers;

	# of what failed in this second: from when to when it comes back, how many there are, in the fullest second and in all
	my ($found, $from, $to, $fullest) = split /\|/, $cluster->safe_psql('postgres', <<"SQL");
WITH f AS (SELECT extract(epoch FROM retry_at - failed_at) AS wait FROM job_idem.failure
	WHERE run_id = $run AND failed_at = '2026-11-30 00:00:00+00'::timestamptz + $clock * interval '1 s' AND attempt = $attempt)
SELECT count(*), min(wait), max(wait), (SELECT max(n) FROM (SELECT count(*) AS n FROM f GROUP BY floor(wait)) x) FROM f
SQL
	is($found, $n, "attempt $attempt: all failed at once");
	cmp_ok($from, '>=', $delay / 2, "attempt $attempt: none comes back before half of $delay s");
	cmp_ok($to, '<=', $delay, "attempt $attempt: all are back after $delay s");
	cmp_ok($fullest, '<', 2 * $n / ($delay / 2), "attempt $attempt: the fullest second has $fullest");
	$clock += $delay;
}
audit_empty($cluster, $run);

$cluster->stop;
done_testing();
