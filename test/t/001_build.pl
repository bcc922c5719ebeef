# The library builds without a warning with gcc and clang, with and without assertions, exports only names of ours,
# installs what it should and cleans up after itself; the sources are formatted and pass cppcheck.
use strict;
use warnings;

use File::Basename qw(basename);
use File::Temp qw(tempdir);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my $top = "$FindBin::RealBin/../..";

# A copy without build products.
sub copy
{
	my $folder = tempdir(CLEANUP => 1);

	system("cd '$top' && tar -cf - --exclude='*.o' --exclude='*.bc' --exclude='*.d' Makefile *.control src sql/job_idem"
		  . " | tar -C '$folder' -xf -") == 0
	  or die "cannot copy the source";
	return $folder;
}

sub files
{
	my ($folder) = @_;

	return join "\n", sort split /\n/, `cd '$folder' && find . -type f -o -type l`;
}

# Returns the folder it was built in, or undef after having shown why not.
sub builds
{
	my ($name, @variables) = @_;
	my $folder = copy();
	my $variables = join ' ', map { "'$_'" } @variables;
	my $output = `make -s -j2 -C '$folder' PG_CONFIG='$pg_config' with_llvm=no $variables 2>&1`;

	ok($? == 0, $name) or diag(beginning($output));
	return $folder;
}

# What a compiler complains about first is what matters.
sub beginning
{
	my ($text) = @_;
	my @lines = split /\n/, $text;

	splice @lines, 40 if @lines > 40;
	return join "\n", @lines;
}

# The first of the given commands there is, of the version asked for if any.
sub tool
{
	my ($version, @names) = @_;

	for my $name (@names)
	{
		next unless available_program($name);
		return $name if !defined $version || `$name --version` =~ /version $version\b/;
	}
	return;
}

SKIP:
{
	my $gcc = tool(undef, 'gcc') or skip 'gcc is not installed', 6;
	my $before = files(copy());
	my $folder = builds('builds without warnings with gcc', "CC=$gcc", 'COPT=-Werror');

	my @foreign = grep { !/^(?:job_idem_\w+|JobIdem\w+|pg_finfo_job_idem_\w+|_PG_init|Pg_magic_func|_init|_fini)$/ }
	  map { (split)[2] } split /\n/, `nm -D --defined-only '$folder/job_idem.so'`;
	is("@foreign", '', 'every exported symbol is ours');

	my $root = tempdir(CLEANUP => 1);
	my $output = `make -s -C '$folder' PG_CONFIG='$pg_config' with_llvm=no DESTDIR='$root' install 2>&1`;
	is($?, 0, 'installs below DESTDIR') or diag($output);
	my ($version) = slurp_file("$top/job_idem.control") =~ /^default_version\s*=\s*'(.*)'/m;
	my $installed = files($root);
	$installed =~ s{^.*/}{}mg;
	is(join(' ', sort split /\n/, $installed),
		"job_idem--$version.sql job_idem.control job_idem.so",
		'installs the library, the control file and one script');

	system("make -s -C '$folder' PG_CONFIG='$pg_config' with_llvm=no clean >/dev/null 2>&1");
	is(files($folder), $before, 'make clean leaves the sources');

	builds('builds without warnings with assertions', "CC=$gcc", 'COPT=-Werror -DUSE_ASSERT_CHECKING');
}

SKIP:
{
	my ($bitcode_clang) = `make -s -C '$top' PG_CONFIG='$pg_config' -pn 2>/dev/null` =~ m{^CLANG = (?:.*/)?(clang\S*)}m;
	my $clang = tool(undef, 'clang', $bitcode_clang || ()) or skip 'clang is not installed', 1;

	# the server was built by gcc, and its headers and flags say things that only gcc knows
	builds('builds without warnings with clang', "CC=$clang",
		'COPT=-Werror -Wno-unknown-warning-option -Wno-ignored-optimization-argument'
		  . ' -Wno-unused-command-line-argument -Wno-ignored-attributes');
}

# the formatter leaves line breaks to the author
my @wide;
for my $file (glob "$top/src/*.[ch]")
{
	my $number = 0;
	for my $line (split /\n/, slurp_file($file))
	{
		$number++;
		1 while $line =~ s/^([^\t]*)\t/$1 . ' ' x (4 - length($1) % 4)/e;
		push @wide, basename($file) . ":$number" if length($line) > 100;
	}
}
is("@wide", '', 'no line of C is wider than 100 columns');

SKIP:
{
	# other versions break lines elsewhere
	my $format = tool(14, 'clang-format', 'clang-format-14') or skip 'clang-format 14 is not installed', 1;
	my $output = `cd '$top' && $format --dry-run --Werror src/*.c \$(ls src/*.h 2>/dev/null) 2>&1`;

	ok($? == 0, 'sources are formatted') or diag(beginning(join "\n", grep { /error/ } split /\n/, $output));
}

SKIP:
{
	my $cppcheck = tool(undef, 'cppcheck') or skip 'cppcheck is not installed', 1;
	my $output =
	  `cd '$top' && $cppcheck --quiet --enable=warning --inline-suppr --error-exitcode=1 --std=c11 -Isrc src 2>&1`;

	ok($? == 0, 'cppcheck finds nothing') or diag(beginning($output));
}

done_testing();
