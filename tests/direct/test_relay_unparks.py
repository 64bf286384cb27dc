"""The follower of an event that is passed directly waits for it, and not much longer."""

from __future__ import annotations

import asyncio
import sqlite3
from random import Random

from commitrelay.claim import Claim, claim_added
from commitrelay.conversation import converse
from commitrelay.relay import Relay
from commitrelay.sql import Names
from commitrelay.store import Fence
from commitrelay.stores.sqlite.store import SqliteStore
from tests.simulation import virtual_time
from tests.simulation.broker import Broker, ReorderingPublisher
from tests.simulation.faults import Faults, Gate
from tests.simulation.store import inline
from tests.simulation.world import fresh_database

ADD = (
    "INSERT INTO outbox_event (id, aggregate_type, aggregate_id, event_type, payload)"
    " VALUES (?, 'Order', '1', 'Counted', '')"
)


async def deliver_a_follower(connection: sqlite3.Connection, after_seconds: float) -> float:
    """How long after its head was settled it has arrived."""
    loop = asyncio.get_running_loop()
    store = SqliteStore(":memory:", connection=connection, run=inline, clock=loop.time)
    connection.execute(ADD, ("head",))
    claim = Claim(["head"], 0.0, "default", -1, 30.0)
    conversation = claim_added(claim, Names(), "sqlite", "qmark", loop.time)
    count = converse(lambda text, values: connection.execute(text, values).rowcount, conversation)
    assert count == 1
    broker = Broker(Random(1), Faults(), set())
    relay = Relay(
        store,
        ReorderingPublisher(broker, "relay", Gate()),
        clock=loop.time,
        random=Random(1),
    )
    async with relay:
        await asyncio.sleep(after_seconds)
        connection.execute(ADD, ("follower",))
        await asyncio.sleep(0.15)
        assert broker.log == []
        settled_at = loop.time()
        await store.settle_claimed(Fence(1, "direct", -1), delivered=[1])
        await asyncio.sleep(3.0)
    (arrival,) = broker.log
    assert arrival.event_id == "follower"
    return arrival.at - settled_at


def test_a_follower_is_delivered_soon_after_its_head() -> None:
    """At whatever moment it comes: a calm relay looks at parked events once a second."""
    delays = [
        virtual_time.run(deliver_a_follower(fresh_database(), 2 + step / 5)) for step in range(5)
    ]
    assert max(delays) < 0.4
