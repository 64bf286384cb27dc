"""An application with a direct pass and several writers; killed and stopped by the tests.

Each transaction raises the counters of some aggregates, which locks them, and adds one event for
each with its new number: what consumers must see is 1, 2, 3, … of every key.
"""

from __future__ import annotations

import json
import logging
import random
import sqlite3
import sys
import threading
from typing import Any

import psycopg

from commitrelay import DirectPass, Event, Outbox, Plain, Route, open_publisher, open_store

SETTINGS = json.loads(sys.argv[1])


def main() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    timeout = {"delivery_timeout_seconds": SETTINGS.get("delivery_timeout_seconds", "10")}
    direct = DirectPass(
        open_store(SETTINGS["database"]),
        open_publisher(SETTINGS["broker"], **timeout),
        compose=Plain(Route(SETTINGS.get("topic", "orders"))),
        claim_seconds=SETTINGS.get("claim_seconds", 30.0),
        max_waiting=SETTINGS.get("max_waiting", 1000),
        wait_seconds=SETTINGS.get("wait_seconds", 0.02),
    )
    direct.start(30)
    outbox = Outbox(direct=direct)
    share = -(-SETTINGS["events"] // SETTINGS["writers"])
    writers = [
        threading.Thread(target=write, args=(outbox, share, number))
        for number in range(SETTINGS["writers"])
    ]
    print("started", flush=True)
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    direct.close(60)
    stats = direct.stats
    print(
        json.dumps(
            {
                "passed": stats.passed,
                "released": stats.released,
                "in_hand": stats.in_hand,
                "left": dict(stats.left_to_relay),
            }
        ),
        flush=True,
    )


def write(outbox: Outbox, events: int, number: int) -> None:
    dice = random.Random(SETTINGS.get("seed", 0) * 100 + number)
    connection, raise_counter = connect()
    written = 0
    while written < events:
        count = min(events - written, dice.choice((1, 1, 2, 5)))
        keys = sorted(dice.sample(range(SETTINGS["keys"]), count))
        if dice.random() < 0.3:  # a few keys are hot: their events meet in the queue
            keys = sorted({*keys[1:], dice.randrange(5)})
        with outbox.transaction(connection):
            added = [Event("Order", key, "Counted", {"number": raise_counter(key)}) for key in keys]
            outbox.add(connection, *added)
        written += len(keys)


def connect() -> tuple[Any, Any]:
    url = SETTINGS["database"]
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), 60, isolation_level=None)
        connection.execute("PRAGMA synchronous = NORMAL")
        text = "UPDATE counter SET number = number + 1 WHERE key = ? RETURNING number"
    else:
        connection = psycopg.connect(url, autocommit=True)
        text = "UPDATE counter SET number = number + 1 WHERE key = %s RETURNING number"
    return connection, lambda key: connection.execute(text, (key,)).fetchone()[0]


main()
