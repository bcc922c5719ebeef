#!/usr/bin/python3
"""The daily settlement as it is often written, and as it goes wrong: list, loop, write.

    naive.py BUSINESS_DATE

Reads nothing but the database, writes each merchant in a transaction of its own, and even leaves out those that are
settled already. Run once, it is right. Triggered three times at the same moment it pays up to three times: all three
list the same merchants before any of them has written one.
"""
import sys

import psycopg

business_date = sys.argv[1]
settled = 0

with psycopg.connect(autocommit=True) as conn:
    print("ready", flush=True)
    sys.stdin.readline()  # the trigger
    merchants = conn.execute(
        """SELECT merchant_id FROM accident.due d WHERE NOT EXISTS (
               SELECT FROM accident.settlement s
               WHERE s.merchant_id = d.merchant_id AND s.settle_date = d.settle_date)
           ORDER BY merchant_id""").fetchall()
    for (merchant,) in merchants:
        with conn.transaction():
            (amount,) = conn.execute(
                """INSERT INTO accident.settlement (merchant_id, settle_date, amount)
                   SELECT aid, %(date)s::date, sum(delta) FROM pgbench_history
                   WHERE aid = %(merchant)s AND mtime >= %(date)s::date AND mtime < %(date)s::date + 1
                   GROUP BY aid
                   RETURNING amount""", {"merchant": merchant, "date": business_date}).fetchone()
            conn.execute("UPDATE accident.account SET balance = balance + %s WHERE merchant_id = %s",
                         (amount, merchant))
        settled += 1

print(f"settled {settled}")
