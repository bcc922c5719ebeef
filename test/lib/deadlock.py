"""Clients that call every verb, in transactions of a few, against each other. Started by test/t/065_deadlock.pl with
one JSON object; prints one with how often each verb went through, and which pairs of verbs never met. Python 3,
psycopg 3.

  seed, workers, seconds
  keys           how many keys a transaction claims with claim_item, at most
  lock_timeout   how long any of them may wait for a lock

Job `batch` has a run that goes on, fed by late items, and runs that come and go; job `keyed` has keys that appear as
they are claimed. Transactions keep to the lock order where two calls of one transaction could break it: one verb about
a job or a run, and that first (keys just claimed would wait for it); then verbs about leases and items in any order, on
leases of the client's own (threads of one lease may deadlock: each call locks in order, two calls need not); what takes
leases of others, expire_lease and a claim that finds nothing, comes last.
An SQLSTATE that a verb does not announce ends the whole with exit status 1.
"""
import itertools
import json
import multiprocessing
import os
import random
import sys
import time
import traceback

import psycopg

ON_RUNS = ("define_job", "pause_job", "resume_job", "open_run", "add_items", "add_keys", "load_items", "seal_run",
           "cancel_run", "replay", "replay_run", "discard")
ON_CLAIMS = ("claim_items", "claim_item", "mark_done", "mark_done_many", "mark_all_done", "mark_failed", "postpone",
             "release", "heartbeat", "hold", "step_done", "claim_status", "expire_lease", "audit")
ALONE = ("tick",)
VERBS = ON_RUNS + ON_CLAIMS + ALONE
ANNOUNCED = {"JI001", "JI004", "JI010", "55P03"}
N_KEYS = 200


class Enough(Exception):
    """The transaction is to commit now."""


