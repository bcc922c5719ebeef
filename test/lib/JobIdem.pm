# JobIdem.pm: what the TAP tests share, on top of the server's own PostgreSQL::Test modules.
#
#   use FindBin;
#   use lib "$FindBin::RealBin/../lib";
#   use JobIdem;
#
#   my $cluster = new_cluster('main', conf => "max_connections = 60");   # started, extension created
#   $cluster->safe_psql('postgres', 'SELECT 1');                        # and all else of PostgreSQL::Test::Cluster
#   my $a = session($cluster);                                           # a client that stays connected
#   is($a->query_error('SELECT 1/0'), '22012');
#   poll_until($cluster, 'SELECT count(*) = 0 FROM t', 20);
#
# Also exports everything that PostgreSQL::Test::Utils and Test::More export.
package JobIdem;

use strict;
use warnings;

BEGIN
{
	# The make that started us must not steer those that the tests start.
	delete @ENV{qw(MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL T ONLY)};

	# Run by hand, without make: find the server's modules and programs as make would.
	my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
	if (!$ENV{PG_REGRESS})
	{
		chomp(my $pgxs = `$pg_config --pgxs`);
		chomp(my $bindir = `$pg_config --bindir`);
		$pgxs =~ s{/makefiles/pgxs\.mk$}{};
		unshift @INC, "$pgxs/test/perl";
		$ENV{PG_REGRESS} = "$pgxs/test/regress/pg_regress";
		$ENV{PATH} = "$bindir:$ENV{PATH}";
	}
}

use IPC::Run ();
use Test::More;
use Time::HiRes qw(usleep time);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use parent 'Exporter';

our @EXPORT = (
	qw(new_cluster create_extension session poll_until server_major available_extension available_program
	  seed soak scaled python program pgbouncer),
	@Test::More::EXPORT,
	@PostgreSQL::Test::Utils::EXPORT);

# One superuser name, whoever runs the tests.
$ENV{PGUSER} = 'postgres';

# Debian's psycopg belongs to Debian's python, whatever else is on PATH.
our $PYTHON = '/usr/bin/python3';

# A signal must reach the END block that stops the clusters.
$SIG{TERM} = $SIG{INT} = sub { exit 1 };

# Make and start a cluster and create the extension in database postgres.
#   conf => "text for postgresql.conf"
#   extension => 0           leaves the extension out
#   start => 0               only makes it (implies extension => 0)
#   init => { ... }          for PostgreSQL::Test::Cluster::init, for example { allows_streaming => 1 }
# A crashed backend restarts the server, as it does by default; statements are not logged.
sub new_cluster
{
	my ($name, %options) = @_;
	my $cluster = PostgreSQL::Test::Cluster->new($name);
	my %init = %{ $options{init} || {} };

	$cluster->init(%init, extra => [ '-U', 'postgres', '--no-sync', '--encoding=UTF8', '--locale=C', @{ $init{extra} || [] } ]);
	$cluster->append_conf('postgresql.conf',
		"log_statement = none\nrestart_after_crash = on\nshared_buffers = 32MB\nmax_connections = 100\n"
		  . ($options{conf} || ''));
	return $cluster if exists $options{start} && !$options{start};
	$cluster->start;
	create_extension($cluster) unless exists $options{extension} && !$options{extension};
	return $cluster;
}

sub create_extension
{
	my ($cluster, $dbname) = @_;

	$cluster->safe_psql($dbname || 'postgres', 'CREATE EXTENSION job_idem');
	return;
}

# A client that stays connected: see JobIdem::Session below.
#   dbname => 'postgres', user => 'postgres', connstr => '...' (instead of the cluster's), options => '-c ...'
sub session
{
	my ($cluster, %options) = @_;

	return JobIdem::Session->new($cluster, %options);
}

# Wait until the query returns the expected value ('t' unless given), for so many seconds; dies with the last answer.
sub poll_until
{
	my ($cluster, $sql, $seconds, $expected) = @_;
	my $deadline = time() + ($seconds || 60);
	my ($answer, $stdout, $stderr) = ('');

	$expected = 't' unless defined $expected;
	while (1)
	{
		my $status = $cluster->psql('postgres', $sql, stdout => \$stdout, stderr => \$stderr);

		$answer = $status == 0 ? $stdout : $stderr;
		return 1 if $status == 0 && $stdout eq $expected;
		die "still not $expected but $answer: $sql" if time() > $deadline;
		usleep(50_000);
	}
}

sub server_major
{
	my ($major) = `postgres --version` =~ /(\d+)/;

	return $major;
}

sub available_extension
{
	my ($cluster, $name) = @_;

	return $cluster->safe_psql('postgres',
		"SELECT count(*) FROM pg_available_extensions WHERE name = '$name'") > 0;
}

sub available_program
{
	my ($name) = @_;

	return scalar grep { -x "$_/$name" } split /:/, $ENV{PATH};
}

