"""A broker and a database in memory, which check what the engine promises them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any

from commitrelay.consumer.database import Failed, TakenBack, Unanswered
from commitrelay.consumer.dead_letters import DeadLetters
from commitrelay.consumer.engine import Engine
from commitrelay.consumer.handlers import Handler, Handlers
from commitrelay.consumer.marks import Marks
from commitrelay.consumer.options import ConsumerOptions, ConsumerStats
from commitrelay.consumer.received import Received
from commitrelay.errors import StoreUnreachable
from commitrelay.format.reading import reader
from commitrelay.handles import Talk, run_on
from commitrelay.publisher import DELIVERED, Message, Outcome, Unreachable
from commitrelay.source import Arrival, OnRevoked
from commitrelay.sql import Names, read
from tests.simulation.virtual_time import run as run_virtually

__all__ = ["Broker", "MemoryDatabase", "MemoryLetters", "Stage", "run_virtually"]


class Broker:
    """Partitions, what is acknowledged of each, and one reader at a time."""

    def __init__(self) -> None:
        self.partitions: dict[str, list[Arrival]] = defaultdict(list)
        self.acknowledged: dict[str, int] = defaultdict(int)

    def put(self, key: str, number: int, partition: str = "p", event_type: str = "Counted") -> str:
        event_id = f"{key}-{number}"
        self.put_raw(
            partition,
            key,
            str(number).encode(),
            [
                ("event-id", event_id),
                ("event-type", event_type),
                ("aggregate-type", "Order"),
                ("aggregate-id", key),
                ("content-type", "application/json"),
            ],
        )
        return event_id

    def put_raw(
        self, partition: str, key: str, value: bytes, headers: list[tuple[str, str]]
    ) -> None:
        place = len(self.partitions[partition])
        arrival = Arrival("orders", partition, place, key, value, headers)
        self.partitions[partition].append(arrival)

    @property
    def is_done(self) -> bool:
        return all(self.acknowledged[name] == len(found) for name, found in self.partitions.items())


class MemorySource:
    """One reader. It insists on acknowledgements in order and without gaps."""

    def __init__(self, broker: Broker, partitions: Collection[str] | None = None) -> None:
        self.broker = broker
        self._mine = partitions
        self._read: dict[str, int] = {}
        self._revoked: set[str] = set()
        self.closed = False
        self.most_unacknowledged = 0

    async def open(self, on_revoked: OnRevoked) -> None:
        self.on_revoked = on_revoked

    async def read(self, limit: int, wait_seconds: float) -> Sequence[Arrival]:
        assert limit > 0
        found: list[Arrival] = []
        for name, arrivals in self.broker.partitions.items():
            if name in self._revoked or (self._mine is not None and name not in self._mine):
                continue
            place = self._read.setdefault(name, self.broker.acknowledged[name])
            some = arrivals[place : place + limit - len(found)]
            self._read[name] = place + len(some)
            found += some
        out = sum(self._read[name] - self.broker.acknowledged[name] for name in self._read)
        self.most_unacknowledged = max(self.most_unacknowledged, out)
        await asyncio.sleep(0 if found else wait_seconds)
        return [each for each in found if each.partition not in self._revoked]

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            assert arrival.partition not in self._revoked, "a late result was acknowledged"
            assert arrival.position == self.broker.acknowledged[arrival.partition], "a gap"
            self.broker.acknowledged[arrival.partition] += 1
        await asyncio.sleep(0)

    async def revoke(self, *names: str) -> None:
        await self.on_revoked(names)
        self._revoked |= set(names)

    def assign(self, *names: str) -> None:
        self._revoked -= set(names)
        for name in names:
            self._read.pop(name, None)

    async def lag(self) -> int | None:
        broker = self.broker
        return sum(
            len(found) - broker.acknowledged[name] for name, found in broker.partitions.items()
        )

    async def close(self) -> None:
        self.closed = True


class MemoryDatabase:
    """The inbox is a set; the marks are real SQL. It can be out of reach, or take things back."""

    one_at_a_time = False
    is_applications = False
    in_threads = 0

    def __init__(self) -> None:
        self.done: list[str] = []
        self.unreachable = False
        self.conflicts: defaultdict[str, int] = defaultdict(int)
        self.transactions = 0
        self.marks = sqlite3.connect(":memory:", isolation_level=None)
        self.marks.executescript(Names().fill(read("sqlite", "schema.sql")))

    async def perform(self, handler: Handler, event: Received[Any], *, careful: bool) -> bool:
        self.transactions += 1
        if self.unreachable:
            raise Unanswered(StoreUnreachable("no database"))
        try:
            return await self._performed(handler, event)
        finally:
            if careful and event.id in self.done:
                self._converse(Marks("c", "", Names()).end(event.id))

    async def _performed(self, handler: Handler, event: Received[Any]) -> bool:
        if event.id in self.done:
            return False
        if self.conflicts[event.id]:
            self.conflicts[event.id] -= 1
            raise TakenBack(RuntimeError("deadlock"))
        try:
            await handler.function(self, event)
        except Exception as error:
            raise Failed(error) from error
        if event.id in self.done:  # another reader committed first
            return False
        self.done.append(event.id)
        return True

    async def transact(self, talk: Talk) -> Any:
        await asyncio.sleep(0)
        if self.unreachable:
            raise Unanswered(StoreUnreachable("no database"))
        return self._converse(talk)

    def _converse(self, talk: Talk) -> Any:
        self.marks.execute("BEGIN")
        try:
            return run_on(self.marks, talk)
        finally:
            self.marks.execute("COMMIT")

    def rows(self, noun: str) -> list[Any]:
        return self.marks.execute(f"SELECT * FROM outbox_{noun} ORDER BY 1, 2").fetchall()

    async def close(self) -> None:
        pass


class MemoryLetters:
    """A publisher that keeps what it gets; `outcomes` are given first."""

    delivery_timeout_seconds = 1.0

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.outcomes: list[Outcome] = []
        self.recovered = 0

    async def open(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        (message,) = messages
        outcome = self.outcomes.pop(0) if self.outcomes else DELIVERED
        if outcome is DELIVERED:
            self.messages.append(message)
        return [outcome]

    async def recover(self) -> None:
        self.recovered += 1

    async def close(self) -> None: ...


class Stage:
    """One engine on a broker and a database that outlive it."""

    def __init__(
        self,
        broker: Broker,
        database: MemoryDatabase,
        handle: Callable[[Any, Received[Any]], Any],
        *,
        letters: MemoryLetters | None = None,
        reader_name: str = "reader",
        partitions: Collection[str] | None = None,
        types: tuple[str, ...] = ("*",),
        **options: Any,
    ) -> None:
        self.broker = broker
        self.source = MemorySource(broker, partitions)
        self.letters = letters
        chosen = ConsumerOptions(
            **{"on_failure": "stop" if letters is None else "dead_letter", **options}
        )
        handlers = Handlers()
        handlers.add(handle, types, None)
        self.engine = Engine(
            self.source,
            database,  # type: ignore[arg-type]
            handlers,
            marks=Marks("c", reader_name, Names()),
            read=reader("auto"),
            options=chosen,
            stats=ConsumerStats(),
            dead_letters=None if letters is None else DeadLetters(letters, "{topic}.dead", "c"),  # type: ignore[arg-type]
            random=Random(1),
        )
        self.stats = self.engine.stats
        self.task = asyncio.create_task(self.engine.run())

    async def until(self, condition: Callable[[], bool], seconds: float = 3600.0) -> None:
        """Virtual seconds, which cost nothing."""
        async with asyncio.timeout(seconds):
            while not condition():
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the engine ended by itself")
                await asyncio.sleep(0.01)

    async def until_done(self) -> None:
        await self.until(lambda: self.broker.is_done)

    async def stop(self) -> None:
        self.engine.stop()
        await self.task
        window = self.engine._window
        assert window.unacknowledged == 0
        assert window.in_hand == window.running, "only what did not end in time is left"

    async def kill(self) -> None:
        """As a dead process: nothing more is done, nothing is tidied up."""
        self.engine._is_over = True
        for task in (self.task, *self.engine._running.values()):
            task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


UNREACHABLE = Unreachable("no broker")
