# A breaker that opens tells who listens, with ids only, at the commit of the tick that opened it and never before; a pause
# by hand tells too; nobody needs to listen.
# R6.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $cluster = new_cluster('main');
my $run = $cluster->safe_psql('postgres', <<'SQL');
SELECT job_idem.define_job('breaker', batch_size => 100, failure_threshold => 0.5) \g /dev/null
SELECT run_id FROM job_idem.open_run('breaker', '2026-11-30') \gset
SELECT job_idem.add_items(:run_id, ARRAY(SELECT 'k' || i FROM generate_series(1, 200) i)) \g /dev/null
SELECT job_idem.seal_run(:run_id) \g /dev/null
SELECT max(token) AS token FROM job_idem.claim_items('breaker') \gset
SELECT count(*) FROM job_idem.mark_failed_many(:token, ARRAY(SELECT 'k' || i FROM generate_series(1, 100) i), NULL,
	array_fill('23514'::text, '{100}')) \g /dev/null
SELECT :run_id;
SQL
my $job = $cluster->safe_psql('postgres', "SELECT job_id FROM job_idem.jobs WHERE job = 'breaker'");

# psql prints what it was notified of after each statement
sub heard
{
	my ($statement) = @_;
	my $said = $cluster->safe_psql('postgres', "LISTEN job_idem; $statement; SELECT 'end'");

	return [ $said =~ /Asynchronous notification "job_idem" with payload "(.*)" received/g ];
}

is_deeply(heard('BEGIN; SELECT job_idem.pause_run(' . $run . ", 'by hand'); ROLLBACK"), [], 'rolled back: nothing');
is_deeply(heard('CALL job_idem.tick()'), [qq({"verb": "breaker", "job_id": $job, "run_id": $run})], 'the breaker');
is_deeply(heard('CALL job_idem.tick()'), [], 'once');
$cluster->safe_psql('postgres', "SELECT job_idem.resume_run($run)");
is_deeply(heard("SELECT job_idem.pause_run($run, 'bank details of m17 are wrong')"),
	[qq({"verb": "pause_run", "job_id": $job, "run_id": $run})],
	'by hand, without the reason');

$cluster->stop;
done_testing();
