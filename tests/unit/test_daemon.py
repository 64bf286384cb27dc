"""Daemon: one signal finishes, two cancel, one failing lane ends them all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from commitrelay import Event, Outbox, registry
from commitrelay.daemon import Daemon
from commitrelay.errors import PublisherError
from commitrelay.publisher import DELIVERED, Message, Outcome, PublisherCapabilities
from commitrelay.settings import LaneEntry, Settings
from commitrelay.sql import Names


class HeldPublisher:
    """Says when a message has reached it, and answers when the test lets it."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    def __init__(self, opening_error: Exception | None = None) -> None:
        self.reached = asyncio.Event()
        self.answer = asyncio.Event()
        self._opening_error = opening_error

    async def open(self) -> None:
        if self._opening_error is not None:
            raise self._opening_error

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        self.reached.set()
        await self.answer.wait()
        return [DELIVERED] * len(messages)

    async def recover(self) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture
def settings(sqlite_path: Path) -> Settings:
    """Of an outbox with one event to deliver."""
    url = f"sqlite:///{sqlite_path}"

    async def create() -> None:
        store = registry.database(url, Names())
        await store.initialise()
        await store.close()

    asyncio.run(create())
    with closing(sqlite3.connect(sqlite_path)) as connection:
        Outbox().add(connection, Event("Order", 1, "OrderPlaced", {}))
        connection.commit()
    return Settings(database=url, publish="file:///nowhere")


def use(publishers: Mapping[str, HeldPublisher], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "publisher", lambda url, options: publishers[url])


async def stop_once(settings: Settings, held: HeldPublisher) -> tuple[int, bool]:
    daemon = Daemon(settings)
    running = asyncio.create_task(daemon.run())
    await held.reached.wait()
    daemon.stop()
    held.answer.set()
    totals = await running
    return totals.counts["published"], totals.cancelled


def test_the_first_stop_waits_for_the_broker(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldPublisher()
    use({"file:///nowhere": held}, monkeypatch)
    assert asyncio.run(stop_once(settings, held)) == (1, False)


def test_the_second_stop_cancels(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldPublisher()
    use({"file:///nowhere": held}, monkeypatch)

    async def body() -> tuple[int, bool]:
        daemon = Daemon(settings)
        running = asyncio.create_task(daemon.run())
        await held.reached.wait()
        daemon.stop()
        daemon.stop()
        totals = await running
        return totals.counts["published"], totals.cancelled

    assert asyncio.run(body()) == (0, True)


def test_a_lane_that_fails_ends_the_others_gracefully(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, broken = HeldPublisher(), HeldPublisher(PublisherError("no such cluster"))
    healthy.answer.set()
    use({"file:///nowhere": healthy, "file:///broken": broken}, monkeypatch)
    entries = (LaneEntry("default"), LaneEntry("b", overrides={"publish": "file:///broken"}))
    both = Settings(database=settings.database, publish=settings.publish, lane_entries=entries)

    async def body() -> None:
        await Daemon(both).run()

    with pytest.raises(PublisherError, match="no such cluster"):
        asyncio.run(body())
