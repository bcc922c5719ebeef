# The layers of src/ are what job_idem.h says: each file stands in one, and includes its own header and headers of lower
# layers only. Every function the server calls stands in a file that is there for it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use File::Basename qw(basename);
use JobIdem;

my $src = "$FindBin::RealBin/../../src";

sub slurp
{
	my ($path) = @_;
	open(my $fh, '<', $path) or die "cannot read $path: $!";
	local $/ = undef;
	return scalar <$fh>;
}

my %layer;
my $table = slurp("$src/job_idem.h");
while ($table =~ /^ \*   layer (\d): (.*)$/mg)
{
	my ($number, $names) = ($1, $2);
	for my $name (split ' ', $names)
	{
		ok(!exists $layer{$name}, "$name stands in one layer");
		$layer{$name} = $number;
	}
}

my %seen;
for my $path (sort glob("$src/*.[ch]"))
{
	(my $name = basename($path)) =~ s/\.[ch]$//;
	$seen{$name} = 1;
	ok(defined $layer{$name}, basename($path) . ' has a layer') or next;
	my @wrong;
	my $text = slurp($path);
	while ($text =~ /^#include "(\w+)\.h"$/mg)
	{
		next if $1 eq $name || !exists $layer{$1};
		push @wrong, $1 if $layer{$1} >= $layer{$name} && $layer{$1} > 0;
	}
	is("@wrong", '', basename($path) . ' includes lower layers only');
}
is(join(' ', grep { !$seen{$_} } sort keys %layer), '', 'no layer names a file that is not there');

done_testing();
