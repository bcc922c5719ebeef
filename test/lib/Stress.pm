# Stress.pm: a run whose items pay into tables without any unique key, many clients at work on it (stress.py), and the
# one question that all such tests end in: was every item paid exactly once?
package Stress;

use strict;
use warnings;

use FindBin;
use JSON::PP ();
use JobIdem;
use parent 'Exporter';

our @EXPORT = qw(new_ledger new_run wrongs audit stress start_stress finish_stress has_psycopg);

sub has_psycopg
{
	my ($cluster) = @_;
	my ($status) = python($cluster, '-c', 'import psycopg');

	return $status == 0;
}

# The business tables of database $dbname. Their indexes are not unique: nothing but the protocol keeps a double out.
sub new_ledger
{
	my ($cluster, $dbname) = @_;

	$cluster->safe_psql($dbname, q{
		CREATE TABLE ledger (item_key text, token bigint, amount integer);
		CREATE TABLE balance (account text, amount integer);
		CREATE INDEX ON ledger (item_key);
		CREATE INDEX ON balance (account);
		CREATE FUNCTION pay(token bigint, keys text[]) RETURNS void LANGUAGE plpgsql AS $$
			BEGIN
				INSERT INTO ledger SELECT k, pay.token, 10 FROM unnest(keys) AS k;
				-- in order: what deadlocks here is not the queue's fault
				PERFORM FROM balance WHERE account = ANY (keys) ORDER BY account FOR UPDATE;
				UPDATE balance SET amount = amount + 10 WHERE account = ANY (keys);
			END
		$$;
		CREATE FUNCTION wrongs(run bigint) RETURNS SETOF text LANGUAGE sql AS $$
			SELECT format('%s is %s, paid %s times, under %s, done under %s, balance %s', item_key, i.state,
				coalesce(l.n, 0), l.tokens, i.token, b.amount)
			FROM (SELECT item_key, state, token FROM job_idem.items WHERE run_id = run) i
				FULL JOIN (SELECT item_key, count(*) AS n, sum(amount) AS amount, array_agg(token) AS tokens
					FROM ledger GROUP BY item_key) l USING (item_key)
				FULL JOIN (SELECT account AS item_key, amount FROM balance) b USING (item_key)
			WHERE i.state IS DISTINCT FROM 'done' OR l.n IS DISTINCT FROM 1 OR l.amount IS DISTINCT FROM 10
				OR b.amount IS DISTINCT FROM 10 OR l.tokens IS DISTINCT FROM ARRAY[i.token]
			ORDER BY item_key
		$$;
	});
	return;
}

# A job and a sealed run of so many items, nothing of it paid yet. Returns the run's number.
#   definition => "more arguments of define_job"
sub new_run
{
	my ($cluster, $dbname, $job, $n_items, %options) = @_;
	my $definition = $options{definition} ? ", $options{definition}" : '';

	return $cluster->safe_psql($dbname, qq{
		TRUNCATE ledger, balance;
		INSERT INTO balance SELECT 'k' || lpad(i::text, 6, '0'), 0 FROM generate_series(1, $n_items) i;
		DO \$\$ BEGIN PERFORM job_idem.define_job('$job'$definition); END \$\$;
		DO \$\$ BEGIN PERFORM job_idem.load_items((SELECT run_id FROM job_idem.open_run('$job', '2026-11-30')),
			'SELECT account FROM public.balance ORDER BY account'); END \$\$;
		DO \$\$ BEGIN PERFORM job_idem.seal_run(run_id) FROM job_idem.runs WHERE job = '$job'; END \$\$;
		SELECT run_id FROM job_idem.runs WHERE job = '$job';
	});
}

# Every item that is not done exactly once, as the ledger, the balance and the queue see it: at most three lines.
sub wrongs
{
	my ($cluster, $dbname, $run_id) = @_;

	return $cluster->safe_psql($dbname, "SELECT w FROM wrongs($run_id) w LIMIT 3");
}

sub audit
{
	my ($cluster, $dbname, $run_id) = @_;

	return $cluster->safe_psql($dbname, "SELECT * FROM job_idem.audit($run_id) LIMIT 3");
}

# Run stress.py to its end; returns (whether all went as it should, what happened).
#   dbname, options => '-c setting=value', whatever stress.py takes, and broken => 1 where it is to go wrong
sub stress
{
	my ($cluster, %config) = @_;
	my $broken = delete $config{broken};

	return finish_stress(start_stress($cluster, %config), $broken);
}

sub start_stress
{
	my ($cluster, %config) = @_;
	my $dbname = delete $config{dbname} || 'postgres';
	my $options = delete $config{options} || '';

	$config{seed} = int(rand(2**31)) unless defined $config{seed};
	return program($cluster, 'env', "PGDATABASE=$dbname", "PGOPTIONS=$options", $JobIdem::PYTHON, '-B',
		"$FindBin::RealBin/../lib/stress.py", JSON::PP->new->canonical->encode(\%config));
}

sub finish_stress
{
	my ($program, $broken) = @_;
	# it ends by itself, at its own limit
	my $status = $program->wait(36000);
	my $output = $program->output;

	note($output);
	my $errors = $program->errors . ($status ? "stress.py ended with $status" : '');
	$broken ? note($errors) : diag($errors) if $errors ne '';
	return ($status == 0, eval { JSON::PP::decode_json($output) } || {});
}

1;
