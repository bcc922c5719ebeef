# Tokens only grow: whoever takes an item over has a larger one, so that a receiver outside can refuse the late.
#
# Sixteen connections take items over from one another, again and again: claimed, lost, expired by the idle claims of the
# others, claimed. In the order in which the claims of an item were committed its tokens grow. Each claim is also reported
# to a receiver that keeps the largest token of each item: it never takes a message of a worker after one of its successor,
# and refuses the late ones.
# F16.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use JobIdem;
use Ledger;

my $cluster = new_cluster('main');
my $takeovers = scaled(2_000, 10_000);
my $workers = 16;
my $items = 40;
my $run = batch_job($cluster, 'takeovers', $items, "batch_size => 1, max_attempts => 32767, lease => '1 ms', backoff_base => '0'");

# The receiver: keeps the largest token for each item. A message with a smaller one is refused.
$cluster->safe_psql('postgres', <<'SQL');
CREATE TABLE receiver (item_key text PRIMARY KEY, token bigint NOT NULL, taken bigint NOT NULL DEFAULT 0);
CREATE TABLE claims (n bigserial PRIMARY KEY, item_key text, token bigint);
CREATE FUNCTION receive(k text, t bigint) RETURNS boolean LANGUAGE sql AS $$
	INSERT INTO receiver AS r (item_key, token) VALUES (k, t)
	ON CONFLICT (item_key) DO UPDATE SET token = t, taken = r.taken + 1 WHERE r.token < t
	RETURNING true
$$;
-- claims, and writes down the claim in its transaction: the item is nobody else's until that is committed. Then tells the
-- receiver, perhaps too late, and comes again with the claim before this one, which is surely late.
CREATE PROCEDURE take(job text, enough bigint) LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	k text;
	old_t bigint;
	old_k text;
BEGIN
	LOOP
		SELECT token, item_key INTO t, k FROM job_idem.claim_items(job);
		IF t IS NOT NULL THEN INSERT INTO claims (item_key, token) VALUES (k, t); END IF;
		COMMIT;
		EXIT WHEN (SELECT count(*) FROM claims) >= enough;
		CONTINUE WHEN t IS NULL;
		PERFORM receive(k, t);
		COMMIT;
		IF EXISTS (SELECT FROM receiver WHERE item_key = old_k AND token > old_t) AND receive(old_k, old_t) THEN
			RAISE EXCEPTION 'a late message of % was taken', old_k;
		END IF;
		COMMIT;
		old_t := t;
		old_k := k;
	END LOOP;
END
$$;
SQL
my @sessions = map { session($cluster) } 1 .. $workers;
$_->start_query("CALL take('takeovers', $takeovers)") for @sessions;
is($_->finish_error, '', 'a worker ends') or diag($_->errors) for @sessions;
cmp_ok($cluster->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT item_key) FROM claims'), '>=', $takeovers - $items, 'takeovers');
is($cluster->safe_psql('postgres', <<'SQL'), 0, "tokens of an item grow in the order of its claims");
SELECT count(*) FROM (SELECT token <= lag(token) OVER (PARTITION BY item_key ORDER BY n) AS smaller FROM claims) c WHERE smaller
SQL
is($cluster->safe_psql('postgres', 'SELECT count(*) FROM receiver r JOIN claims c USING (item_key, token)'), $items,
	'the receiver has heard of every item');
cmp_ok($cluster->safe_psql('postgres', 'SELECT sum(taken) FROM receiver'), '>', 0, 'and of takeovers');
audit_empty($cluster, $run);
$_->quit for @sessions;
$cluster->safe_psql('postgres', "SELECT job_idem.cancel_run($run, 'enough')");

$cluster->stop;
done_testing();
