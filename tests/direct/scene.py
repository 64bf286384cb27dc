"""What the tests of the direct pass share: an outbox, processes around it, and what arrived."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from commitrelay import open_store
from commitrelay.publishers.file_reader import TopicReader

REPOSITORY = Path(__file__).resolve().parents[2]

Arrival = tuple[str, int]
"""The key and the number of an event."""


class Database:
    """An outbox in PostgreSQL or SQLite, seen through a plain connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        asyncio.run(self._initialise())

    async def _initialise(self) -> None:
        store = open_store(self.url)
        await store.initialise()
        await store.close()

    def connect(self) -> Any:
        if self.url.startswith("sqlite"):
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), 60, isolation_level=None)
        return psycopg.connect(self.url, autocommit=True)

    def rows(self, text: str) -> list[Any]:
        with closing(self.connect()) as connection:
            return [tuple(row) for row in connection.execute(text).fetchall()]

    def run(self, text: str) -> None:
        with closing(self.connect()) as connection:
            connection.execute(text)

    def value(self, text: str) -> Any:
        return self.rows(text)[0][0]

    def states(self) -> dict[int, int]:
        return dict(self.rows("SELECT seq, state FROM outbox_queue ORDER BY seq"))

    @property
    def queued(self) -> int:
        return self.value("SELECT count(*) FROM outbox_queue")

    @property
    def added(self) -> int:
        return self.value("SELECT count(*) FROM outbox_event")

    def published(self, by: str = "%") -> int:
        return self.value(
            f"SELECT coalesce(sum(events), 0) FROM outbox_delivery WHERE relay LIKE '{by}'"
        )

    def make_counters(self, keys: int) -> None:
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE counter (key integer PRIMARY KEY, number integer)")
            rows = ", ".join(f"({key}, 0)" for key in range(keys))
            connection.execute(f"INSERT INTO counter VALUES {rows}")

    def counters(self) -> dict[str, list[int]]:
        """What consumers must have seen of each key."""
        rows = self.rows("SELECT key, number FROM counter WHERE number > 0")
        return {str(key): list(range(1, number + 1)) for key, number in rows}


class Process:
    """A Python module of the tests in a process of its own; its log lines go to a file."""

    def __init__(self, module: str, directory: Path, **settings: Any) -> None:
        self._log_path = directory / f"{module}-{time.monotonic_ns()}.log"
        self._log = self._log_path.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.direct.{module}", json.dumps(settings)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(60)

    def clean_up(self) -> None:
        self.process.kill()
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()


@contextmanager
def cleaning_up(*processes: Process) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.clean_up()


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def arrivals(directory: Path) -> list[Arrival]:
    """Everything in the files, in order."""
    reader = TopicReader(directory)
    found: list[Arrival] = []
    while messages := reader.poll():
        found += [(each.key, json.loads(each.value)["number"]) for each in messages]
    return found


def by_key(arrived: Iterable[Arrival]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for key, number in arrived:
        result.setdefault(key, []).append(number)
    return result


def first_of(arrived: Iterable[Arrival]) -> list[Arrival]:
    """First deliveries only."""
    return list(dict.fromkeys(arrived))
