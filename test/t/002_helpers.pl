# The helpers of the other tests see what they should: errors, lost connections, blocked sessions, dead programs.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $cluster = new_cluster('main');
$cluster->safe_psql('postgres', 'CREATE TABLE t (i integer PRIMARY KEY)');

my $one = session($cluster);
my $two = session($cluster);
is($one->query("SELECT 1, 'a';\nSELECT 2;"), "1|a\n2", 'rows of several statements');
is($one->query_error('SELECT 1/0'), '22012', 'SQLSTATE of an error');
is($one->message, 'division by zero', 'and its message');
is($one->query_error('SELECT 1'), '', 'no error, no SQLSTATE');
is($one->query_error("DO \$\$ BEGIN RAISE EXCEPTION SQLSTATE 'JI001' USING MESSAGE = 'lost'; END \$\$"),
	'JI001', 'SQLSTATE of our own class');

$one->query('BEGIN; INSERT INTO t VALUES (1)');
$two->start_query('INSERT INTO t VALUES (1)');
ok($two->wait_blocked(20), 'the second session waits for the first');
ok($two->running, 'and has not answered');
$one->query('COMMIT');
is($two->finish_error, '23505', 'then it has its answer');

$one->query('BEGIN; INSERT INTO t VALUES (2)');
$one->kill9;
poll_until($cluster, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $one->pid, 20);
is($two->query('SELECT count(*) FROM t'), 1, 'a killed client leaves no row');

$two->start_query('SELECT pg_sleep(600)');
$two->kill9_backend;
is($two->finish_error(60), '08006', 'a killed backend is a lost connection');
poll_until($cluster, 'SELECT NOT pg_is_in_recovery()', 60);

$cluster->stop('immediate');
$cluster->start;
is(session($cluster)->query('TABLE t'), 1, 'after a crash what was committed is there');

my $program = program($cluster, 'psql', '-XAtq');
$program->input("SELECT 'answer ' || 42;\n");
is($program->wait_output(qr/answer (\d+)/, 20), 42, 'a program beside the test answers');
$program->signal('KILL');
is($program->wait, 256 + 9, 'and how it ended is known');

SKIP:
{
	my ($status) = python($cluster, '-c', 'import psycopg');
	skip 'psycopg is not installed', 1 if $status;
	my ($result, $output, $errors) = python($cluster, '-c',
		"import psycopg, sys\nwith psycopg.connect() as c:\n\tprint(c.execute('SELECT 7').fetchone()[0])\nsys.exit(3)");
	is("$result $output", "3 7\n", 'a Python client talks to the cluster') or diag($errors);
}

SKIP:
{
	skip 'pgbouncer is not installed', 1 unless available_program('pgbouncer');
	my ($connstr, $bouncer) = pgbouncer($cluster);
	is(session($cluster, connstr => $connstr)->query('SELECT 5'), 5, 'through a pooler');
	$bouncer->signal('TERM');
	$bouncer->wait(20);
}

$cluster->stop;
done_testing();
