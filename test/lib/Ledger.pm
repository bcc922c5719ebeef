# Ledger.pm: what the crash and cluster tests share: a job, its items, workers that write into a ledger, and the proof.
#
# The ledger has no UNIQUE key of its own, so that a second effect shows as a second row.
package Ledger;

use strict;
use warnings;

use JobIdem;
use parent 'Exporter';

our $DATE = '2026-11-30';
our @EXPORT = qw($DATE make_ledger batch_job claim write_items work_on drain tick ledger_right ledger_hash audit_empty
  cluster_clock run_of);

sub make_ledger
{
	my ($cluster, $dbname) = @_;

	$cluster->safe_psql($dbname || 'postgres',
		'CREATE TABLE ledger (entry bigserial PRIMARY KEY, item_key text NOT NULL, token bigint NOT NULL,'
		  . ' amount integer NOT NULL DEFAULT 10)');
	return;
}

# Defines a batch job, with further arguments of define_job as text, and seals a run of $n items k1, k2 ...; returns the
# run. Names and keys have no quotes in them.
sub batch_job
{
	my ($cluster, $job, $n, $arguments, $dbname) = @_;
	# dates of tests are past some day
	my $define = join ', ', "'$job'", "close_after => '1000 years'", $arguments || ();

	return $cluster->safe_psql($dbname || 'postgres', <<"SQL");
DO \$\$ BEGIN PERFORM job_idem.define_job($define); END \$\$;
SELECT run_id AS run FROM job_idem.open_run('$job', '$DATE') \\gset
SELECT FROM job_idem.add_items(:run, ARRAY(SELECT 'k' || i FROM generate_series(1, $n) AS i ORDER BY i)) \\gset
SELECT FROM job_idem.seal_run(:run) \\gset
SELECT :run;
SQL
}

sub run_of
{
	my ($cluster, $job) = @_;

	return $cluster->safe_psql('postgres', "SELECT run_id FROM job_idem.runs WHERE job = '$job'");
}

# A claim by a session: (token, key ...), or nothing.
sub claim
{
	my ($session, $job, $more) = @_;
	my @rows = split /\n/, $session->query("SELECT token, item_key FROM job_idem.claim_items('$job'" . ($more || '') . ')');

	return if !@rows;
	return ((split /\|/, $rows[0])[0], map { (split /\|/, $_, 2)[1] } @rows);
}

# The business write of some items, as SQL.
sub write_items
{
	my ($token, @keys) = @_;
	my $list = join ',', map { "'$_'" } @keys;

	return "INSERT INTO ledger (item_key, token) SELECT k, $token FROM unnest(ARRAY[$list]) AS k;";
}

# Writes and completes a whole claim in one transaction.
sub work_on
{
	my ($session, $token, @keys) = @_;

	return $session->query('BEGIN; ' . write_items($token, @keys)
		  . " SELECT job_idem.mark_all_done($token, " . scalar(@keys) . '); COMMIT');
}

# Claims and works until there is nothing to do now; returns how many items were done.
sub drain
{
	my ($session, $job) = @_;
	my $done = 0;

	while (my ($token, @keys) = claim($session, $job))
	{
		work_on($session, $token, @keys);
		$done += @keys;
	}
	return $done;
}

# CALL tick() in a connection of its own, so many seconds ahead.
sub tick
{
	my ($cluster, $offset) = @_;

	return $cluster->safe_psql('postgres', 'LOAD \'job_idem\'; SET job_idem.clock_offset = ' . ($offset || 0)
		  . '; CALL job_idem.tick()');
}

# The clock of every new connection.
sub cluster_clock
{
	my ($cluster, $offset) = @_;

	$cluster->safe_psql('postgres', "LOAD 'job_idem'; ALTER SYSTEM SET job_idem.clock_offset = $offset;");
	$cluster->reload;
	return poll_until($cluster, "LOAD 'job_idem'; SHOW job_idem.clock_offset", 20, $offset);
}

sub audit_empty
{
	my ($cluster, $run, $name) = @_;

	return is($cluster->safe_psql('postgres', "SELECT * FROM job_idem.audit($run)"), '', $name || 'audit is empty');
}

# The ledger has each done item of the run once and nothing else, under the token that the item is done by; $n of them.
sub ledger_right
{
	my ($cluster, $run, $n, $name) = @_;
	my $found = $cluster->safe_psql('postgres', <<"SQL");
SELECT count(*) FILTER (WHERE i.state = 'done' AND l.n = 1 AND l.token = i.token),
	count(*) FILTER (WHERE i.state = 'done' AND l.n IS DISTINCT FROM 1),
	count(*) FILTER (WHERE i.state IS DISTINCT FROM 'done' AND l.n IS NOT NULL),
	count(*) FILTER (WHERE i.state = 'done' AND l.token <> i.token), coalesce(sum(l.amount), 0)
FROM (SELECT item_key, count(*) AS n, max(token) AS token, sum(amount) AS amount FROM ledger GROUP BY item_key) l
	FULL JOIN (SELECT * FROM job_idem.items WHERE run_id = $run) i USING (item_key)
SQL

	is($found, join('|', $n, 0, 0, 0, 10 * $n), $name || "the ledger has $n items, each once");
	return audit_empty($cluster, $run, ($name || 'ledger') . ': audit is empty');
}

# What was done, whoever did it.
sub ledger_hash
{
	my ($cluster) = @_;

	return $cluster->safe_psql('postgres',
		"SELECT md5(string_agg(item_key || ' ' || n || ' ' || amount, ',' ORDER BY item_key)) FROM"
		  . ' (SELECT item_key, count(*) AS n, sum(amount) AS amount FROM ledger GROUP BY item_key) l');
}

1;
