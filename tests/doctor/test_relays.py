"""Lanes where events wait and no relay is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from commitrelay import Event, open_store
from tests.acceptance.operating import add
from tests.doctor.examined import found, initialised, the_problem


@pytest.fixture(params=["sqlite", "postgres_database", "mariadb_database"])
def outbox(request: pytest.FixtureRequest, sqlite_path: Path) -> str:
    """With an event in each of two lanes."""
    kind = request.param
    url = f"sqlite:///{sqlite_path}" if kind == "sqlite" else request.getfixturevalue(kind)
    initialised(url)
    asyncio.run(add_lane(url))
    add(url, Event("Order", "1", "OrderPaid", {}))
    return str(url)


async def add_lane(url: str) -> None:
    store = open_store(url)
    await store.open()
    await store.add_lane("audit")
    await store.close()


def serve(url: str, lane: str) -> None:
    """A relay has its lease there."""

    async def renew() -> None:
        store = open_store(url)
        await store.open()
        number = (await store.lane(lane)).id
        await store.renew(number, "a", strategy="partitioned", keep=None, lease_seconds=60)
        await store.close()

    asyncio.run(renew())


def pause(url: str, lane: str) -> None:
    async def turn() -> None:
        store = open_store(url)
        await store.open()
        await store.set_paused(lane, True)
        await store.close()

    asyncio.run(turn())


def test_a_lane_without_a_relay_beside_one_that_has_one(outbox: str) -> None:
    assert found("relays", outbox) == [], "no relay runs at all"
    serve(outbox, "default")
    problem = the_problem("relays", outbox)
    assert problem.startswith("lane audit: 1 event waits, and no relay serves it")
    assert "commitrelay run --lane audit" in found("relays", outbox)[0].remedy
    serve(outbox, "audit")
    assert found("relays", outbox) == []


def test_a_paused_lane_needs_none(outbox: str) -> None:
    serve(outbox, "default")
    pause(outbox, "audit")
    assert found("relays", outbox) == []
