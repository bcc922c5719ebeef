"""Compares random schedules with croniter, a cron of other people. Started by test/t/057_croniter.pl with one JSON object:

  seed, schedules, fires    random numbers; how many schedules, and how many instants of each

Prints a line for each schedule that differs, and at the end how many were compared. Only what both understand alike is
asked (see below); UTC, since croniter follows the wall clock otherwise. Python 3, psycopg 3, croniter.
"""
import datetime
import json
import random
import sys

import psycopg
from croniter import croniter

UTC = datetime.timezone.utc
MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
DAYS = "SUN MON TUE WED THU FRI SAT".split()


def part(rng, low, high, names):
    """One element of a list: a number or name, a range, or a step over one."""
    def show(number):
        return rng.choice([str(number), names[number - low]]) if names and number - low < len(names) else str(number)

    kind = rng.random()
    if kind < 0.5:
        return show(rng.randint(low, high))
    first = rng.randint(low, high - 1)
    last = rng.randint(first + 1, high)
    if kind < 0.75:
        return f"{show(first)}-{show(last)}"
    return f"{show(first)}-{show(last)}/{rng.randint(2, max(2, (high - low) // 2))}"


def field(rng, low, high, free, names=None):
    kind = rng.random()
    if kind < free:
        return "*"
    if kind < free + 0.1:
        return f"*/{rng.randint(2, max(2, (high - low) // 2))}"
    return ",".join(part(rng, low, high, names) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def schedule(rng):
    """What croniter reads otherwise is left to test/t/056_cron.pl: W and L-n it does not know; L and # must stand alone in
    their field; a list of days that begins with */n it takes for *, so that both day fields must match."""
    day = "L" if rng.random() < 0.05 else field(rng, 1, 31, 0.6)
    weekday = f"{rng.randint(0, 6)}#{rng.randint(1, 4)}" if day == "*" and rng.random() < 0.05 else field(rng, 0, 6, 0.6, DAYS)
    return " ".join([field(rng, 0, 59, 0.2), field(rng, 0, 23, 0.4), day, field(rng, 1, 12, 0.6, MONTHS), weekday])


def takes_for_star(text):
    """croniter takes days that are all there are for *, and so asks both day fields to match; a list is a list here."""
    expanded = croniter.expand(text)[0]
    fields = text.split()
    return any(expanded[i] == ["*"] and not fields[i].startswith("*") for i in (2, 4))


def theirs(text, start, count):
    iterator = croniter(text, start)
    return [iterator.get_next(datetime.datetime) for _ in range(count)]


def ours(connection, text, start, count):
    """By cron_next, one after another: no stretch of time to choose."""
    found = []
    for _ in range(count):
        start = connection.execute("SELECT job_idem.cron_next(%s, %s, 'UTC')", [text, start]).fetchone()[0]
        if start is None:
            break
        start = start.astimezone(UTC)
        found.append(start)
    return found


def misses_march(got, expected):
    """Where it goes from February to March croniter (as of 1.3.5) may miss the first days that a list or step names."""
    mine, other = next(pair for pair in zip(got, expected) if pair[0] != pair[1])
    return mine.month == 3 and mine.day <= 3 and mine < other


def main(config):
    rng = random.Random(config["seed"])
    compared = 0
    with psycopg.connect(autocommit=True) as connection:
        while compared < config["schedules"]:
            text = schedule(rng)
            start = datetime.datetime(2000, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=rng.randrange(40 * 365 * 86400))
            if takes_for_star(text):
                continue
            try:
                expected = theirs(text, start, config["fires"])
            except Exception:
                # it gives up on dates that are far away, or never come
                continue
            compared += 1
            got = ours(connection, text, start, config["fires"])
            if got != expected and not misses_march(got, expected):
                first = next((pair for pair in zip(got, expected) if pair[0] != pair[1]), (got[-1:], expected[-1:]))
                print(f"{text} after {start}: {first[0]}, croniter says {first[1]}")
    print(f"compared {compared}")
    return 0


sys.exit(main(json.loads(sys.argv[1])))