class Worker:
    def __init__(self, config, number, masks, pairs, calls):
        self.config = config
        self.number = number
        self.masks = masks
        self.pairs = pairs
        self.calls = calls
        self.random = random.Random(config["seed"] * 1000 + number)
        self.leases = {}
        self.connection = psycopg.connect(autocommit=True, prepare_threshold=None,
                                          application_name=f"deadlock-{number}")
        self.query("SELECT set_config('lock_timeout', %s, false)", config["lock_timeout"])

    def query(self, sql, *arguments):
        cursor = self.connection.execute(sql, arguments)
        return cursor.fetchall() if cursor.description else []

    def run(self):
        end = time.monotonic() + self.config["seconds"]
        while time.monotonic() < end:
            self.transaction()

    def transaction(self):
        if self.random.random() < 0.05:
            self.call("tick")
            self.masks[self.number] = 0
            return
        verbs = self.random.choices(ON_CLAIMS, k=self.random.randint(1, 4))
        if self.random.random() < 0.5:
            verbs.insert(0, self.random.choice(ON_RUNS))
        verbs.sort(key="expire_lease".__eq__)
        self.n_keys = 0
        leases = {token: list(keys) for token, keys in self.leases.items()}
        try:
            self.query("BEGIN")
            try:
                for verb in verbs:
                    self.call(verb)
            except Enough:
                pass
            if self.random.random() < 0.9:
                self.query("COMMIT")
            else:
                self.query("ROLLBACK")
                self.leases = leases
        except psycopg.Error as error:
            self.query("ROLLBACK")
            if error.sqlstate not in ANNOUNCED:
                raise
            self.leases = leases
            if error.sqlstate in ("JI001", "JI004", "JI010") and leases:
                del self.leases[self.random.choice(list(leases))]
        self.masks[self.number] = 0

    def call(self, verb):
        """Notes the verb as met by all that the others' open transactions have called."""
        number = VERBS.index(verb)
        self.masks[self.number] |= 1 << number
        for other, mask in enumerate(self.masks):
            if other != self.number and mask:
                for met in range(len(VERBS)):
                    if mask >> met & 1:
                        self.pairs[number * len(VERBS) + met] += 1
        getattr(self, verb)()
        self.calls[number] += 1

    def lease(self):
        """One of our leases, and what is left of it, shuffled; after a claim if there is none."""
        if not self.leases:
            self.claim_items()
        token = self.random.choice(list(self.leases))
        return token, self.random.sample(self.leases[token], len(self.leases[token]))

    def some_keys(self):
        """Known ones, and new ones that others are about to add as well, shuffled."""
        known = [f"k{self.random.randint(1, N_KEYS)}" for _ in range(5)]
        now = int(time.monotonic() * 20)
        return self.random.sample(known + [f"n{now + self.random.randint(0, 10)}" for _ in range(8)], 13)

    def some_run(self):
        rows = self.query("SELECT run_id FROM job_idem.runs WHERE job = 'batch' ORDER BY run_id DESC LIMIT 3")
        rows += self.query("SELECT run_id FROM job_idem.runs WHERE job = 'batch' AND run_key = 'main'")
        return self.random.choice(rows)[0]

    def new_date(self):
        return "2026-01-01", f"side {int(time.time()) % 10**6}-{self.random.randint(1, 2)}"

    # --- jobs and runs

    def define_job(self):
        self.query("SELECT job_idem.define_job('batch', batch_size => 10, lease => '100 ms', max_attempts => %s,"
                   " backoff_base => '1 ms', backoff_max => '5 ms', close_after => '100 years')",
                   self.random.choice([2, 3]))

    def pause_job(self):
        self.query("SELECT job_idem.pause_job('batch')")
        self.query("SELECT job_idem.resume_job('batch')")

    def resume_job(self):
        self.query("SELECT job_idem.resume_job('batch')")

    def open_run(self):
        self.query("SELECT job_idem.open_run('batch', %s, %s)", *self.new_date())

    def add_items(self):
        self.query("SELECT job_idem.add_items(%s, %s::text[])", self.some_run(), self.some_keys())

    def add_keys(self):
        self.query("SELECT job_idem.add_items((SELECT run_id FROM job_idem.runs WHERE job = 'keyed'), %s::text[])",
                   self.some_keys())

    def load_items(self):
        self.query("SELECT job_idem.load_items(%s, $$SELECT 'k' || i FROM generate_series(1, 30) i"
                   " ORDER BY random()$$)", self.some_run())

    def seal_run(self):
        self.query("SELECT job_idem.seal_run(%s)", self.some_run())

    def cancel_run(self):
        self.query("SELECT job_idem.cancel_run(run_id, 'test', %s) FROM job_idem.runs WHERE job = 'batch'"
                   " AND run_key <> 'main' AND state IN ('loading', 'running', 'partial') ORDER BY run_id LIMIT 1",
                   self.random.random() < 0.5)

    def dead_letter(self):
        rows = self.query("SELECT dead_letter_id FROM job_idem.dead_letters WHERE status = 'open' LIMIT 20")
        return self.random.choice(rows)[0] if rows else None

    def replay(self):
        letter = self.dead_letter()
        if letter is not None:
            self.query("SELECT job_idem.replay(%s)", letter)

    def replay_run(self):
        self.query("SELECT job_idem.replay_run(%s)", self.some_run())

    def discard(self):
        letter = self.dead_letter()
        if letter is not None:
            self.query("SELECT job_idem.discard(%s)", letter)

    def tick(self):
        self.query("CALL job_idem.tick()")

    # --- claims and what is done under them

    def claim_items(self):
        job = self.random.choice(["batch", "batch", "keyed"])
        lease = self.random.choice([None, "1 microsecond", "1 minute"])
        rows = self.query("SELECT token, item_key FROM job_idem.claim_items(%s, lease => %s::interval)", job, lease)
        if not rows:
            raise Enough()
        for token, key in rows:
            self.leases.setdefault(token, []).append(key)

    def claim_item(self):
        """New keys; several in a transaction only as far as the configuration says."""
        for key in self.some_keys():
            if self.n_keys == self.config["keys"]:
                break
            self.n_keys += 1
            outcome, token = self.query("SELECT outcome, token"
                                        " FROM job_idem.claim_item('keyed', '2026-01-01', %s)", key)[0]
            if outcome == "claimed":
                self.leases[token] = [key]

    def forget(self, token, keys):
        self.leases[token] = [key for key in self.leases[token] if key not in keys]
        if not self.leases[token]:
            del self.leases[token]

    def one(self, sql, *arguments):
        token, keys = self.lease()
        self.query(sql, token, keys[0], *arguments)
        self.forget(token, keys[:1])

    def mark_done(self):
        self.one("SELECT job_idem.mark_done(%s, %s)")

    def mark_failed(self):
        self.one("SELECT job_idem.mark_failed(%s, %s, transient => %s)", self.random.random() < 0.5)

    def postpone(self):
        self.one("SELECT job_idem.postpone(%s, %s, '0')")

    def mark_done_many(self):
        token, keys = self.lease()
        keys = keys[:self.random.randint(1, len(keys))]
        self.query("SELECT job_idem.mark_done_many(%s, %s::text[])", token, keys + keys[:1])
        self.forget(token, keys)

    def mark_all_done(self):
        token, keys = self.lease()
        n_items = self.query("SELECT n_items FROM job_idem.claim_status(%s)", token)[0][0]
        if n_items == len(keys):
            self.query("SELECT job_idem.mark_all_done(%s, %s)", token, len(keys))
            del self.leases[token]

    def release(self):
        token, keys = self.lease()
        self.query("SELECT job_idem.release(%s)", token)
        del self.leases[token]

    def heartbeat(self):
        token, keys = self.lease()
        self.query("SELECT job_idem.heartbeat(%s)", token)

    def hold(self):
        token, keys = self.lease()
        self.query("SELECT job_idem.hold(%s, %s)", token, self.random.choice([None, keys[0]]))

    def step_done(self):
        token, keys = self.lease()
        self.query("SELECT job_idem.step_done(%s, %s, %s)", token, keys[0], f"step {self.random.random()}")

    def claim_status(self):
        token, keys = self.lease()
        self.query("SELECT job_idem.claim_status(%s)", token)

    def expire_lease(self):
        """Anybody's."""
        rows = self.query("SELECT token FROM job_idem.leases WHERE outcome = 'open' ORDER BY token LIMIT 20")
        if rows:
            self.query("SELECT job_idem.expire_lease(%s, 'test')", self.random.choice(rows)[0])

    def audit(self):
        rows = self.query("SELECT * FROM job_idem.audit(%s)", self.some_run())
        if rows:
            raise AssertionError(f"audit: {rows[:3]}")


