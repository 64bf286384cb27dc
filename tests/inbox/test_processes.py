"""The same event, delivered ten times at once by four processes: one effect, on each database."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import count
from typing import Any

import pytest

from commitrelay.conversation import Value
from tests.support import mariadb

THREADS = (3, 3, 2, 2)
EVENTS = 30


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
def database(request: pytest.FixtureRequest) -> Any:
    """An outbox with a table of effects that would take any number of them."""
    found = request.getfixturevalue(f"{request.param}_outbox")
    tables = ("DROP TABLE IF EXISTS effect", "CREATE TABLE effect (number int)")
    if request.param == "postgres":
        found.run(*tables, "TRUNCATE outbox_inbox")
    elif request.param == "mariadb":
        mariadb.run(found.url, *tables, "DELETE FROM outbox_inbox")
    else:
        for statement in tables:
            found.query(statement)
    return found


class Process:
    """One consumer, which waits before its first delivery for the others."""

    def __init__(self, database: Any, threads: int, faults: float, seed: int) -> None:
        url = getattr(database, "url", None) or str(database.path)
        settings: dict[str, Value | float] = {
            "url": url,
            "threads": threads,
            "events": EVENTS,
            "faults": faults,
            "seed": seed,
        }
        command = [sys.executable, "-m", "tests.inbox.consumer_process", json.dumps(settings)]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
        self._process = subprocess.Popen(command, text=True, **pipes)

    def await_ready(self) -> None:
        assert self._process.stdout.readline() == "ready\n"  # type: ignore[union-attr]

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finish(self) -> int | None:
        """How many effects it says to have had; None if it was killed."""
        output, _ = self._process.communicate(timeout=120)
        output = output.removeprefix("ready\n")
        if self._process.returncode == -signal.SIGKILL:
            return None
        assert self._process.returncode == 0
        return int(output)


def effects(database: Any) -> list[int]:
    rows = database.query("SELECT number FROM effect ORDER BY number")
    return [row["number"] for row in rows]


def test_ten_deliveries_from_four_processes_have_one_effect(database: Any) -> None:
    processes = [Process(database, threads, 0.0, seed) for seed, threads in enumerate(THREADS)]
    for process in processes:
        process.await_ready()
    for process in processes:
        process.go()
    claimed = [process.finish() for process in processes]
    assert effects(database) == list(range(EVENTS))
    assert sum(number or 0 for number in claimed) == EVENTS
    assert len(database.query("SELECT event_id FROM outbox_inbox")) == EVENTS


def test_rollbacks_and_kills_in_the_middle_change_nothing(database: Any) -> None:
    """Whoever is killed is started again, with its events from the first on."""
    seeds = count()
    faults = 0.2
    killed = 0
    running = [(threads, Process(database, threads, faults, next(seeds))) for threads in THREADS]
    for _threads, process in running:
        process.await_ready()
    for _threads, process in running:
        process.go()
    while running:
        threads, process = running.pop(0)
        if process.finish() is None:
            killed += 1
            faults *= 0.6  # it comes to an end
            again = Process(database, threads, faults, next(seeds))
            again.go()
            running.append((threads, again))
    assert killed
    assert effects(database) == list(range(EVENTS))
    assert len(database.query("SELECT event_id FROM outbox_inbox")) == EVENTS
