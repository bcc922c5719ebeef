# A transaction that holds a claim past its hard deadline shows in `stuck` and can be ended, and only that one.
#
# `stuck` shows its process id, and the cure that it names ends the backend: the write is gone, the next pass frees the
# items. Found by the locks on the claim: all threads at work under it, in whatever subtransaction, by hold, mark, heartbeat
# or completion; not one whose lock was rolled back; and never the backend that claimed, which serves another client by
# now. A prepared transaction is named. With at_max_lease => 'terminate' tick does it, and only to transactions that
# were open before the hard deadline; idle claims do not.
# K54, F28.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main', conf => "max_prepared_transactions = 5\n");
make_ledger($cluster);
my $late = session($cluster, options => '-c job_idem.clock_offset=4000');

sub value { return $cluster->safe_psql('postgres', shift); }

sub outcome { my ($token) = @_; return value("SELECT outcome FROM job_idem.claim_status($token)"); }

sub events { my ($of) = @_; return value("SELECT verb, detail->>'pids', detail->>'reason' FROM job_idem.event WHERE run_id = $of AND verb = 'end_holder'"); }

sub lives { my ($session) = @_; return $session->query_error('SELECT 1') eq ''; }

sub pids { return '{' . join(',', sort { $a <=> $b } map { $_->pid } @_) . '}'; }

sub sorted { my ($call) = @_; return $late->query("SELECT ARRAY(SELECT unnest($call) ORDER BY 1)"); }

# --- one transaction, past the hard deadline
my $run = batch_job($cluster, 'held', 3, "batch_size => 3, max_lease => '1 hour', backoff_base => '0'");
my $a = session($cluster);
my ($token, @keys) = claim($a, 'held');
$a->query("BEGIN; SELECT job_idem.hold($token); " . write_items($token, @keys));
tick($cluster, 4000);
is(outcome($token), 'open', 'held: not taken back');
is($late->query("SELECT what, pid FROM job_idem.stuck WHERE token = $token"), 'held|' . pids($a), 'stuck shows its pid');
my $cure = $late->query("SELECT cure FROM job_idem.stuck WHERE token = $token");
is($cure, "SELECT job_idem.end_holder($token)", 'and the cure');
like($late->query_error("SELECT job_idem.expire_lease($token, 'gone')"), qr/55P03/, 'expire_lease finds it in use');
like($late->errors, qr/end_holder/, 'and says what helps');
is(value($cure), pids($a), 'which ends that backend');
like($a->query_error('COMMIT'), qr/57P01|08006/, 'its transaction is lost');
is(value('SELECT count(*) FROM ledger'), 0, 'its write is gone');
is(events($run), 'end_holder|1|', 'it is on record');
is($late->query("SELECT what, pid FROM job_idem.stuck WHERE token = $token"), 'overdue|{}', 'nobody holds it any more');
tick($cluster, 4000);
is(outcome($token), 'expired', 'the next pass takes it back');
is($late->query("SELECT count(*) FROM job_idem.stuck"), 0, 'nothing is stuck');
is(drain($late, 'held'), 3, 'and others do the work');
ledger_right($cluster, $run, 3, 'held');
value('TRUNCATE ledger');

# --- threads, in subtransactions; by an operator who may not signal backends otherwise
value("CREATE ROLE op LOGIN; SELECT job_idem.grant_access('op', 'operator')");
$run = batch_job($cluster, 'threads', 5, "batch_size => 5, max_lease => '1 hour', backoff_base => '0'");
my $claimer = session($cluster);
($token, @keys) = claim($claimer, 'threads');
my @t = map { session($cluster) } 0 .. 4;
$t[0]->query("BEGIN; SELECT job_idem.hold($token); " . write_items($token, $keys[0]));
$t[1]->query("BEGIN; SAVEPOINT a; SAVEPOINT b; " . write_items($token, $keys[1])
	  . " SELECT job_idem.mark_done($token, '$keys[1]'); RELEASE b; SAVEPOINT c");
# more subtransactions than a backend caches
$t[2]->query(join '; ', 'BEGIN', (map { ("SAVEPOINT s$_", write_items($token, $keys[2])) } 1 .. 70), "SELECT job_idem.hold($token)");
$t[3]->query("BEGIN; SELECT job_idem.heartbeat($token, '50 min')");
$t[4]->query("BEGIN; SAVEPOINT a; SELECT job_idem.hold($token); ROLLBACK TO a; " . write_items('0', 'x'));
# the backend that claimed serves another client
$claimer->query("BEGIN; SELECT 'of another client'");
is(sorted("job_idem.lease_holders($token)"), pids(@t[ 0 .. 3 ]), 'all that are at work under the claim are found');
my $op = session($cluster, user => 'op', options => '-c job_idem.clock_offset=0');
is($op->query("SELECT ARRAY(SELECT unnest(job_idem.end_holder($token)) ORDER BY 1)"), pids(@t[ 0 .. 3 ]), 'and all of them ended');
like($_->query_error('COMMIT'), qr/57P01|08006/, 'its transaction is lost') for @t[ 0 .. 3 ];
ok(lives($_), 'who does not hold it lives') for $t[4], $claimer;
$t[4]->query('ROLLBACK');
is(value('SELECT count(*) FROM ledger'), 0, 'their writes are gone');
is(events($run), 'end_holder|4|', 'how many is on record');
is($op->query("SELECT job_idem.end_holder($token)"), '{}', 'nobody holds it: nobody is ended');
ok(lives($claimer), 'not even the backend that claimed');
is(events($run), 'end_holder|4|', 'and nothing more is on record');
# completed, but not committed
$a = session($cluster);
$a->query('BEGIN; ' . write_items($token, @keys) . " SELECT job_idem.mark_all_done($token, 5)");
is(sorted("job_idem.end_holder($token)"), pids($a), 'a completion that is not committed is a holder, too');
is(outcome($token), 'open', 'and is undone');
tick($cluster, 4000);
is(drain($late, 'threads'), 5, 'others do the work');
ledger_right($cluster, $run, 5, 'threads');
value('TRUNCATE ledger');

