"""Whatever happens and in which order: per-key order, acknowledged prefixes, one effect each."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitrelay.consumer.received import Received
from commitrelay.retry import RetryPolicy
from tests.consumer.memory import Broker, MemoryDatabase, MemoryLetters, Stage, run_virtually

EVENTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=60
)  # key, partition: a key stays in one partition
TROUBLES = st.lists(
    st.sampled_from(["revoke", "kill", "stop", "outage", "conflict", "add", "wait"]), max_size=12
)


class World:
    """Readers come and go over the same broker and database, at random, one at a time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = Broker()
        self.database = MemoryDatabase()
        self.letters = MemoryLetters()
        self.effects: dict[str, list[int]] = defaultdict(list)
        self.numbers: dict[str, int] = defaultdict(int)
        self.readers = 0

    async def handle(self, database: MemoryDatabase, event: Received[Any]) -> None:
        await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.5, 3)))
        if self.random.random() < 0.1:
            raise RuntimeError("no luck")
        # The effect belongs to the transaction: it counts if the mark is set with it.
        if event.id not in database.done:
            self.effects[event.aggregate_id].append(event.payload)

    def add(self, key: int, partition: int) -> None:
        name = f"{key}.{partition}"
        self.broker.put(name, self.numbers[name], f"p{partition}")
        self.numbers[name] += 1

    def start(self) -> Stage:
        self.readers += 1
        return Stage(
            self.broker, self.database, self.handle, letters=self.letters,
            reader_name=f"reader {self.readers}", concurrency=self.random.choice((1, 3, 10)),
            window=self.random.choice((1, 5, 50)), revoke_seconds=1, stop_seconds=2,
            retry=RetryPolicy((0.1, 1.0, 5.0, 30.0, 30.0, 30.0, 30.0, 30.0)),
        )  # fmt: skip

    async def play(self, troubles: list[str], later: list[tuple[int, int]]) -> None:
        stage = self.start()
        for trouble in troubles:
            await asyncio.sleep(self.random.choice((0.001, 0.02, 0.6, 4)))
            partition = f"p{self.random.randrange(3)}"
            if trouble == "revoke":
                await stage.source.revoke(partition)
                await asyncio.sleep(self.random.choice((0, 1)))
                stage.source.assign(partition)
            elif trouble in ("kill", "stop"):
                await (stage.kill() if trouble == "kill" else stage.stop())
                stage = self.start()
            elif trouble == "outage":
                self.database.unreachable = True
                await asyncio.sleep(self.random.choice((0.01, 1, 20)))
                self.database.unreachable = False
            elif trouble == "conflict":
                for arrivals in self.broker.partitions.values():
                    self.database.conflicts[arrivals[-1].key + "-0"] = 3
            elif trouble == "add" and later:
                self.add(*later.pop())
        await stage.until_done()
        await stage.stop()


@pytest.mark.parametrize("seed", [7])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(EVENTS, EVENTS, TROUBLES, st.integers(0, 2**32))
def test_any_schedule(
    seed: int,
    events: list[tuple[int, int]],
    later: list[tuple[int, int]],
    troubles: list[str],
    chance: int,
) -> None:
    world = World(seed + chance)
    for key, partition in events:
        world.add(key, partition)
    run_virtually(world.play(troubles, later))
    dead = {(message.key, int(message.value)) for message in world.letters.messages}
    assert len(set(world.database.done)) == len(world.database.done)
    for key, total in world.numbers.items():
        wanted = [number for number in range(total) if (key, number) not in dead]
        assert world.effects[key] == wanted, "each once, in order"
        assert {f"{key}-{number}" for number in wanted} <= set(world.database.done)
    assert world.broker.is_done
