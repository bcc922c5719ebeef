# Random schedules against croniter, which has nothing in common with the extension: the same next instants, one after
# another, for all that both understand alike. What they read otherwise is named in test/lib/croniter_compare.py.
# S1. The same schedules each time, but for a soak, which compares 5,000 new ones.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

my $cluster = new_cluster('main');
my ($missing) = python($cluster, '-c', 'import psycopg, croniter');
plan skip_all => 'python3-croniter is not installed' if $missing;

my $n = scaled(400, 5000);
my $seed = soak() ? seed() : 1;
my ($status, $output, $errors) = python($cluster, "$FindBin::RealBin/../lib/croniter_compare.py",
	qq({"seed": $seed, "schedules": $n, "fires": 10}));

is($status, 0, 'the comparison ends') or diag($errors);
is($output, "compared $n\n", "$n schedules: no difference");

$cluster->stop;
done_testing();
