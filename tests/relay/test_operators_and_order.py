"""Operators act at random while two relays run: what the operator did not choose stays in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from commitrelay import Event, Outbox
from commitrelay.acts import DEAD, DISCARD, RETRY, Acts, Selection
from commitrelay.admin import initialise
from commitrelay.operations import Version
from commitrelay.options import RelayOptions
from commitrelay.publisher import DELIVERED, Message, Outcome, PublisherCapabilities, Refused
from commitrelay.registry import Database, database
from commitrelay.relay import Relay
from commitrelay.replay import Replay
from commitrelay.retry import RetryPolicy
from commitrelay.sql import Names
from commitrelay.store import EventFilter
from tests.acceptance.operating import connect

KEYS, EVENTS, ACTS = 6, 240, 60
GIVE_UP_SECONDS = 120.0


class Broker:
    """Refuses every eighth event until somebody has edited it, and others now and then."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 5.0

    def __init__(self, random: Random) -> None:
        self._random = random
        self.arrived: list[tuple[str, str]] = []  # key, event id
        self.healed = False

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def recover(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        await asyncio.sleep(self._random.uniform(0, 0.01))
        return [self._take(message) for message in messages]

    def _take(self, message: Message) -> Outcome:
        is_poison = message.value.isdigit() and int(message.value) % 8 == 0
        if not self.healed and (is_poison or self._random.random() < 0.03):
            return Refused("not like this")
        self.arrived.append((message.key, message.event_id))
        return DELIVERED


class Operator:
    """Retries, discards, edits or replays one event at a time."""

    def __init__(self, store: Database, broker: Broker, random: Random) -> None:
        self._store, self._broker, self._random = store, broker, random
        self._acts = Acts(store, "operator")
        self.discarded: set[str] = set()
        self.replayed = 0

    async def act(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 0.05))
        if self._random.random() < 0.3 and self._broker.arrived:
            return await self._replay(self._random.choice(self._broker.arrived)[1])
        dead = await self._store.list_events(EventFilter("dead"), before_seq=None, limit=100)
        if not dead:
            return None
        event_id = self._random.choice(dead).id
        act = self._random.choice((self._retry, self._discard, self._edit))
        return await act(event_id)

    async def _retry(self, event_id: str) -> None:
        await self._acts.carry_out(await self._acts.plan(RETRY, Selection(ids=[event_id])))

    async def _discard(self, event_id: str) -> None:
        plan = await self._acts.plan(DISCARD, Selection(ids=[event_id]))
        if (await self._acts.carry_out(plan)).changed:
            self.discarded.add(event_id)

    async def _edit(self, event_id: str) -> None:
        event = await self._store.show_event(event_id)
        assert event is not None
        found = await self._store.find_targets(EventFilter(), ids=[event_id], states=DEAD, limit=1)
        if found:
            edits = len((await self._store.story(event.seq)).edits)
            await self._acts.edit(event, Version(b"mended", "text/plain", "{}"), edits=edits)
            await self._retry(event_id)

    async def _replay(self, event_id: str) -> None:
        replay = Replay(self._store, "operator", rate=1000)
        selection = Selection(EventFilter(lane="default"), ids=[event_id])
        self.replayed += (await replay.run(await replay.plan(selection, "default"))).queued


async def write(url: str, random: Random) -> list[tuple[str, str]]:
    """Adds events a few at a time; (key, id) in the order of their keys."""
    written = []
    for number in range(EVENTS):
        key = f"k{random.randrange(KEYS)}"
        event = Event("Order", key, "Counted", str(number))

        def add(event: Event = event) -> None:
            with connect(url) as connection:
                Outbox().add(connection, event)
                connection.commit()

        await asyncio.to_thread(add)
        written.append((key, str(event.id)))
    return written


async def play(url: str, seed: int) -> None:
    random = Random(seed)
    store = database(url, Names())
    await initialise(store)
    broker = Broker(random)
    options = RelayOptions(
        retry=RetryPolicy((0.01, 0.02), jitter=0), batch_size=20, lease_seconds=60.0
    )
    relays = [Relay(database(url, Names()), broker, options, name=f"r{n}") for n in range(2)]
    running = [asyncio.create_task(relay.run()) for relay in relays]
    await store.open()
    operator = Operator(store, broker, random)
    try:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            writing = asyncio.create_task(write(url, random))
            for _ in range(ACTS):
                await operator.act()
            written = await writing
            broker.healed = True
            lane = (await store.lane("default")).id
            while True:
                acts = Acts(store, "operator")
                await acts.carry_out(await acts.plan(RETRY, Selection()))
                await asyncio.sleep(0.2)
                dead = await store.find_targets(EventFilter(), ids=None, states=DEAD, limit=1)
                if not dead and await store.idle(lane):
                    break
    finally:
        for relay in relays:
            relay.stop()
        await asyncio.gather(*running)
        await store.close()
    check(written, broker, operator)


def check(written: list[tuple[str, str]], broker: Broker, operator: Operator) -> None:
    first: dict[str, int] = {}
    for position, (_key, event_id) in enumerate(broker.arrived):
        first.setdefault(event_id, position)
    missing = {event_id for _key, event_id in written} - set(first)
    assert missing == operator.discarded - set(first)
    for key in {key for key, _id in written}:
        arrivals = [first[event_id] for of, event_id in written if of == key and event_id in first]
        assert arrivals == sorted(arrivals), f"{key} out of order"
    assert len(broker.arrived) - len(first) <= operator.replayed
    assert operator.discarded
    assert operator.replayed


@pytest.mark.parametrize("place", ["sqlite_path", "postgres_database"])
def test_order_holds_while_operators_act(place: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(place)
    url = f"sqlite:///{found}" if isinstance(found, Path) else str(found)
    asyncio.run(play(url, seed=1))
