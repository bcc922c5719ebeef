# pg_cron runs it all: a run is planned and loaded by tick and worked by a client; scheduled again, there is one entry.
#
# pg_cron 1.4 knows minutes only, so this waits for the next one.
# W2 (tick).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
my $refused = session($cluster);

is($refused->query_error('SELECT job_idem.install_ticks()'), '55000', 'without pg_cron it says so');
is($refused->query('SELECT job_idem.remove_ticks()'), 'f', 'and there is nothing to take back');
$refused->quit;
if (!available_extension($cluster, 'pg_cron'))
{
	diag('no pg_cron here: the rest is skipped');
	$cluster->stop;
	done_testing();
	exit;
}
# pg_cron connects over the socket, as libpq would
$cluster->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_cron'\ncron.database_name = 'postgres'\n"
	  . "cron.timezone = 'UTC'\ncron.host = '" . $cluster->host . "'\n");
$cluster->restart;
$cluster->safe_psql('postgres', 'CREATE EXTENSION pg_cron');
make_ledger($cluster);

my $id = $cluster->safe_psql('postgres', "SELECT job_idem.install_ticks('5 4 * * *')");
is($cluster->safe_psql('postgres', 'SELECT job_idem.install_ticks()'), $id, 'again it is the same entry');
is($cluster->safe_psql('postgres', "SELECT schedule, command, active FROM cron.job"), '* * * * *|CALL job_idem.tick()|t',
	'one entry, with the new schedule');

$cluster->safe_psql('postgres', <<"SQL");
CREATE ROLE other SUPERUSER;
SET ROLE other;
SELECT job_idem.install_ticks('5 4 * * *');
RESET ROLE;
SELECT job_idem.define_job('minute', schedule => '* * * * *', run_per => 'fire', item_source => \$\$SELECT 'k' || i FROM pg_catalog.generate_series(1, 5) AS i\$\$);
SQL
poll_until($cluster, "SELECT count(*) > 0 FROM job_idem.runs WHERE job = 'minute' AND state = 'running'", 150);
my $run = $cluster->safe_psql('postgres', "SELECT min(run_id) FROM job_idem.runs WHERE job = 'minute'");
is($cluster->safe_psql('postgres', "SELECT n_items, sealed_at IS NOT NULL, trigger_count FROM job_idem.runs WHERE run_id = $run"), '5|t|1',
	'planned and loaded by tick');
my $worker = session($cluster);
cmp_ok(drain($worker, 'minute'), '>=', 5, 'worked');
is($cluster->safe_psql('postgres', "SELECT state FROM job_idem.runs WHERE run_id = $run"), 'done', 'finished');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM ledger l JOIN job_idem.items i USING (item_key, token) WHERE run_id = $run"), 5,
	'each item once');
is($cluster->safe_psql('postgres', "SELECT count(*) FROM cron.job_run_details WHERE status = 'failed'"), 0, 'no tick failed');

is($cluster->safe_psql('postgres', 'SELECT job_idem.remove_ticks()'), 't', 'taken back');
is($cluster->safe_psql('postgres', 'SELECT username FROM cron.job'), 'other', 'of this role only');
is($cluster->safe_psql('postgres', 'SELECT job_idem.remove_ticks()'), 'f', 'once');

$cluster->stop;
done_testing();
