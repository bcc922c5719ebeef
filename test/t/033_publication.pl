# A publication for all tables breaks nothing, whether it came before the extension or after it.
#
# Under wal_level = logical every verb, expiry, finish and the operators' verbs run without an error of a missing replica
# identity; so they do after the publication was dropped and made again. A subscriber gets what happened and nothing runs
# there by itself: no claim, no expiry, no finish. Every table of ours has a primary key, also those of later versions.
# P8, C18.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main', extension => 0, init => { allows_streaming => 'logical' });
my $subscriber = new_cluster('subscriber', init => { allows_streaming => 'logical' });

# The whole life of a batch and of a keyed run in one database.
sub life
{
	my ($name, $dbname) = @_;
	my $worker = session($cluster, dbname => $dbname);
	my $error = $worker->query_error(<<"SQL");
\\set ON_ERROR_STOP 1
SELECT FROM job_idem.define_job('$name', close_after => '1000 years', batch_size => 4);
SELECT FROM job_idem.define_job('$name', close_after => '1000 years', batch_size => 4, max_attempts => 5);
CREATE ROLE "$name";
SELECT FROM job_idem.grant_worker('$name', '$name');
SELECT FROM job_idem.grant_access('$name', 'viewer');
SELECT FROM job_idem.grant_access('$name', 'worker');
SELECT FROM job_idem.revoke_access('$name');
SELECT FROM job_idem.revoke_worker('$name', '$name');
SELECT FROM job_idem.pause_job('$name');
SELECT FROM job_idem.resume_job('$name');
SELECT run_id AS run FROM job_idem.open_run('$name', '$DATE') \\gset
SELECT FROM job_idem.open_run('$name', '$DATE');
SELECT FROM job_idem.add_items(:run, ARRAY(SELECT 'k' || i FROM generate_series(1, 20) AS i ORDER BY i)) \\gset
SELECT FROM job_idem.load_items(:run, 'SELECT ''more'' AS item_key') \\gset
SELECT FROM job_idem.seal_run(:run) \\gset
SELECT FROM job_idem.add_items(:run, '{late}') \\gset
-- slice 0: the late item comes first, then whole, single, set, failed, postponed, released
SELECT max(token) AS t FROM job_idem.claim_items('$name') \\gset
SELECT job_idem.mark_done(:t, 'late', '{"a": 1}');
SELECT max(token) AS t FROM job_idem.claim_items('$name') \\gset
SELECT job_idem.heartbeat(:t), job_idem.hold(:t), job_idem.mark_all_done(:t, 4);
SELECT max(token) AS t FROM job_idem.claim_items('$name') \\gset
SELECT job_idem.mark_done(:t, 'k5'), job_idem.mark_done_many(:t, '{k6,k7}'), job_idem.mark_failed(:t, 'k8', 'x', '23514');
SELECT max(token) AS t FROM job_idem.claim_items('$name') \\gset
SELECT job_idem.mark_failed(:t, 'k9', 'x', '40001'), job_idem.postpone(:t, 'k10', '1 min'), job_idem.release(:t);
SELECT max(token) AS t FROM job_idem.claim_items('$name') \\gset
SELECT job_idem.release(:t);
SELECT max(token) AS t FROM job_idem.claim_items('$name') \\gset
SELECT job_idem.expire_lease(:t, 'test');
SELECT FROM job_idem.claim_items('$name');
SET job_idem.clock_offset = 1000;
CALL job_idem.tick();
SELECT job_idem.replay(dead_letter_id) FROM job_idem.dead_letters WHERE job = '$name';
DO \$\$ DECLARE t bigint; n bigint; BEGIN FOR i IN 1 .. 100 LOOP
	SELECT max(token), count(*) INTO t, n FROM job_idem.claim_items('$name');
	IF n > 0 THEN PERFORM job_idem.mark_all_done(t, n); END IF;
	COMMIT;
END LOOP; END \$\$;
SET job_idem.clock_offset = 5000;
DO \$\$ DECLARE t bigint; n bigint; BEGIN FOR i IN 1 .. 100 LOOP
	SELECT max(token), count(*) INTO t, n FROM job_idem.claim_items('$name');
	IF n > 0 THEN PERFORM job_idem.mark_all_done(t, n); END IF;
	COMMIT;
END LOOP; END \$\$;
CALL job_idem.tick();
SELECT FROM job_idem.define_job('$name keyed', 'keyed', close_after => '1000 years');
SELECT token AS t FROM job_idem.claim_item('$name keyed', '$DATE', 'one') \\gset
SELECT job_idem.mark_failed(:t, 'one', 'x', '23514');
SELECT job_idem.discard(dead_letter_id) FROM job_idem.dead_letters WHERE job = '$name keyed';
SELECT token AS t FROM job_idem.claim_item('$name keyed', '$DATE', 'two') \\gset
SELECT job_idem.cancel_run(run_id, 'test', force => true) FROM job_idem.runs WHERE job = '$name keyed';
CALL job_idem.tick();
SELECT FROM job_idem.advance_epoch('test');
SELECT FROM job_idem.drop_job('$name keyed');
SQL
	is($error, '', "$name: every verb") or diag($worker->errors);
	is($worker->query("SELECT state, n_done, n_dead FROM job_idem.runs WHERE job = '$name'"), 'done|22|0', "$name: the run is done");
	is($worker->query('SELECT count(*) FROM job_idem.runs r, job_idem.audit(r.run_id)'), 0, "$name: audit is empty");
	$worker->quit;
	return;
}

