"""Many real clients at work on one run at once, some of them killed. Started by test/t/050_ablation.pl and
060_stress.pl with one JSON object; prints one with what happened. Python 3, psycopg 3.

  run_id, job    the run and its job; items are paid by pay(token, keys), see Stress.pm
  seed           of all random choices
  workers        how many clients; the first `repeatable` of them work at REPEATABLE READ
  plans          {plan: weight}, see class Worker: how a claim is worked
  leases         what claims ask for; null: the job's
  one            share of claims that are worked in the claim's own transaction
  repeat         share of transactions that are done again, as after a lost answer to COMMIT
  kill_every     mean seconds between kills (of the client, of its backend, or the client stopped for a while)
  tick_every     seconds between ticks; null: nobody ticks, idle claims alone heal
  operator       true: leases are ended and dead letters replayed all the while
  seconds        after so many, kills and odd plans end and the rest is worked plainly
  need           but not before each of these was counted, or half of limit is over
  limit          after so many, everything is ended

Workers end by themselves when the run is finished. An SQLSTATE that a worker need not expect ends the whole with
exit status 1; what a transaction wrote that ended in an error is rolled back, as any client must do.
"""
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback

import psycopg

COUNTERS = ("claims", "empty", "rows", "committed", "stale", "already", "serialization", "repeats", "repeats_done",
            "lost_connections")
DISCONNECTED = {None, "57P01", "57P02", "57P03", "08000", "08003", "08006", "25P03"}


class Disconnected(Exception):
    pass


class Refused(Exception):
    """The claim is not, or no longer, ours; the transaction is rolled back."""


class Client:
    """A connection, whose errors are told apart."""

    def __init__(self, name, isolation, count):
        self.isolation = isolation
        self.count = count
        try:
            self.connection = psycopg.connect(autocommit=True, application_name=name, prepare_threshold=None)
        except psycopg.OperationalError as error:
            raise Disconnected() from error

    def close(self):
        self.connection.close()

    def query(self, sql, *arguments):
        try:
            cursor = self.connection.execute(sql, arguments)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            if error.sqlstate in DISCONNECTED or not self.roll_back():
                raise Disconnected() from error
            if error.sqlstate == "JI001":
                self.count("stale")
                raise Refused() from error
            if error.sqlstate == "JI010":
                self.count("already")
                raise Refused() from error
            if error.sqlstate == "40001" and self.isolation:
                self.count("serialization")
                raise Refused() from error
            raise

    def roll_back(self):
        """False: the connection is gone, and the transaction with it."""
        try:
            self.connection.execute("ROLLBACK")
            return True
        except psycopg.OperationalError:
            return False

    def begin(self):
        self.query("BEGIN ISOLATION LEVEL REPEATABLE READ" if self.isolation else "BEGIN")

    def commit(self):
        self.query("COMMIT")
        self.count("committed")

    def pay(self, token, keys):
        """The business write: ledger and balance, see Stress.pm."""
        self.query("SELECT pay(%s, %s::text[])", token, keys)

    def mark(self, token, key):
        self.query("SELECT job_idem.mark_done(%s, %s)", token, key)

    def mark_many(self, token, keys):
        self.query("SELECT job_idem.mark_done_many(%s, %s::text[])", token, keys)

    def mark_all(self, token, items, except_keys=()):
        self.query("SELECT job_idem.mark_all_done(%s, %s, %s::text[])", token, items, list(except_keys))