# Seed perl's random numbers and say with what; JOB_IDEM_SEED repeats a run.
sub seed
{
	my $seed = defined $ENV{JOB_IDEM_SEED} ? $ENV{JOB_IDEM_SEED} : int(rand(2**31));

	srand($seed);
	diag("random test; to repeat it: JOB_IDEM_SEED=$seed");
	return $seed;
}

sub soak
{
	return $ENV{JOB_IDEM_SOAK} ? 1 : 0;
}

# The size of a test: the first value in an ordinary run, the second in a soak.
sub scaled
{
	my ($ordinary, $soak) = @_;

	return soak() ? $soak : $ordinary;
}

# Run a Python program to its end: python($cluster, 'test/clients/worker.py', ARGUMENT...), or with '-c', 'text'.
# Connection parameters are in its environment. Returns (exit status, output, errors).
sub python
{
	my ($cluster, @arguments) = @_;
	my $program = program($cluster, $PYTHON, @arguments);

	return ($program->wait, $program->output, $program->errors);
}

# Start a program of whatever kind beside the cluster, with connection parameters in its environment. Returns an object
# with input(text), output, errors, running, wait (exit status; 256 + signal), signal(name) and wait_output(qr/.../).
sub program
{
	my ($cluster, @command) = @_;

	return JobIdem::Program->new($cluster, @command);
}

# Put a pgbouncer in front of a cluster; returns (connection string, program). Transaction mode unless told otherwise.
sub pgbouncer
{
	my ($cluster, %options) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir_short();
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $mode = $options{pool_mode} || 'transaction';
	my $size = $options{pool_size} || 4;

	append_to_file("$folder/pgbouncer.ini", join "\n",
		'[databases]',
		'* = host=' . $cluster->host . ' port=' . $cluster->port . ' user=postgres',
		'[pgbouncer]',
		"unix_socket_dir = $folder",
		"listen_port = $port",
		'auth_type = any',
		"pool_mode = $mode",
		"default_pool_size = $size",
		'max_client_conn = 200',
		$options{conf} || '',
		'');

	my $program = program($cluster, 'pgbouncer', "$folder/pgbouncer.ini");
	my $connstr = "host=$folder port=$port dbname=postgres user=postgres";
	my $deadline = time() + 20;
	while (system_log('psql', '-XAtq', '-d', $connstr, '-c', 'SELECT 1') != 0)
	{
		die "pgbouncer does not answer: " . $program->errors if time() > $deadline || !$program->running;
		usleep(100_000);
	}
	return ($connstr, $program);
}

# ---------------------------------------------------------------------------------------------------------------

# A program that runs beside the test.
package JobIdem::Program;

use strict;
use warnings;
use Time::HiRes qw(usleep time);