def work(*arguments):
    try:
        Worker(*arguments).run()
        os._exit(0)
    except BaseException:
        sys.stderr.write(f"worker {arguments[1]}: {traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(3)


def main(config):
    n_verbs = len(VERBS)
    masks = multiprocessing.RawArray("q", config["workers"])
    pairs = [multiprocessing.RawArray("q", n_verbs * n_verbs) for _ in range(config["workers"])]
    calls = [multiprocessing.RawArray("q", n_verbs) for _ in range(config["workers"])]
    pids = []
    for number in range(config["workers"]):
        pid = os.fork()
        if pid == 0:
            work(config, number, masks, pairs[number], calls[number])
        pids.append(pid)
    failed = any([os.waitpid(pid, 0)[1] for pid in pids])

    def met(one, other):
        return any(p[one * n_verbs + other] or p[other * n_verbs + one] for p in pairs)

    never = [f"{VERBS[one]} x {VERBS[other]}"
             for one, other in itertools.combinations_with_replacement(range(n_verbs), 2) if not met(one, other)]
    print(json.dumps({"calls": {verb: sum(c[number] for c in calls) for number, verb in enumerate(VERBS)},
                      "never_met": never}, sort_keys=True))
    return 1 if failed else 0


sys.exit(main(json.loads(sys.argv[1])))
