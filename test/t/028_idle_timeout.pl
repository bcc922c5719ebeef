# idle_in_transaction_session_timeout strikes between claim and mark_done: the caller is told (25P03), nothing of its
# transaction stays, and the items come back: those of a committed claim when the lease is over, those of a bound one and
# of a claim that was not committed at once.
# C59.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
make_ledger($cluster);

my $end = session($cluster, options => '-c job_idem.clock_offset=301');
for my $how ('committed', 'bound', 'uncommitted')
{
	my $run = batch_job($cluster, $how, 3, "batch_size => 3, backoff_base => '0'");
	my $worker = session($cluster);
	my ($token, @keys);

	# in one message, so that the time-out cannot strike before its end
	$worker->query("SET idle_in_transaction_session_timeout = '50 ms'");
	($token, @keys) = claim($worker, $how, $how eq 'bound' ? ', bind => true' : '') if $how ne 'uncommitted';
	$worker->query('BEGIN\; ' . ($how eq 'uncommitted'
		? "INSERT INTO ledger (item_key, token) SELECT item_key, token FROM job_idem.claim_items('$how')"
		: "SELECT job_idem.hold($token)\\; " . write_items($token, @keys) =~ s/;//r));
	poll_until($cluster, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $worker->pid, 20);
	isnt($worker->query_error("SELECT job_idem.mark_done($token, '$keys[0]')"), '', "$how: mark_done fails") if @keys;
	isnt($worker->query_error('COMMIT'), '', "$how: so does the end of its transaction") if !@keys;
	like($worker->errors, qr/^FATAL:  25P03:/m, "$how: the caller is told why");
	is($cluster->safe_psql('postgres', 'SELECT count(*) FROM ledger'), 0, "$how: nothing of the transaction stays");
	tick($cluster);
	my $other = session($cluster);
	is(drain($other, $how), $how eq 'committed' ? 0 : 3, "$how: what can be had at once");
	if ($how eq 'committed')
	{
		is($other->query("SELECT outcome FROM job_idem.claim_status($token)"), 'open', "$how: its lease goes on");
		tick($cluster, 301);
		is(drain($end, $how), 3, "$how: then its items come back");
	}
	is($cluster->safe_psql('postgres', "SELECT DISTINCT state, attempts, lost FROM job_idem.items WHERE run_id = $run"),
		'done|0|' . ($how eq 'uncommitted' ? 0 : 1), "$how: no try is counted");
	ledger_right($cluster, $run, 3, $how);
	$cluster->safe_psql('postgres', 'TRUNCATE ledger');
}

$cluster->stop;
done_testing();
