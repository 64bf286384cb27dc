"""An operator who retries, discards, mends, replays and pauses whatever comes along, meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from random import Random

from commitrelay.acts import DEAD
from commitrelay.operations import Act, Batch, Target, Version
from commitrelay.store import EventFilter, State, Verdict
from commitrelay.stores.sqlite.store import SqliteStore
from tests.simulation.broker import Broker
from tests.simulation.store import inline

MENDED = Version(b"mended", "text/plain", "{}")


class Operator:
    """Acts at random; remembers what it did, for the checks."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Callable[[], float],
        random: Random,
        broker: Broker,
        ids: Callable[[], Mapping[int, str]],
    ) -> None:
        self._store = SqliteStore(":memory:", connection=connection, run=inline, clock=clock)
        self._random = random
        self._broker = broker
        self._ids = ids
        self.discarded: dict[str, float] = {}  # when
        self.replayed: list[str] = []
        self.retries = 0
        self.pauses: list[tuple[float, float]] = []  # from, to
        self.out_of_turn: set[str] = set()  # retried after their followers had passed

    async def work(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(self._random.expovariate(2.0) % 1.5)
            if self._random.random() < 0.3:
                await self._replay()
            else:
                await self._act()

    async def pause_at_times(self, until: float, random: Random) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(random.uniform(0.0, 8.0))
            paused_at = loop.time()
            await self._store.set_paused("default", True)
            await asyncio.sleep(random.choice((0.1, 2.0, 12.0)) * random.random())
            await self._store.set_paused("default", False)
            self.pauses.append((paused_at, loop.time()))

    async def _act(self) -> None:
        found = await self._store.find_targets(
            EventFilter(), ids=None, states=tuple(State), limit=10_000
        )
        if not found:
            return
        target = self._random.choice(found)
        await asyncio.sleep(self._random.expovariate(1 / 0.05) % 0.5)  # it may change meanwhile
        await self._random.choice((self._retry, self._retry, self._discard, self._mend))(target)

    async def _retry(self, target: Target) -> None:
        audit = await self._begin("retry")
        changed = await self._store.retry_events(audit, _batch(target))
        self.retries += changed
        if changed and target.state == State.SKIPPED:
            self.out_of_turn.add(self._ids()[target.seq])

    async def _discard(self, target: Target) -> None:
        audit = await self._begin("discard")
        if await self._store.remove_events(audit, _batch(target), Verdict.DISCARDED):
            self.discarded[self._ids()[target.seq]] = asyncio.get_running_loop().time()

    async def _mend(self, target: Target) -> None:
        if target.state not in DEAD:
            return
        edits = len((await self._store.story(target.seq)).edits)
        audit = await self._begin("edit")
        if await self._store.edit_event(audit, target, MENDED, edits=edits):
            self._broker.poison.discard(self._ids()[target.seq])
            await self._retry(target)

    async def _replay(self) -> None:
        if not self._broker.log:
            return
        event_id = self._random.choice(self._broker.log).event_id
        (seq,) = await self._store.find_in_log(EventFilter(), ids=[event_id], above_seq=0, limit=1)
        lane = await self._store.lane("default")
        if await self._store.replay_events(await self._begin("replay"), lane, [seq]):
            self.replayed.append(event_id)

    async def _begin(self, action: str) -> int:
        return await self._store.begin_act(Act("operator", action, None, {}))


def _batch(target: Target) -> Batch:
    return Batch(target.lane, target.state, [target.seq])
