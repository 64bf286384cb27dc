"""What the fault tests share: an outbox to fill, relays to break, and a topic to read back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from commitrelay import Event, Outbox
from commitrelay.stores.postgres.store import PostgresStore
from tests.support.kafka_reader import consume_partitions

REPOSITORY = Path(__file__).resolve().parents[2]


def initialise(url: str) -> None:
    async def run() -> None:
        store = PostgresStore(url)
        await store.initialise()
        await store.close()

    asyncio.run(run())


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class Database:
    """The outbox as the tests look at it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        self._connection.close()

    def value(self, query: str) -> Any:
        row = self._connection.execute(query).fetchone()
        return None if row is None else row[0]

    def rows(self, query: str) -> list[Any]:
        return self._connection.execute(query).fetchall()

    @property
    def queued(self) -> int:
        return self.value("SELECT count(*) FROM outbox_queue")

    @property
    def published(self) -> int:
        return self.value("SELECT coalesce(sum(events), 0) FROM outbox_delivery WHERE verdict = 0")

    def settled_more_than_once(self) -> int:
        return self.value(
            "SELECT count(*) - count(DISTINCT seq) FROM outbox_delivery, unnest(seqs) AS seq"
        )


@contextmanager
def watched(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def add(url: str, numbers: Iterable[int], keys: int, outbox: Outbox | None = None) -> None:
    """One transaction; event number n is the next one of key n % keys."""
    events = [Event("Order", n % keys, "Counted", {"number": n}) for n in numbers]
    with psycopg.connect(url) as connection:
        (outbox or Outbox()).add(connection, *events)


class RelayProcess:
    """One relay in a process of its own; its log lines go to a file."""

    def __init__(self, name: str, directory: Path, **settings: Any) -> None:
        self.name = name
        self._log_path = directory / f"{name}.log"
        self._log = self._log_path.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.relay_process", json.dumps(settings)],
            cwd=REPOSITORY,
            env={**os.environ, "RELAY_NAME": name},
            stderr=self._log,
        )

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Ask it to stop, and wait for it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        code = self.process.wait(60)
        self._log.close()
        return code


@contextmanager
def relays(*started: RelayProcess) -> Iterator[None]:
    try:
        yield
    finally:
        for relay in started:
            relay.process.kill()
            relay.end()


def read_topic(bootstrap: str, topic: str) -> list[tuple[str, int]]:
    """(key, number) of everything that is in the topic now, in order within each key."""
    return [
        (received.key, json.loads(received.value)["number"])
        for partition in consume_partitions(bootstrap, topic).values()
        for received in partition
    ]


def first_deliveries(messages: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of each key, in the order of their first arrival."""
    seen: set[tuple[str, int]] = set()
    result: dict[str, list[int]] = {}
    for key, number in messages:
        if (key, number) not in seen:
            seen.add((key, number))
            result.setdefault(key, []).append(number)
    return result


def in_order(total: int, keys: int) -> dict[str, list[int]]:
    return {str(key): list(range(key, total, keys)) for key in range(min(keys, total))}
