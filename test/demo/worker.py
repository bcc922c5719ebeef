#!/usr/bin/python3
"""The daily settlement with job_idem: a worker that may be started, killed, frozen and restarted at will.

    worker.py NAME BUSINESS_DATE

Claims a slice of merchants (committed at once), then settles each merchant in one transaction: hold, write, pay,
mark_done. So a merchant is settled once however many workers run, however often the job is triggered, and whatever
dies in between. On SIGTERM it gives back what it has not done. What it needs to know about trouble:

    JI001   the claim is no longer ours: somebody took it over. Drop it, claim again.
    JI010   this merchant is done already under this very claim: our COMMIT arrived, its answer did not. Go on.
    a lost connection: reconnect and go on with the same claim; a claim belongs to who has its token.
"""
import collections
import signal
import sys
import time

import psycopg

JOB = "settlement"
HEARTBEAT_EVERY = 50  # merchants; far more often than the lease needs it


class Worker:
    def __init__(self, name, business_date):
        self.name = name
        self.date = business_date
        self.conn = None
        self.token = None
        self.todo = collections.deque()  # merchants of the claim, still to be settled
        self.triggered = self.stopping = False
        self.settled = self.refused = self.answers_lost = self.reconnects = 0

    def sql(self, statement, *arguments):
        return self.conn.execute(statement, arguments)

    def connect(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                self.conn = psycopg.connect(autocommit=True, application_name=self.name)
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def trigger(self):
        """Opens the run of the date, or finds it. The first call lists the merchants, by the job's item_source."""
        self.sql("SELECT job_idem.open_run(%s, %s)", JOB, self.date)
        self.triggered = True

    def claim(self):
        """Takes some merchants, all under one token. False: there is nothing to do now."""
        rows = self.sql("SELECT token, item_key FROM job_idem.claim_items(%s, worker => %s, business_date => %s)",
                        JOB, self.name, self.date).fetchall()
        if not rows:
            return False
        self.token = rows[0][0]
        self.todo.extend(key for _, key in rows)
        return True

    def settle(self, merchant):
        """Settles one merchant; all of it happens, or nothing."""
        with self.conn.transaction():
            # from here to the end of the transaction nobody takes the claim over
            self.sql("SELECT job_idem.hold(%s, %s)", self.token, merchant)
            (amount,) = self.sql(
                """INSERT INTO settlement (merchant_id, settle_date, amount)
                   SELECT aid, %s::date, sum(delta) FROM pgbench_history
                   WHERE aid = %s AND mtime >= %s::date AND mtime < %s::date + 1
                   GROUP BY aid
                   RETURNING amount""", self.date, merchant, self.date, self.date).fetchone()
            self.sql("UPDATE account SET balance = balance + %s WHERE merchant_id = %s", amount, merchant)
            self.sql("SELECT job_idem.mark_done(%s, %s)", self.token, merchant)

    def settle_next(self):
        """Settles the next merchant of the claim, and knows what to do if it cannot."""
        merchant = self.todo[0]
        try:
            self.settle(merchant)
            self.settled += 1
        except psycopg.Error as error:
            if error.sqlstate == "JI001":
                print(f"{self.name}: JI001 at merchant {merchant}: claim {self.token} is not ours any more",
                      flush=True)
                self.refused += 1
                self.todo.clear()
                return
            if error.sqlstate == "JI010":
                self.answers_lost += 1
            elif self.conn.closed:
                raise
            else:
                # report it, and go on with the others: by its SQLSTATE it is tried again, or a dead letter
                self.sql("SELECT job_idem.mark_failed(%s, %s, message => %s, sqlstate => %s)", self.token, merchant,
                         str(error), error.sqlstate)
        self.todo.popleft()
        if self.todo and len(self.todo) % HEARTBEAT_EVERY == 0:
            self.heartbeat()

    def heartbeat(self):
        try:
            self.sql("SELECT job_idem.heartbeat(%s)", self.token)
        except psycopg.Error as error:
            # refused: nothing to be done here, the next transaction will be refused too
            if error.sqlstate != "JI001":
                raise

    def release(self):
        try:
            self.sql("SELECT job_idem.release(%s)", self.token)
        except psycopg.Error as error:
            if error.sqlstate != "JI001":
                raise
        self.todo.clear()

    def finished(self):
        return self.sql("SELECT job_idem.is_done(%s, %s)", JOB, self.date).fetchone()[0]

    def work(self):
        """Until the job is done for this date, or we are told to stop."""
        if not self.triggered:
            self.trigger()
        while not self.stopping:
            if self.todo or self.claim():
                self.settle_next()
            elif self.finished():
                return
            else:
                time.sleep(0.1)  # others hold the rest; should they die, our next claims take it over
        if self.todo:
            self.release()

    def run(self):
        self.connect()
        while True:
            try:
                return self.work()
            except psycopg.Error:
                if not self.conn.closed:
                    raise
                self.reconnects += 1
                self.connect()

    def stop(self, *_):
        self.stopping = True


if __name__ == "__main__":
    worker = Worker(*sys.argv[1:3])
    signal.signal(signal.SIGTERM, worker.stop)
    worker.run()
    print(f"{worker.name}: settled {worker.settled}, refused {worker.refused}, answers lost {worker.answers_lost},"
          f" reconnects {worker.reconnects}", flush=True)
