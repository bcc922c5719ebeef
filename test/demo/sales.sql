-- A sale, as a pgbench transaction: a merchant takes 1 to 5000 cents. A few fall on the day before or after.
\set aid random(1, 100000 * :scale)
\set bid (:aid - 1) / 100000 + 1
\set tid random((:bid - 1) * 10 + 1, :bid * 10)
\set cents random(1, 5000)
\set second random(-3600, 90000 - 1)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :cents WHERE aid = :aid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
	VALUES (:tid, :bid, :aid, :cents, :business_date + :second * interval '1 second');
END;