sub new
{
	my ($class, $cluster, @command) = @_;
	my $self = bless { in => '', out => '', err => '' }, $class;

	local %ENV = (
		%ENV,
		$cluster
		? (PGHOST => $cluster->host, PGPORT => $cluster->port, PGUSER => 'postgres', PGDATABASE => 'postgres')
		: ());
	$self->{run} = IPC::Run::start(\@command, '<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err});
	return $self;
}

sub pump
{
	my ($self) = @_;

	# pumping a program that has just gone is no error here
	eval { $self->{run}->pump_nb if $self->{run}->pumpable; };
	return;
}

sub input
{
	my ($self, $text) = @_;

	$self->{in} .= $text;
	$self->pump;
	return;
}

sub output { my ($self) = @_; $self->pump; return $self->{out}; }
sub errors { my ($self) = @_; $self->pump; return $self->{err}; }
sub running { my ($self) = @_; $self->pump; return $self->{run}->pumpable ? 1 : 0; }

sub os_pid { my ($self) = @_; return $self->{run}{KIDS}[0]{PID}; }

sub signal
{
	my ($self, $name) = @_;

	$self->{run}->signal($name) unless defined $self->{status};
	return;
}

# Wait until the output matches, for so many seconds; returns what the first group captured, or dies with the output.
sub wait_output
{
	my ($self, $pattern, $seconds) = @_;
	my $deadline = time() + ($seconds || 60);

	while (1)
	{
		my $gone = !$self->running;

		return $1 if $self->output =~ $pattern;
		die "no $pattern in output: $self->{out}\nerrors: $self->{err}" if $gone || time() > $deadline;
		usleep(5_000);
	}
}

# Wait for the end, for so many seconds (then it is killed); returns the exit status, or 256 + the signal's number.
sub wait
{
	my ($self, $seconds) = @_;
	my $deadline = time() + ($seconds || $PostgreSQL::Test::Utils::timeout_default);

	return $self->{status} if defined $self->{status};
	while (JobIdem::Program::running($self))
	{
		if (time() > $deadline)
		{
			$self->signal('KILL');
			last;
		}
		usleep(5_000);
	}
	eval { $self->{run}->finish; };
	my $result = $self->{run}->full_result(0);
	return $self->{status} = $result & 127 ? 256 + ($result & 127) : $result >> 8;
}

# ---------------------------------------------------------------------------------------------------------------

# A psql that stays connected. Each call may hold several statements, or psql's own commands.
#
#   query(SQL)         the rows as text, fields divided by |; dies on an error
#   query_error(SQL)   SQLSTATE of the first error, '' without one, '08006' when the connection was lost
#   start_query(SQL)   sends and returns at once;  finish / finish_error  wait and answer like the two above
#   running            true while the started query has not answered
#   wait_blocked       waits until the backend waits for a lock
#   message            the last error's message;  errors  all that psql wrote to stderr in the last call
#   pid                the backend's process id
#   kill9              kills the client program, as when a worker is lost: the backend finds out when it next talks
#   kill9_backend      kills the backend, upon which the server restarts
#   terminate          pg_terminate_backend
#   quit               ends the connection
package JobIdem::Session;

use strict;
use warnings;
use Time::HiRes qw(usleep time);
use parent -norequire, 'JobIdem::Program';

sub new
{
	my ($class, $cluster, %options) = @_;
	my $connstr = $options{connstr} || $cluster->connstr($options{dbname} || 'postgres');
	my $self;

	local $ENV{PGOPTIONS} = $options{options} if $options{options};
	$self = JobIdem::Program::new($class, $cluster, 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=0', '-v',
		'VERBOSITY=verbose', $options{user} ? ('-U', $options{user}) : (), '-d', $connstr);
	$self->{cluster} = $cluster;
	$self->{number} = 0;
	$self->{pid} = $self->query('SELECT pg_catalog.pg_backend_pid()');
	return $self;
}

sub pid { my ($self) = @_; return $self->{pid}; }

sub start_query
{
	my ($self, $sql) = @_;

	die "a query is running already" if $self->{marker};
	$self->{number}++;
	$self->{marker} = "-- end of query $self->{number} --";
	$self->{out} = $self->{err} = '';
	$sql =~ s/[;\s]+\z//;
	$self->input("$sql\n;\n\\echo '$self->{marker}'\n\\warn '$self->{marker}'\n");
	return;
}

sub answered
{
	my ($self) = @_;

	return index($self->output, $self->{marker}) >= 0 && index($self->errors, $self->{marker}) >= 0;
}

sub running
{
	my ($self) = @_;

	return $self->{marker} && !$self->answered && $self->SUPER::running ? 1 : 0;
}

sub finish_error
{
	my ($self, $seconds) = @_;
	my $deadline = time() + ($seconds || $PostgreSQL::Test::Utils::timeout_default);

	die "no query was started" unless $self->{marker};
	while ($self->running)
	{
		die "no answer in time from backend $self->{pid}: $self->{out}$self->{err}" if time() > $deadline;
		usleep(1_000);
	}
	my $lost = !$self->answered;
	s/\Q$self->{marker}\E\n?// for $self->{out}, $self->{err};
	$self->{marker} = undef;
	$self->{out} =~ s/\n\z//;
	my ($sqlstate, $message) = $self->{err} =~ /^(?:ERROR|FATAL|PANIC):  (\w{5}): (.*)$/m;
	$self->{message} = $message;
	return $sqlstate if defined $sqlstate && !$lost;
	return '08006' if $lost || $self->{err} =~ /connection to server was lost|terminating connection/;
	return '';
}

sub finish
{
	my ($self, $seconds) = @_;
	my $sqlstate = $self->finish_error($seconds);

	die "query failed with $sqlstate: $self->{err}" if $sqlstate ne '';
	return $self->{out};
}

sub query
{
	my ($self, $sql) = @_;

	$self->start_query($sql);
	return $self->finish;
}

sub query_error
{
	my ($self, $sql) = @_;

	$self->start_query($sql);
	return $self->finish_error;
}

sub message { my ($self) = @_; return $self->{message}; }

sub wait_blocked
{
	my ($self, $seconds) = @_;

	return JobIdem::poll_until($self->{cluster},
		"SELECT wait_event_type = 'Lock' AND wait_event <> 'extend'
		FROM pg_catalog.pg_stat_activity WHERE pid = $self->{pid}", $seconds);
}

sub kill9
{
	my ($self) = @_;

	$self->signal('KILL');
	$self->wait(10);
	$self->{marker} = undef;
	return;
}

sub kill9_backend
{
	my ($self) = @_;

	kill 'KILL', $self->{pid};
	return;
}

sub terminate
{
	my ($self) = @_;

	return $self->{cluster}->safe_psql('postgres', "SELECT pg_catalog.pg_terminate_backend($self->{pid}, 10000)");
}

sub quit
{
	my ($self) = @_;

	$self->input("\\q\n");
	return $self->wait(30);
}

1;
