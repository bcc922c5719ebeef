# The manual cannot rot (W5, as far as README.md goes): every SQL block is run, in order, in one fresh database, and what
# it shows is what comes out; functions, levels, views, settings, defaults, states and SQLSTATEs are those of the code.
# It promises in exact words (W6): "exactly once" stands only with "effect in this database", the limits are named, and
# the variant with two transactions is shown to fail.
#
# A block that a block of text follows prints that. A statement that fails says so: -- error SQLSTATE.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $top = "$FindBin::RealBin/../..";
my $readme = slurp_file("$top/README.md");

# pg_cron, where it is installed, must be preloaded
my $probe = new_cluster('probe', extension => 0);
my $has_cron = available_extension($probe, 'pg_cron');
$probe->stop;
my $cluster = new_cluster('main', extension => 0, conf => $has_cron
	? "shared_preload_libraries = pg_cron\ncron.database_name = readme\ncron.use_background_workers = on"
	: '');
$cluster->safe_psql('postgres', 'CREATE DATABASE readme');
$cluster->safe_psql('readme', 'CREATE EXTENSION pg_cron') if $has_cron;

sub ask
{
	my ($sql) = @_;

	return $cluster->safe_psql('readme', $sql);
}

# --- the blocks ---

my @blocks;
while ($readme =~ /^(<!-- needs pg_cron -->\n)?```sql\n(.*?)^```\n(?:```text\n(.*?)^```\n)?/msg)
{
	push @blocks,
	  { cron => $1, sql => $2, shown => $3, line => 1 + (substr($readme, 0, $-[2]) =~ tr/\n//) };
}
cmp_ok(scalar @blocks, '>', 30, 'there are blocks to run');

my $script = "\\set VERBOSITY verbose\n\\pset footer off\n";
for my $i (0 .. $#blocks)
{
	$script .= "\\echo == $i\n\\warn == $i\n";
	$script .= $blocks[$i]{sql} unless $blocks[$i]{cron} && !$has_cron;
}
$script .= "\\echo == end\n\\warn == end\n";

my $file = PostgreSQL::Test::Utils::tempdir() . '/readme.sql';
append_to_file($file, $script);
my $psql = program($cluster, 'env', 'PGDATABASE=readme', 'psql', '-Xq', '-f', $file);
is($psql->wait(120), 0, 'psql runs the manual to its end') or diag($psql->errors);
my @output = split /^== (?:\d+|end)\n/m, $psql->output;
my @errors = split /^.*?== (?:\d+|end)\n/m, $psql->errors;

sub plain
{
	my ($text) = @_;

	$text =~ s/[ \t]+$//mg;
	$text =~ s/\n+\z/\n/;
	return $text;
}

for my $i (0 .. $#blocks)
{
	my ($block, $name) = ($blocks[$i], "line $blocks[$i]{line}");

	next if $block->{cron} && !$has_cron;
	my @announced = $block->{sql} =~ /-- error (\w{5})/g;
	my $errors = defined $errors[ $i + 1 ] ? $errors[ $i + 1 ] : '';
	my @met = $errors =~ /^(?:psql:\S+ )?(?:ERROR|FATAL|PANIC):  (\w{5}):/mg;
	is("@met", "@announced", "$name: runs, failing only where it says so") or diag($errors);
	is(plain($output[ $i + 1 ]), plain($block->{shown}), "$name: prints what it shows") if defined $block->{shown};
}
note('pg_cron is not installed: its block was left out') unless $has_cron;

is(ask("SELECT balance FROM account WHERE merchant_id = 'm9'"), 2000, 'in two transactions it is paid twice');
is(ask("SELECT balance FROM account WHERE merchant_id = 'm1'"), 10, 'what was refused was not paid');

# --- the words ---

my $text = $readme;
$text =~ s/[*`]//g;
for my $block (split /\n\n+|\n(?=- )/, $text)
{
	$block =~ s/\s+/ /g;
	for my $sentence (split /(?<=[.:;]) /, $block)
	{
		like($sentence, qr/effect in this database is exactly once|effect in this database exactly once/i,
			'"exactly once" is said of the effect in this database')
		  if $sentence =~ /exactly[ -]once/i;
	}
}
$text =~ s/\s+/ /g;
like($text, qr/exactly once per \(job, run key, item key\), when the business write and mark_done share one transaction/,
	'the promise: effect');
like($text, qr/Execution is at least once/, 'the promise: execution');
like($text, qr/Effect outside this database[^.]* is not promised/, 'the promise: outside');
for my $limit ('Outside effects', 'Lost commits of asynchronous failover', 'Two promoted standbys', 'Long transactions')
{
	like($readme, qr/^- \*\Q$limit\E\*/m, "the limit is named: $limit");
}

# --- the reference: what the tables say is what there is ---

# The rows of the table under a heading, as references to arrays of cells without markup.
sub table
{
	my ($heading) = @_;
	my ($part) = $readme =~ /^### \Q$heading\E\n(.*?)(?=^##|\z)/ms;
	my @rows = map { [ map { s/`//g; s/^\s+|\s+$//g; $_ } (split /\|/, $_, -1)[ 1 .. 3 ] ] } $part =~ /^(\|.*)$/mg;

	return @rows[ 2 .. $#rows ];
}

sub same
{
	my ($mine, $theirs, $name) = @_;

	return is(join("\n", sort @$mine), join("\n", sort split /\n/, $theirs), $name);
}

my ($internal) = $readme =~ /^For the extension itself only: (.*)\.$/m;
my @internal = $internal =~ /`(\w+)`/g;
same([ map { "$_->[0] $_->[1]" } table('Functions') ], ask(<<"SQL"), 'functions, arguments and levels');
SELECT p.proname || '(' || coalesce((SELECT string_agg(n, ', ' ORDER BY i)
	FROM unnest(p.proargnames) WITH ORDINALITY AS u (n, i)
	WHERE coalesce(p.proargmodes[i], 'i') = 'i'), '') || ') ' || coalesce((SELECT level FROM job_idem.privilege
	WHERE regexp_replace(object, '^\\w+ ', '') NOT LIKE 'job_idem.%[a-z]' AND split_part(object, ' ', 1) <> 'TABLE'
	AND split_part(split_part(object, '.', 2), '(', 1) = p.proname), 'owner')
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
WHERE p.pronamespace = 'job_idem'::regnamespace
	AND p.proname NOT IN (@{[ join ', ', map { "'$_'" } @internal ]})
SQL
same(\@internal, ask(<<"SQL"), 'functions that nobody calls');
SELECT proname FROM pg_proc WHERE pronamespace = 'job_idem'::regnamespace
	AND proname IN (@{[ join ', ', map { "'$_'" } @internal ]})
SQL
same([ map { $_->[0] } table('Views') ],
	ask("SELECT relname FROM pg_class WHERE relnamespace = 'job_idem'::regnamespace AND relkind = 'v'"), 'views');
same([ map { join '|', $_->[0], $_->[1] } table('Settings') ],
	ask("LOAD 'job_idem'; SELECT name || '|' || boot_val || coalesce(' ' || unit, '') FROM pg_settings WHERE name LIKE 'job\\_idem.%'"),
	'settings and their defaults');
same([ map { "$_->[0] " . uc $_->[1] } table('SQLSTATEs') ],
	join("\n", map { my ($name, $code) = /ERRCODE_JI_(\w+) MAKE_SQLSTATE\((.*)\)/; $name ? join('', $code =~ /\w/g) . " $name" : () }
		  split /\n/, slurp_file("$top/src/job_idem.h")),
	'SQLSTATEs and their names');

ask("SELECT job_idem.define_job('standard'), job_idem.define_job('critical', tier => 'critical')");
my @parts = table('Defaults');
for my $tier ('standard', 'critical')
{
	my @here = map { [ $_->[0], $tier eq 'critical' && $_->[2] ne '' ? $_->[2] : $_->[1] ] } @parts;

	$_->[0] eq 'tier' and $_->[1] = $tier for @here;
	is(join("\n", map { "$_->[0]=$_->[1]" } @here),
		ask("SELECT concat_ws(E'\\n', "
			  . join(', ', map { "'$_->[0]=' || coalesce($_->[0]::text, '')" } @here)
			  . ") FROM job_idem.jobs WHERE job = '$tier'"),
		"defaults, tier $tier");
}
same([ map { $_->[0] } @parts ], ask(<<'SQL'), 'every part of a definition has its line');
SELECT n FROM pg_proc, unnest(proargnames) WITH ORDINALITY AS u (n, i)
WHERE pronamespace = 'job_idem'::regnamespace AND proname = 'define_job' AND proargmodes[i] = 'i'
	AND n NOT IN ('name', 'version')
SQL

my ($drawing) = $readme =~ /^```mermaid\n(.*?)^```$/ms;
my @edges;
while ($drawing =~ /^ +(\S+) --> (\S+): (.*)$/mg)
{
	my ($from, $to, $verbs) = ($1 eq '[*]' ? '-' : $1, $2, $3);

	push @edges, "$from $to $_" for split /, /, $verbs;
}
same(\@edges, ask("SELECT concat_ws(' ', from_state, to_state, verb) FROM job_idem.item_transitions()"),
	'the drawing of an item\'s states');

my ($outcomes) = $readme =~ /`outcome` is one of seven:\n\n(.*?)\n\n/s;
is(join(' ', $outcomes =~ /^\| `(\w+)`/mg), 'claimed done busy waiting dead closed mismatch', 'the seven outcomes');

# every link into the text has its heading, every file that it names is there
my %anchors = map { my $anchor = lc; $anchor =~ s/[^\w -]//g; $anchor =~ tr/ /-/; ("#$anchor" => 1) }
  $readme =~ /^#+ (.*)$/mg;
for my $target ($readme =~ /\]\(([^)]+)\)/g)
{
	ok($target =~ /^#/ ? $anchors{$target} : -e "$top/$target", "$target is there");
}

$cluster->stop;
done_testing();
