# postpone is not a try, however often: no attempt is counted, the row is as wide as before, and the item is never
# claimable before its time.
# R14 (with sql/postpone.sql, and sql/stuck.sql for what is left).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
my $n = scaled(2000, 100_000);
my $run = batch_job($cluster, 'postpone', 1, 'max_attempts => 2');

my $session = session($cluster);
my ($token) = claim($session, 'postpone');
# once before, so that the item is one that was claimed by itself
$session->query("SELECT job_idem.postpone($token, 'k1', '0')");
($token) = claim($session, 'postpone');
my $row = "SELECT state, attempts, lost, pg_column_size(i.*) FROM job_idem.item i WHERE run_id = $run";
my $before = $session->query($row);
# in exact hours: the microsecond before shows nothing, the hour itself the item
$session->query("LOAD 'job_idem'; SELECT set_config('job_idem.clock_freeze', (now() + interval '1 minute')::text, false)");
is($session->query_error(<<"SQL"), '', "$n times: not before its time, and then as the first try") or diag($session->errors);
SET synchronous_commit = off;
DO \$\$
DECLARE
	held bigint := $token;
	first_try integer;
BEGIN
	FOR i IN 1 .. $n LOOP
		PERFORM job_idem.postpone(held, 'k1', '1 hour');
		PERFORM set_config('job_idem.clock_offset', (i * 3600 - 0.000001)::text, false);
		ASSERT NOT EXISTS (SELECT FROM job_idem.claim_items('postpone'));
		PERFORM set_config('job_idem.clock_offset', (i * 3600)::text, false);
		SELECT token, attempt INTO STRICT held, first_try FROM job_idem.claim_items('postpone');
		ASSERT first_try = 1;
		COMMIT;
	END LOOP;
END
\$\$;
SQL
is($session->query($row), $before, 'the row is as it was');
is($session->query("SELECT count(*) FROM job_idem.leases WHERE run_id = $run"), $n + 2, 'so many claims');
is($session->query("SELECT count(*) FROM job_idem.failure WHERE run_id = $run"), 0, 'no failure');
audit_empty($cluster, $run);

$cluster->stop;
done_testing();
