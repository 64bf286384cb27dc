"""A consumer as a process of its own: `python -m tests.inbox.consumer_process '{"url": …}'`.

Several threads deliver the same events, in the same order, each on a connection of its own. With
`faults` it may roll back, and then gets the event again, or be killed in the middle.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from commitrelay import Inbox


class Rolled(Exception):
    """What the handler raises to have everything rolled back."""


def connection_to(url: str) -> tuple[Any, Callable[[], object]]:
    """A connection, and what begins a transaction on it. Drivers take long to import."""
    if url.startswith("postgresql:"):
        import psycopg  # noqa: PLC0415

        connection: Any = psycopg.connect(url)
        return connection, lambda: None
    if url.startswith("mysql:"):
        from tests.support import mariadb  # noqa: PLC0415

        connection = mariadb.connect(url)
        return connection, connection.begin
    connection = sqlite3.connect(url, timeout=120, isolation_level=None)
    return connection, lambda: connection.execute("BEGIN IMMEDIATE")


class Worker:
    def __init__(self, url: str, events: int, faults: float, random: Random) -> None:
        self._url = url
        self._events = events
        self._faults = faults
        self._random = random
        self._inbox = Inbox("billing")

    def deliver_all(self, start: threading.Barrier) -> int:
        """How many of the events took effect here."""
        connection, begin = connection_to(self._url)
        start.wait(60)
        effects = 0
        for number in range(self._events):
            while True:
                begin()
                try:
                    effects += self._deliver(connection, number)
                    connection.commit()
                except Rolled:
                    connection.rollback()
                else:
                    break
        connection.close()
        return effects

    def _deliver(self, connection: Any, number: int) -> bool:
        with self._inbox.once(connection, f"event-{number}") as first:
            if first:
                connection.cursor().execute(f"INSERT INTO effect (number) VALUES ({number})")
            self._suffer()
        return first

    def _suffer(self) -> None:
        fate = self._random.random()
        if fate < self._faults / 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if fate < self._faults:
            raise Rolled


def main(url: str, threads: int, events: int, faults: float, seed: int) -> None:
    start = threading.Barrier(threads)
    with ThreadPoolExecutor(threads) as pool:
        workers = [Worker(url, events, faults, Random(f"{seed}-{n}")) for n in range(threads)]
        print("ready", flush=True)
        sys.stdin.readline()
        done = [pool.submit(worker.deliver_all, start) for worker in workers]
        print(json.dumps(sum(future.result() for future in done)), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
