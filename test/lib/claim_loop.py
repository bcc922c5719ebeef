"""Clients that claim in a tight loop until nothing is left. Started by test/t/055_claim_exact.pl with one JSON object;
what every claim returned goes into table got (phase, token, item_key). Python 3, psycopg 3.

  job, phase     whose items; a number for the rows in got
  workers        how many clients
  options        settings, one text for each client in turn (as in PGOPTIONS)
  after          keep | release | complete: what is done with a claim; release comes when all is claimed
"""
import json
import os
import random
import sys
import traceback

import psycopg


def claim_all(connection, config):
    """Claims until there is nothing twice in a row; returns [(token, keys)]."""
    claims = []
    empty = 0
    while empty < 2:
        rows = connection.execute("SELECT token, item_key FROM job_idem.claim_items(%s)", [config["job"]]).fetchall()
        empty = 0 if rows else empty + 1
        if not rows:
            continue
        if len({token for token, _ in rows}) != 1:
            raise AssertionError(f"one claim returned several tokens: {rows}")
        claims.append((rows[0][0], [key for _, key in rows]))
        if config["after"] == "complete":
            connection.execute("SELECT job_idem.mark_all_done(%s, %s)", [rows[0][0], len(rows)])
    return claims


def work(number, config):
    options = config["options"][number % len(config["options"])]
    with psycopg.connect(autocommit=True, options=options, prepare_threshold=None) as connection:
        claims = claim_all(connection, config)
        for token, keys in claims:
            connection.execute("INSERT INTO got SELECT %s, %s, unnest(%s::text[])", [config["phase"], token, keys])
    return claims


def release(number, config, claims):
    with psycopg.connect(autocommit=True, prepare_threshold=None) as connection:
        for token, _ in random.Random(config["seed"] + number).sample(claims, len(claims)):
            connection.execute("SELECT job_idem.release(%s)", [token])


def client(number, config, claimed, go_on):
    """Says that it has claimed all, and waits for the others before it gives back."""
    try:
        claims = work(number, config)
        os.write(claimed, b"x")
        os.read(go_on, 1)
        if config["after"] == "release":
            release(number, config, claims)
        os._exit(0)
    except BaseException:
        sys.stderr.write(f"client {number}: {traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(3)


def main(config):
    ready, claimed = os.pipe()
    go_on, gate = os.pipe()
    pids = []
    for number in range(config["workers"]):
        pid = os.fork()
        if pid == 0:
            os.close(gate)
            os.close(ready)
            client(number, config, claimed, go_on)
        pids.append(pid)
    os.close(claimed)
    waiting = config["workers"]
    while waiting:
        said = os.read(ready, 1)
        if not said:
            break
        waiting -= 1
    os.close(gate)
    return 1 if any([os.waitpid(pid, 0)[1] for pid in pids]) else 0


sys.exit(main(json.loads(sys.argv[1])))