class Worker:
    def __init__(self, config, number, seed, counters, draining):
        self.config = config
        self.name = f"stress-{number}"
        self.random = random.Random(seed)
        self.counters = counters
        self.draining = draining
        self.isolation = number < config.get("repeatable", 0)
        self.abandoned = []
        self.second = None

    def count(self, name, n=1):
        self.counters[COUNTERS.index(name)] += n

    def run(self):
        while True:
            try:
                self.client = Client(self.name, self.isolation, self.count)
                while self.step():
                    pass
                return
            except Disconnected:
                self.count("lost_connections")
                self.second = None
                time.sleep(0.01)

    def other(self):
        """A second connection of the same worker, for threads and heartbeats."""
        if self.second is None:
            self.second = Client(self.name, self.isolation, self.count)
        return self.second

    def is_finished(self):
        return self.client.query("SELECT state IN ('done', 'cancelled') FROM job_idem.runs WHERE run_id = %s",
                                 self.config["run_id"])[0][0]

    def claim(self):
        lease = self.random.choice(self.config.get("leases") or [None])
        rows = self.client.query("SELECT token, item_key FROM job_idem.claim_items(%s, %s, lease => %s::interval)",
                                 self.config["job"], self.name, lease)
        self.count("claims")
        self.count("rows", len(rows))
        if len({token for token, _ in rows}) > 1:
            raise AssertionError(f"one claim, several tokens: {rows}")
        return rows[0][0] if rows else None, [key for _, key in rows]

    def step(self):
        """One claim and its work; false when the run is finished."""
        try:
            if self.draining.value or self.random.random() < self.config.get("one", 0):
                keys = self.claim_and_work()
            else:
                token, keys = self.claim()
                if keys:
                    self.work(token, keys)
        except Refused:
            return True
        if keys:
            return True
        self.count("empty")
        if self.is_finished():
            return False
        time.sleep(self.random.uniform(0, 0.02))
        return True

    def claim_and_work(self):
        """Claim, work and completion in one transaction; an empty claim must not have written before it."""
        self.client.begin()
        token, keys = self.claim()
        if keys and not self.draining.value and self.random.random() < 0.1:
            self.client.query("ROLLBACK")
            return keys
        if keys:
            self.client.pay(token, keys)
            self.client.mark_all(token, len(keys))
        self.client.commit()
        return keys

    def work(self, token, keys):
        plans = self.config["plans"]
        plan = self.random.choices(list(plans), plans.values())[0]
        getattr(self, "plan_" + plan)(token, keys)

    def again(self):
        return self.random.random() < self.config.get("repeat", 0)

    def effect(self, client, token, keys, mark):
        """Business write and completion in one transaction; sometimes sent again, as if COMMIT had no answer."""
        client.begin()
        client.pay(token, keys)
        mark(client)
        client.commit()
        if not self.again():
            return
        self.count("repeats")
        try:
            client.begin()
            client.pay(token, keys)
            mark(client)
            client.commit()
            self.count("repeats_done")
        except Refused:
            pass

    def shuffled(self, keys):
        return self.random.sample(keys, len(keys))

    def plan_whole(self, token, keys):
        self.effect(self.client, token, keys, lambda client: client.mark_all(token, len(keys)))

    def plan_single(self, token, keys):
        for key in self.shuffled(keys):
            self.effect(self.client, token, [key], lambda client, key=key: client.mark(token, key))

    def plan_together(self, token, keys):
        """One by one in one transaction."""
        keys = sorted(keys)

        def mark(client):
            for key in keys:
                client.mark(token, key)

        self.effect(self.client, token, keys, mark)

    def plan_many(self, token, keys):
        keys = self.shuffled(keys)
        size = self.random.randint(1, len(keys))
        for start in range(0, len(keys), size):
            part = keys[start:start + size]
            self.effect(self.client, token, part, lambda client, part=part: client.mark_many(token, part + part[:1]))

    def give_up(self, token, key):
        """A failure or a postponement, in a transaction of its own."""
        if self.random.random() < 0.5:
            self.client.query("SELECT job_idem.postpone(%s, %s, %s * interval '1 ms')", token, key,
                              self.random.randint(0, 30))
        else:
            transient = self.random.random() < self.config.get("transient", 1)
            self.client.query("SELECT job_idem.mark_failed(%s, %s, 'no', transient => %s)", token, key, transient)

    def plan_except(self, token, keys):
        keys = self.shuffled(keys)
        cut = self.random.randint(0, min(3, len(keys) - 1))
        for key in keys[:cut]:
            self.give_up(token, key)
        rest = keys[cut:]
        self.effect(self.client, token, rest, lambda client: client.mark_all(token, len(rest), keys[:cut]))

    def plan_mixed(self, token, keys):
        """A bit of everything; what is left is released."""
        keys = self.shuffled(keys)
        cuts = sorted(self.random.randint(0, len(keys)) for _ in range(3))
        self.plan_single(token, keys[:cuts[0]])
        if cuts[1] > cuts[0]:
            self.plan_many(token, keys[cuts[0]:cuts[1]])
        for key in keys[cuts[1]:cuts[2]]:
            self.give_up(token, key)
        self.client.query("SELECT job_idem.heartbeat(%s)", token)
        self.client.query("SELECT job_idem.release(%s)", token)

    def plan_abandon(self, token, keys):
        """Walks away; sometimes comes back much later and completes, if nobody took the claim meanwhile."""
        self.abandoned.append((token, keys))
        if len(self.abandoned) > 3:
            token, keys = self.abandoned.pop(0)
            self.random.choice([self.plan_whole, self.plan_single, self.plan_many])(token, keys)

    def plan_savepoint(self, token, keys):
        """What a savepoint took back is open again, and can be done once, also when it had closed the lease."""
        for key in self.shuffled(keys):
            self.client.begin()
            self.client.query("SAVEPOINT s")
            self.client.pay(token, [key])
            self.client.mark(token, key)
            self.client.query("ROLLBACK TO s")
            if self.random.random() < 0.8:
                self.client.pay(token, [key])
                self.client.mark(token, key)
            self.client.commit()
        self.client.query("SELECT job_idem.release(%s)", token)

    def plan_rollback(self, token, keys):
        self.client.begin()
        self.client.pay(token, keys)
        self.client.mark_all(token, len(keys))
        self.client.query("ROLLBACK")
        if self.random.random() < 0.5:
            self.plan_whole(token, keys)

    def plan_hold(self, token, keys):
        """A long transaction under hold, with heartbeats from another connection."""
        self.client.begin()
        self.client.query("SELECT job_idem.hold(%s)", token)
        self.client.pay(token, keys)
        for _ in range(3):
            self.other().query("SELECT job_idem.heartbeat(%s, interval '100 ms')", token)
        self.client.mark_all(token, len(keys))
        self.client.commit()

    def plan_race(self, token, keys):
        """Two threads of one lease, each after all of it: item by item, or both the whole."""
        whole = self.random.random() < 0.3
        problems = []
        orders = [self.shuffled(keys), self.shuffled(keys)]

        def thread(client, order):
            try:
                parts = [order] if whole else [[key] for key in order]
                for part in parts:
                    try:
                        client.begin()
                        client.pay(token, part)
                        if whole:
                            client.mark_all(token, len(part))
                        else:
                            client.mark(token, part[0])
                        client.commit()
                    except Refused:
                        pass
            except Exception as problem:
                problems.append(problem)

        beside = threading.Thread(target=thread, args=(self.other(), orders[1]))
        beside.start()
        thread(self.client, orders[0])
        beside.join()
        if problems:
            raise problems[0]


