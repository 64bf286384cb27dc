"""A relay that is killed between the broker's acknowledgement and its own note of it.

What it had in hand is delivered again, and nothing else: I4 with a real process.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox
from commitrelay.format import Plain
from commitrelay.options import RelayOptions
from commitrelay.publishers.file import FilePublisher
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.relay import Relay
from commitrelay.route import Route
from commitrelay.stores.sqlite.store import SqliteStore
from tests.faults.scene import REPOSITORY, first_deliveries, in_order

EVENTS, KEYS = 300, 50
BATCH_SIZE, WINDOW = 10, 3
LEASE_SECONDS = 3.0
PATIENCE_SECONDS = 60.0

PLAIN = {"stops_at_failure": False}
TRANSACTIONAL = {"stops_at_failure": True, "max_in_flight": 1}


@pytest.mark.parametrize(
    ("capabilities", "in_hand"),
    [
        pytest.param(PLAIN, BATCH_SIZE * (WINDOW + 2), id="plain"),
        pytest.param(TRANSACTIONAL, BATCH_SIZE * (2 * WINDOW + 1), id="transactional"),
    ],
)
def test_what_it_had_in_hand_is_delivered_again_and_nothing_else(
    sqlite_path: Path, tmp_path: Path, capabilities: dict[str, Any], in_hand: int
) -> None:
    _fill(sqlite_path)
    settings = {
        "database": str(sqlite_path),
        "directory": str(tmp_path / "topics"),
        "capabilities": capabilities,
        "batch_size": BATCH_SIZE,
        "window": WINDOW,
        "lease_seconds": LEASE_SECONDS,
    }
    assert _killed_with_unsettled(settings, in_hand) == in_hand
    _end_lease(sqlite_path)
    asyncio.run(_drain(sqlite_path, tmp_path / "topics"))
    arrived = [
        (message.key, json.loads(message.value)["number"])
        for message in TopicReader(tmp_path / "topics", "orders").poll()
    ]
    assert first_deliveries(arrived) == in_order(EVENTS, KEYS)
    assert len(arrived) - EVENTS == in_hand


def _fill(path: Path) -> None:
    async def initialise() -> None:
        store = SqliteStore(str(path))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    events = [Event("Order", n % KEYS, "Counted", {"number": n}) for n in range(EVENTS)]
    with closing(sqlite3.connect(path)) as connection, connection:
        Outbox().add(connection, *events)


def _killed_with_unsettled(settings: dict[str, Any], in_hand: int) -> int:
    """How many events the broker had and the database did not know of when it was killed.

    Not before there are as many as it may have in hand, and it has renewed its lease since: time
    to send more, if it would.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.stalled_process", json.dumps(settings)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    too_late = threading.Timer(PATIENCE_SECONDS, process.kill)
    too_late.start()
    unsettled, renewals_since = 0, 0
    assert process.stdout is not None
    for line in process.stdout:
        unsettled = int(line)
        renewals_since += unsettled >= in_hand
        if renewals_since == 2:
            break
    process.kill()
    process.stdout.close()
    process.wait()
    too_late.cancel()
    return unsettled


def _end_lease(path: Path) -> None:
    """As if its time were up."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM outbox_lease")


async def _drain(path: Path, directory: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await Relay(
            SqliteStore(str(path)),
            FilePublisher(directory),
            RelayOptions(until="drained"),
            compose=Plain(Route("orders")),
        ).run()