$cluster->safe_psql('postgres', 'CREATE DATABASE after');
$cluster->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES; CREATE EXTENSION job_idem');
life('before', 'postgres');
$cluster->safe_psql('after', 'CREATE EXTENSION job_idem');
my $open = batch_job($cluster, 'open', 5, '', 'after');
$cluster->safe_psql('after', "SELECT FROM job_idem.claim_items('open'); CREATE PUBLICATION everything FOR ALL TABLES");
life('after', 'after');
$cluster->safe_psql('after', 'DROP PUBLICATION everything; CREATE PUBLICATION everything FOR ALL TABLES');
life('again', 'after');

is($cluster->safe_psql('postgres', <<'SQL'), '', 'every table of ours has a primary key');
SELECT relname FROM pg_class c WHERE relnamespace = 'job_idem'::regnamespace AND relkind IN ('r', 'p')
	AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)
SQL
unlike(slurp_file($cluster->logfile), qr/replica identity/, 'no replica identity was missing');

# --- a subscriber: it has the rows, with an overdue lease among them, and nobody works there
my $run = batch_job($cluster, 'subscribed', 20, 'batch_size => 10');
$cluster->safe_psql('postgres', "SELECT FROM job_idem.claim_items('subscribed')");
$subscriber->safe_psql('postgres', 'TRUNCATE job_idem.privilege');
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION everything CONNECTION '" . $cluster->connstr . " dbname=postgres' PUBLICATION everything");
$cluster->wait_for_catchup('everything');
$subscriber->wait_for_subscription_sync($cluster, 'everything');
my $copy = "SELECT string_agg(r::text, ' ' ORDER BY run_id) FROM job_idem.run r; SELECT md5(string_agg(i::text, ' ' ORDER BY run_id, item_no)) FROM job_idem.item i;"
  . " SELECT md5(string_agg(l::text, ' ' ORDER BY token)) FROM job_idem.lease l";
$cluster->safe_psql('postgres', "SELECT job_idem.mark_done(token, 'k' || n) FROM job_idem.leases, generate_series(1, 3) AS n"
	  . " WHERE run_id = $run AND outcome = 'open'");
$cluster->wait_for_catchup('everything');
is($subscriber->safe_psql('postgres', $copy), $cluster->safe_psql('postgres', $copy), 'the subscriber has what happened');
is($subscriber->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'job_idem' AND pid <> pg_backend_pid()"
		  . " AND backend_type <> 'client backend'"), 0, 'and does nothing by itself');
is($subscriber->safe_psql('postgres', "SELECT count(*) FROM job_idem.leases WHERE run_id = $run AND outcome = 'open'"), 1,
	'what is held there is held there');

$subscriber->stop;
$cluster->stop;
done_testing();
