# Schedules against brute force: random ones, in six zones, at 50 random instants each, half of them near a change of the
# clocks. What fires next and before is what trying every date of ten years and every second of the day finds (S1).
#
# The test shares nothing with the extension: it makes a schedule as predicates and as text side by side, so it never
# parses one; it tries dates and times of day one by one; and it asks the server for local times of instants only, hour
# by hour, and second by second in the hours in which the clocks change.
# S1, S3, C06, C35. JOB_IDEM_SOAK compares 5,000 schedules.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;

# clocks that change by an hour, by half an hour, at midnight, four times a year, by a day, and never
my @zones = qw(America/New_York Australia/Lord_Howe America/Santiago Africa/Casablanca Pacific/Apia Asia/Kathmandu);
my ($first_year, $years) = (2009, 10);
my $cluster = new_cluster('main');
my $instants = 50;

seed();

sub ask
{
	my ($sql) = @_;

	return $cluster->safe_psql('postgres', $sql);
}

# --- the zones, as the server shows them: a list of [first second, seconds east of UTC] each ---

my ($from, $to) = split /\|/, ask("SELECT extract(epoch FROM '$first_year-01-01'::timestamptz AT TIME ZONE 'UTC')::bigint,
	extract(epoch FROM '@{[ $first_year + $years ]}-01-01'::timestamptz AT TIME ZONE 'UTC')::bigint");

sub spans
{
	my ($zone) = @_;
	my $offset = "extract(epoch FROM (to_timestamp(s) AT TIME ZONE '$zone') - (to_timestamp(s) AT TIME ZONE 'UTC'))::int";

	return [ map { [ split /\|/ ] } split /\n/, ask(<<"SQL") ];
WITH hours AS (
	SELECT s, $offset AS offset_there FROM generate_series($from - 14 * 86400, $to + 14 * 86400, 3600) AS s
), changed AS (
	SELECT * FROM (SELECT *, lag(offset_there) OVER (ORDER BY s) AS before FROM hours) h WHERE offset_there IS DISTINCT FROM before
)
SELECT coalesce((SELECT min(s) FROM generate_series(hour.s - 3599, hour.s) AS s WHERE before IS NOT NULL AND $offset = offset_there),
	hour.s), offset_there FROM changed AS hour ORDER BY 1
SQL
}

my %spans = map { $_ => spans($_) } @zones;
cmp_ok(scalar @{ $spans{'Africa/Casablanca'} }, '>', 20, 'there are changes to meet');

# The instants that belong to a local time, in order; and the first at which it was that late.
sub instants_of
{
	my ($spans, $local) = @_;
	my (@found, $first);

	for my $i (0 .. $#$spans)
	{
		my ($start, $offset) = @{ $spans->[$i] };
		my $end = $i < $#$spans ? $spans->[ $i + 1 ][0] : 9e18;
		my $at = $local - $offset;

		next if $at >= $end;
		$first = $at < $start ? $start : $at unless defined $first;
		last if $at < $start - 3 * 86400;
		push @found, $at if $at >= $start;
	}
	return ($first, @found);
}

# --- dates: [days since 1970, month, day, day of week, days of the month] ---

my @dates = map { [ split /\|/ ] } split /\n/, ask(<<"SQL");
SELECT d - '1970-01-01', extract(month FROM d), extract(day FROM d), extract(dow FROM d),
	extract(day FROM date_trunc('month', d) + interval '1 month - 1 day')
FROM (SELECT generate_series('$first_year-01-01'::date - 5, '$first_year-01-01'::date + 3652 + 5, '1 day')::date AS d) d ORDER BY d
SQL

# --- random schedules: text and predicate together ---

sub pick { return $_[ int(rand(@_)) ] }
sub between { my ($low, $high) = @_; return $low + int(rand($high - $low + 1)); }

my @months = qw(JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC);
my @weekdays = qw(SUN MON TUE WED THU FRI SAT);

# A number as it may be written.
sub word
{
	my ($kind, $value) = @_;
	my $name = $kind eq 'month' ? $months[ $value - 1 ] : $kind eq 'weekday' ? $weekdays[$value] : undef;

	return defined $name && rand() < 0.4 ? pick($name, lc $name, ucfirst lc $name)
	  : $kind eq 'weekday' && $value == 0 ? pick(0, 7)
	  : rand() < 0.05 ? "0$value" : $value;
}

# One element that is a set of numbers: (text, the numbers). It names none beyond $upto, but may count further.
sub element
{
	my ($kind, $min, $max, $upto) = @_;
	my $step = between(2, $max - $min > 10 ? 10 : 3);
	my ($low, $high) = sort { $a <=> $b } between($min, $upto), between($min, $upto);
	my $way = rand();

	if ($way < 0.5) { return (word($kind, $low), $low) }
	if ($way < 0.65) { return ("*/$step", grep { ($_ - $min) % $step == 0 } $min .. $max) }
	if ($way < 0.75) { return (word($kind, $low) . "/$step", grep { $_ >= $low && ($_ - $low) % $step == 0 } $min .. $max) }
	# from Sunday 7 on is from the beginning, up to Sunday 7 is up to the end
	my $text = ($kind eq 'weekday' && $low == 0 ? pick(0, 'sun') : word($kind, $low)) . '-'
	  . ($kind eq 'weekday' && $high == 0 ? pick(0, 'sun') : word($kind, $high));
	my @values = $low .. $high;

	if (($kind eq 'weekday' || $kind eq 'month') && $high > $low && rand() < 0.5)
	{
		($text, @values) = (word($kind, $high) . '-' . ($low == 0 ? 0 : word($kind, $low)), $high .. $max, $min .. $low);
	}
	if ($way > 0.92)
	{
		$text .= "/$step";
		@values = map { $values[$_] } grep { $_ % $step == 0 } 0 .. $#values;
	}
	return ($text, @values);
}

# (text, numbers), with so many elements.
sub list
{
	my ($kind, $min, $max, $elements, $upto) = @_;
	my (@texts, %set);

	for (1 .. $elements)
	{
		my ($text, @values) = element($kind, $min, $max, $upto || $max);

		push @texts, $text;
		$set{$_} = 1 for @values;
	}
	return (join(',', @texts), \%set);
}

sub nearest_weekday
{
	my ($day, $date) = @_;
	my (undef, undef, $of_month, $of_week, $length) = @$date;
	my $weekday = sub { my ($d) = @_; return ($of_week + $d - $of_month) % 7 };

	return 0 if $day < 1 || $day > $length;
	for my $distance (0 .. 3)
	{
		for my $d ($day - $distance, $day + $distance)
		{
			return $d if $d >= 1 && $d <= $length && $weekday->($d) >= 1 && $weekday->($d) <= 5;
		}
	}
	die "no weekday near $day";
}

# (text, predicate over a date, or undef if the field restricts nothing)
sub days
{
	my $way = rand();
	my ($text, $set) = list('day', 1, 31, pick(1, 1, 2, 3));
	my @matches = sub { $set->{ $_[0][2] } };

	return (pick('*', '*', '?', '*/1'), undef) if $way < 0.4;
	return ($text, $matches[0]) if $way < 0.65;
	@matches = () if rand() < 0.7 && ($text = '') eq '';
	for (1 .. pick(1, 1, 2))
	{
		my ($n, $before) = (between(1, 31), between(1, 30));
		my $case = int(rand(5));

		$text .= ($text eq '' ? '' : ',') . pick(sub { $_[0] }, sub { lc $_[0] })->(('L', "L-$before", "${n}W", 'LW', "L-${before}W")[$case]);
		push @matches, (
			sub { $_[0][2] == $_[0][4] },
			sub { $_[0][2] == $_[0][4] - $before },
			sub { $_[0][2] == nearest_weekday($n, $_[0]) },
			sub { $_[0][2] == nearest_weekday($_[0][4], $_[0]) },
			sub { $_[0][2] == nearest_weekday($_[0][4] - $before, $_[0]) })[$case];
	}
	return ($text, sub { my ($date) = @_; return scalar grep { $_->($date) } @matches });
}

sub weekdays
{
	my $way = rand();
	my ($text, $set) = list('weekday', 0, 6, pick(1, 1, 2));
	my @matches = sub { $set->{ $_[0][3] } };

	return (pick('*', '*', '?', '*/1'), undef) if $way < 0.45;
	return ($text, $matches[0]) if $way < 0.75;
	@matches = () if rand() < 0.7 && ($text = '') eq '';
	for (1 .. pick(1, 1, 2))
	{
		my ($n, $weekday) = (between(1, 5), between(0, 6));
		my $last = rand() < 0.4;

		$text .= ($text eq '' ? '' : ',') . word('weekday', $weekday) . ($last ? pick('L', 'l') : "#$n");
		push @matches, $last
		  ? sub { $_[0][3] == $weekday && $_[0][2] + 7 > $_[0][4] }
		  : sub { $_[0][3] == $weekday && int(($_[0][2] + 6) / 7) == $n };
	}
	return ($text, sub { my ($date) = @_; return scalar grep { $_->($date) } @matches });
}

# { text, elapsed, times (seconds of the day, in order), matches (over a date) }
sub schedule
{
	my (@texts, @sets);
	my $has_seconds = rand() < 0.3;
	my $elapsed = rand() < 0.35;

	# mostly few times a day, since each is tried; hours in which clocks change are wanted
	for my $kind ($has_seconds ? 'second' : (), 'minute')
	{
		my $full = rand() < ($kind eq 'minute' && !$has_seconds ? 0.1 : 0);
		my ($text, $set) = $full ? ('*', { map { $_ => 1 } 0 .. 59 }) : list($kind, 0, 59, 1);

		($text, $set) = list($kind, 0, 59, 1) while !$full && keys %$set > ($has_seconds ? 4 : 12);
		push @texts, $text;
		push @sets, $set;
	}
	if ($elapsed)
	{
		my $step = pick(1, 1, 2, 3, 5, 12);

		push @texts, $step == 1 ? pick('*', '*/1') : "*/$step";
		push @sets, { map { $_ => 1 } grep { $_ % $step == 0 } 0 .. 23 };
	}
	else
	{
		my ($text, $set) = list('hour', 0, 23, pick(1, 1, 2), pick(3, 23));

		# a star alone would be elapsed time, and so would a step of it
		($text, $set) = list('hour', 0, 23, 1) while $text =~ m{\*};
		push @texts, $text;
		push @sets, $set;
	}
	unshift @sets, { 0 => 1 } unless $has_seconds;
	my ($day_text, $day) = days();
	my ($weekday_text, $weekday) = weekdays();
	my ($month_text, $month) = rand() < 0.6 ? ('*', undef) : list('month', 1, 12, pick(1, 2));
	my @times;

	for my $h (sort { $a <=> $b } keys %{ $sets[2] })
	{
		for my $m (sort { $a <=> $b } keys %{ $sets[1] })
		{
			push @times, map { $h * 3600 + $m * 60 + $_ } sort { $a <=> $b } keys %{ $sets[0] };
		}
	}
	return {
		text => join(pick(' ', ' ', '  ', "\t"), @texts, $day_text, $month_text, $weekday_text),
		elapsed => $elapsed,
		times => \@times,
		matches => sub {
			my ($date) = @_;

			return 0 if defined $month && !$month->{ $date->[1] };
			return 1 if !defined $day && !defined $weekday;
			return defined $day && $day->($date) || defined $weekday && $weekday->($date);
		}
	};
}

# --- the fires: all instants that belong to one date, and the nearest to an instant ---

sub fires_of
{
	my ($schedule, $spans, $date) = @_;

	return map {
		my ($first, @all) = instants_of($spans, $date->[0] * 86400 + $_);
		$schedule->{elapsed} ? @all : ($first);
	} @{ $schedule->{times} };
}

# The days of the schedule, as indexes of @dates, and for each date the first of them that is not earlier.
sub days_of
{
	my ($schedule) = @_;
	my @is = map { $schedule->{matches}->($_) ? 1 : 0 } @dates;
	my @from = (undef) x @dates;
	my $next;

	for my $i (reverse 0 .. $#dates)
	{
		$next = $i if $is[$i];
		$from[$i] = $next;
	}
	return (\@is, \@from);
}

# (next, previous); empty if that is not within the ten years. A date's fires are no more than two days off it.
sub brute_force
{
	my ($schedule, $spans, $is, $from_index, $t, $cache) = @_;
	my $today = int($t / 86400) - $dates[0][0];
	my ($next, $previous) = ('', '');
	my $fires = sub { my ($i) = @_; return @{ $cache->{$i} ||= [ fires_of($schedule, $spans, $dates[$i]) ] } };

	for (my $i = $from_index->[ $today > 3 ? $today - 3 : 0 ]; defined $i; $i = $i < $#dates ? $from_index->[ $i + 1 ] : undef)
	{
		last if $next ne '' && $dates[$i][0] * 86400 - 3 * 86400 > $next;
		for my $fire ($fires->($i)) { $next = $fire if $fire > $t && ($next eq '' || $fire < $next) }
	}
	for (my $i = $today + 3 < $#dates ? $today + 3 : $#dates; $i >= 0; $i--)
	{
		next unless $is->[$i];
		last if $previous ne '' && $dates[$i][0] * 86400 + 4 * 86400 < $previous;
		for my $fire ($fires->($i)) { $previous = $fire if $fire < $t && ($previous eq '' || $fire > $previous) }
	}
	return ($next, $previous);
}

# --- the comparison ---

sub instant
{
	my ($spans) = @_;
	my @changes = grep { $_ > $from && $_ < $to } map { $_->[0] } @$spans;

	return $from + int(rand($to - $from)) if !@changes || rand() < 0.5;
	return pick(@changes) + pick(0, 0, -1, 1, between(-7200, 7200), between(-90000, 90000));
}

my $session = session($cluster);
my ($compared, $differ, @worst) = (0, 0);
for my $n (1 .. scaled(200, 5000))
{
	my $schedule = schedule();
	my $zone = $zones[ $n % @zones ];
	my $spans = $spans{$zone};
	my ($is, $from_index) = days_of($schedule);
	# each second of a day tried takes its time
	my @asked = map { instant($spans) } 1 .. (@{ $schedule->{times} } > 400 ? 10 : $instants);
	$session->start_query(<<"SQL");
SELECT coalesce(extract(epoch FROM job_idem.cron_next('$schedule->{text}', to_timestamp(s), '$zone'))::bigint::text, '-'),
	coalesce(extract(epoch FROM job_idem.cron_previous('$schedule->{text}', to_timestamp(s), '$zone'))::bigint::text, '-')
FROM unnest('{@{[ join ',', @asked ]}}'::bigint[]) WITH ORDINALITY u (s, n) ORDER BY n
SQL
	my $sqlstate = $session->finish_error;
	if ($sqlstate ne '')
	{
		# only what has no day in any year may be refused
		next if $sqlstate eq '22023' && $session->errors =~ /no year has such a day/ && !grep { $_ } @$is;
		$differ++;
		push @worst, "$schedule->{text}: " . $session->errors;
		next;
	}
	my @answers = map { [ split /\|/ ] } split /\n/, $session->output;
	my %cache;

	for my $i (0 .. $#asked)
	{
		my @mine = brute_force($schedule, $spans, $is, $from_index, $asked[$i], \%cache);
		my @theirs = @{ $answers[$i] };

		# beyond the ten years there is nothing to compare with
		$theirs[0] = '' if $theirs[0] eq '-' || $theirs[0] >= $dates[-4][0] * 86400;
		$theirs[1] = '' if $theirs[1] eq '-' || $theirs[1] < $dates[4][0] * 86400;
		$mine[0] = '' if $mine[0] ne '' && $mine[0] >= $dates[-4][0] * 86400;
		$mine[1] = '' if $mine[1] ne '' && $mine[1] < $dates[4][0] * 86400;
		$compared++;
		next if "@mine" eq "@theirs";
		$differ++;
		push @worst, "$schedule->{text} in $zone at $asked[$i]: (@theirs), brute force (@mine)";
	}
}
cmp_ok($compared, '>', scaled(200, 5000) * 30, 'schedules were compared');
is($differ, 0, "$compared instants: next and previous are those of brute force") or diag(join "\n", splice @worst, 0, 20);

# every name that the server lists is known, whatever its case
is(ask(<<'SQL'), 't|t', 'all zones are known');
SELECT count(*) > 300, count(job_idem.cron_next('@daily', '2026-11-30', upper(name))) = count(*)
FROM pg_timezone_names WHERE name !~ '^right/'
SQL

$session->quit;
$cluster->stop;
done_testing();