def work(config, number, seed, counters, draining):
    try:
        Worker(config, number, seed, counters, draining).run()
        status = 0
    except BaseException:
        sys.stderr.write(f"worker {number}: {traceback.format_exc()}")
        sys.stderr.flush()
        status = 3
    # no destructors: what the parent had open is the parent's
    os._exit(status)


def tick(config, draining):
    """Somebody who ticks; ends with the parent."""
    try:
        connection = psycopg.connect(autocommit=True, application_name="stress-tick")
        while True:
            connection.execute("CALL job_idem.tick()")
            time.sleep(config["tick_every"])
    except BaseException:
        sys.stderr.write(f"tick: {traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(3)


def operate(config, seed, draining):
    """An operator at work: ends claims, replays dead letters, adds keys that are there already."""
    choice = random.Random(seed)
    try:
        connection = psycopg.connect(autocommit=True, application_name="stress-operator")
        while True:
            if choice.random() < 0.3:
                connection.execute("SELECT job_idem.replay_run(%s)", [config["run_id"]])
            letters = connection.execute("SELECT dead_letter_id FROM job_idem.dead_letters WHERE run_id = %s"
                                         " AND status = 'open' LIMIT 5", [config["run_id"]]).fetchall()
            for letter, in letters:
                connection.execute("SELECT job_idem.replay(%s)", [letter])
            leases = connection.execute("SELECT token FROM job_idem.leases WHERE run_id = %s AND outcome = 'open'",
                                        [config["run_id"]]).fetchall()
            if leases and not draining.value:
                try:
                    connection.execute("SELECT job_idem.expire_lease(%s, 'test')", choice.choice(leases))
                except psycopg.errors.LockNotAvailable:
                    pass
            try:
                connection.execute("SELECT * FROM job_idem.add_items(%s, (SELECT array_agg(account ORDER BY random())"
                                   " FROM (SELECT account FROM balance LIMIT 50) b))", [config["run_id"]])
            except psycopg.Error as error:
                if error.sqlstate != "JI004":
                    raise
            time.sleep(0.05)
    except BaseException:
        sys.stderr.write(f"operator: {traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(3)


class Supervisor:
    def __init__(self, config):
        self.config = config
        self.random = random.Random(config["seed"])
        self.counters = [multiprocessing.RawArray("q", len(COUNTERS)) for _ in range(config["workers"])]
        self.draining = multiprocessing.RawValue("b", 0)
        self.working = {}
        self.helpers = {}
        self.stopped = {}
        self.events = {"killed": 0, "terminated": 0, "stopped": 0}
        self.failed = False
        self.connection = None

    def fork(self, function, *arguments):
        pid = os.fork()
        if pid == 0:
            function(*arguments)
            os._exit(0)
        return pid

    def start(self, number):
        pid = self.fork(work, self.config, number, self.random.random(), self.counters[number], self.draining)
        self.working[pid] = number

    def reap(self):
        while self.working or self.helpers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self.helpers:
                del self.helpers[pid]
                self.failed = True
                continue
            number = self.working.pop(pid)
            self.stopped.pop(pid, None)
            if os.WIFSIGNALED(status):
                self.start(number)
            elif os.WEXITSTATUS(status) != 0:
                self.failed = True

    def kill_one(self):
        pid = self.random.choice(list(self.working))
        what = self.random.choice(["killed", "killed", "terminated", "stopped"])
        self.events[what] += 1
        if what == "killed":
            os.kill(pid, signal.SIGKILL)
        elif what == "stopped":
            os.kill(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + self.random.uniform(0, 0.3)
        else:
            self.connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                    " WHERE application_name = %s", [f"stress-{self.working[pid]}"])

    def wake(self, everybody=False):
        for pid, until in list(self.stopped.items()):
            if everybody or time.monotonic() > until:
                os.kill(pid, signal.SIGCONT)
                del self.stopped[pid]

    def start_all(self):
        for number in range(self.config["workers"]):
            self.start(number)
        if self.config.get("tick_every") is not None:
            self.helpers[self.fork(tick, self.config, self.draining)] = "tick"
        if self.config.get("operator"):
            self.helpers[self.fork(operate, self.config, self.random.random(), self.draining)] = "operator"
        self.connection = psycopg.connect(autocommit=True)

    def happened(self):
        sums = {name: sum(counters[i] for counters in self.counters) for i, name in enumerate(COUNTERS)}
        return dict(self.events, **sums)

    def has_needed(self):
        happened = self.happened()
        return all(happened[name] for name in self.config.get("need", ()))

    def run(self):
        begin = time.monotonic()
        next_kill = begin
        self.start_all()
        while self.working and not self.failed:
            now = time.monotonic()
            if now - begin > self.config["limit"]:
                sys.stderr.write("not finished in time\n")
                self.failed = True
            if now - begin > (self.config["seconds"] if self.has_needed() else self.config["limit"] / 2):
                self.draining.value = 1
            self.wake(everybody=self.draining.value)
            if not self.draining.value and self.config.get("kill_every") and now >= next_kill:
                self.kill_one()
                next_kill = now + self.random.expovariate(1 / self.config["kill_every"])
            self.reap()
            time.sleep(0.005)
        for pid in [*self.working, *self.helpers]:
            os.kill(pid, signal.SIGKILL)
        result = dict(self.happened(), seconds=round(time.monotonic() - begin, 1))
        print(json.dumps(result, sort_keys=True))
        return 1 if self.failed else 0


sys.exit(Supervisor(json.loads(sys.argv[1])).run())