# --- a prepared transaction
$run = batch_job($cluster, 'prepared', 2, "batch_size => 2, max_lease => '1 hour', backoff_base => '0'");
$a = session($cluster);
($token, @keys) = claim($a, 'prepared');
$a->query('BEGIN; ' . write_items($token, $keys[0]) . " SELECT job_idem.mark_done($token, '$keys[0]'); PREPARE TRANSACTION 'it''s'");
is($late->query("SELECT what, pid FROM job_idem.stuck WHERE token = $token"), 'held|{0}', 'prepared: stuck has no pid for it');
is($late->query("SELECT job_idem.end_holder($token)"), '{}', 'prepared: nobody to end');
my ($hint) = $late->errors =~ /HINT:.*(ROLLBACK PREPARED 'it''s')/;
ok($hint, 'prepared: it is named') or diag($late->errors);
value($hint);
tick($cluster, 4000);
is(outcome($token), 'expired', 'prepared: after its rollback the next pass takes the claim back');
is(drain($late, 'prepared'), 2, 'prepared: others do the work');
ledger_right($cluster, $run, 2, 'prepared');
value('TRUNCATE ledger');

# --- a real pooler: the one backend serves whoever comes
SKIP:
{
	skip 'pgbouncer is not installed', 3 unless available_program('pgbouncer');
	my ($connstr, $bouncer) = pgbouncer($cluster, pool_size => 1);
	$run = batch_job($cluster, 'pooled', 2, 'batch_size => 2');
	my $first = session($cluster, connstr => $connstr);
	($token, @keys) = claim($first, 'pooled');
	my $second = session($cluster, connstr => $connstr);
	is($second->query('BEGIN; SELECT pg_backend_pid()'), value("SELECT backend FROM job_idem.leases WHERE token = $token"),
		'pooled: the backend that claimed serves another client');
	$second->query(write_items(0, 'x'));
	is(value("SELECT job_idem.end_holder($token)"), '{}', 'pooled: that one is not ended');
	is($second->query_error('ROLLBACK'), '', 'pooled: and goes on');
	work_on($first, $token, @keys);
	ledger_right($cluster, $run, 2, 'pooled');
	value('TRUNCATE ledger');
	$_->quit for $first, $second;
	$bouncer->signal('TERM');
	$bouncer->wait(20);
}

# --- tick
$run = batch_job($cluster, 'terminate', 4,
	"batch_size => 2, max_lease => '1 hour', takeover_delay => '1 min', at_max_lease => 'terminate', backoff_base => '0'");
$a = session($cluster);
($token, @keys) = claim($a, 'terminate');
$a->query("BEGIN; SELECT job_idem.hold($token); " . write_items($token, @keys));
# the other claim was made long ago; a transaction that began after its hard deadline works under it
my $b = session($cluster);
$b->query('SET job_idem.clock_offset = -7200');
my ($old, @old) = claim($b, 'terminate');
$b->query('RESET job_idem.clock_offset; BEGIN; ' . write_items($old, $old[0]) . " SELECT job_idem.mark_done($old, '$old[0]')");
tick($cluster);
ok(lives($a), 'terminate: not before the deadline');
ok(lives($b), 'terminate: not a transaction that began after the hard deadline');
tick($cluster, 3650);
ok(lives($a), 'terminate: not before takeover_delay is over');
claim($late, 'terminate');
ok(lives($a), 'terminate: not by an idle claim');
tick($cluster, 4000);
poll_until($cluster, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $a->pid, 20);
ok(lives($b), 'terminate: the young one goes on');
is(events($run), 'end_holder|1|at_max_lease', 'terminate: tick has ended the old one');
is(outcome($token), 'open', 'terminate: the claim is open still');
tick($cluster, 4000);
is(outcome($token), 'expired', 'terminate: the next pass takes it back');
$b->query("COMMIT");
is(drain($late, 'terminate'), 2, 'terminate: others do the work');
tick($cluster, 4000);
is(drain($late, 'terminate'), 1, 'terminate: also what the young one left');
ledger_right($cluster, $run, 4, 'terminate');

$cluster->stop;
done_testing();
