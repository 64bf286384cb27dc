"""A world from a seed: writers, relays, a broker, and what goes wrong; then it heals."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

from commitrelay.relay import Relay, RelayOptions
from commitrelay.retry import RetryPolicy
from commitrelay.stores.sqlite.store import SqliteStore
from tests.simulation import virtual_time
from tests.simulation.application import Application
from tests.simulation.broker import Broker, PublisherKind, ReorderingPublisher, StoppingPublisher
from tests.simulation.faults import Faults, Gate
from tests.simulation.operator import Operator
from tests.simulation.store import UnreliableStore, inline

EPOCH = datetime(2100, 1, 1, tzinfo=UTC)  # later than any real clock that runs this
CHAOS_SECONDS = 15.0
HEALING_SECONDS = 900.0
DARK_SECONDS = 3600.0
RETRY = RetryPolicy(delays_seconds=(0.5, 1.0, 2.0), jitter=0.2)
LEASE_SECONDS = 3.0


@dataclass(frozen=True)
class Written:
    """An event that the application has tried to add."""

    seq: int
    id: str
    key: str
    committed_at: float | None  # None: rolled back
    deliver_at: float | None


@dataclass
class Actor:
    """One relay process of the simulation."""

    relay: Relay
    store: UnreliableStore
    gate: Gate
    task: asyncio.Task[None]


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        pick = self.random.choice
        self.calm = seed % 10 == 0  # nothing goes wrong: then nothing may be delivered twice
        self.restless = seed % 20 == 13  # relays come and go all the time, and nothing else
        self.direct = seed % 3 == 2  # applications deliver themselves what they commit
        self.busy = self.restless or seed % 20 == 7  # there is a backlog all the time
        self.steered = seed % 4 == 1 and not self.calm  # an operator meddles
        self.interrupted = seed % 8 == 1  # who pauses the lane at times
        self.max_in_flight = (None, None, 1, 2)[seed // 60 % 4]  # calls of a publisher
        self.faults = Faults() if self.calm or self.restless else Faults.drawn(self.random)
        self.publisher_kind: PublisherKind = pick((ReorderingPublisher, StoppingPublisher))
        self.options = RelayOptions(
            strategy=pick(("partitioned", "partitioned", "leader")),
            order=pick(("strict",) * 9 + ("relaxed",)),
            on_dead=pick(("block", "skip")),
            retry=RETRY,
            batch_size=pick((2, 5, 20)),
            window=pick((1, 3, 8)),
            lease_seconds=LEASE_SECONDS,
            retention_seconds=None,
            inbox_retention_seconds=None,
        )
        self.keys = pick((2, 8, 30, 200))
        self.poison: set[str] = set()
        self.broker = Broker(self.random, self.faults, self.poison)
        self.written: list[Written] = []
        self.actors: list[Actor] = []
        self.retired: list[Actor] = []
        self.applications: list[Application] = []
        self.ended: list[Application] = []
        self.crashes = 0
        self.freezes = 0
        self.healed_at = 0.0
        self.open_circuits: set[str] = set()
        self._next_seq = 1
        self._commits: dict[int, int] = {}
        self._connection = fresh_database()
        self._key_free: dict[str, asyncio.Lock] = {}
        self.operator = Operator(
            self._connection,
            clock=self.clock,
            random=self.random,
            broker=self.broker,
            ids=lambda: {event.seq: event.id for event in self.written},
        )

    def clock(self) -> float:
        """The database's clock."""
        return EPOCH.timestamp() + asyncio.get_running_loop().time()

    async def live(self) -> World:
        if self.busy or self.random.random() < 0.3:
            await self._write_backlog(self.random.randint(20, 80) * (8 if self.busy else 1))
        writers = [asyncio.create_task(self._write()) for _ in range(self.random.randint(1, 4))]
        for _ in range(self.random.randint(1, 3)):
            self._start_relay()
        if self.direct:
            for _ in range(self.random.randint(1, 3)):
                self._start_application()
        chaos = asyncio.create_task(self._calm() if self.calm else self._chaos())
        operating = []
        if self.steered:
            operating.append(asyncio.create_task(self.operator.work(CHAOS_SECONDS)))
        if self.interrupted:
            pausing = self.operator.pause_at_times(CHAOS_SECONDS, Random(self.seed))
            operating.append(asyncio.create_task(pausing))
        await asyncio.gather(chaos, *writers)
        await asyncio.gather(*operating)
        self._heal()
        await self._until_quiet()
        for actor in self.actors:
            actor.relay.stop()
        for application in self.applications:
            application.stop()
        await asyncio.gather(*(actor.task for actor in self.actors))
        await asyncio.gather(*(application.task for application in self.applications))
        return self

    # --- the application ------------------------------------------------------------------

    async def _write(self) -> None:
        for _ in range(self.random.randint(5, 25)):
            await asyncio.sleep(self.random.expovariate(2.0) % 2)
            key = f"k{self.random.randrange(self.keys)}"
            async with self._key_free.setdefault(key, asyncio.Lock()):  # the aggregate's row lock
                await self._transaction(key)

    async def _write_backlog(self, transactions: int) -> None:
        """Work for relays that have yet to share out the buckets, or to take over."""
        for _ in range(transactions):
            await self._transaction(f"k{self.random.randrange(self.keys)}", at_once=True)

    async def _transaction(self, key: str, *, at_once: bool = False) -> None:
        """Takes its seqs at once, commits them together some time later, or not at all."""
        random = self.random
        count = random.choice((1, 1, 1, 3, 10))
        seqs = range(self._next_seq, self._next_seq + count)
        self._next_seq += count
        if not at_once and random.random() < 0.3:
            await asyncio.sleep(random.expovariate(1) % 3)
        commits = random.random() < 0.9
        now = asyncio.get_running_loop().time()
        delay = random.uniform(0.01, 5) if random.random() < 0.1 else None
        for seq in seqs:
            event = Written(
                seq,
                str(UUID(int=random.getrandbits(128))),
                key,
                now if commits else None,
                None if delay is None else now + delay,
            )
            self.written.append(event)
            if random.random() < 0.02 and not self.calm:
                self.poison.add(event.id)
            self._insert(event)
        application = random.choice(self.applications) if self.applications else None
        claim = application and application.claim([event.id for event in self.written[-count:]])
        self._connection.execute("COMMIT" if commits else "ROLLBACK")
        if commits:
            number = max(self._commits.values(), default=0) + 1
            self._commits.update(dict.fromkeys(seqs, number))
        if application and claim:
            application.ended(claim)

    def _insert(self, event: Written) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
        deliver_at = None
        if event.deliver_at is not None:
            moment = EPOCH + timedelta(seconds=event.deliver_at)
            deliver_at = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._connection.execute(
            "INSERT INTO outbox_event (seq, id, aggregate_type, aggregate_id, event_type, payload,"
            " deliver_at) VALUES (?, ?, 'Thing', ?, 'Happened', ?, ?)",
            (event.seq, event.id, event.key, str(event.seq).encode(), deliver_at),
        )

    # --- the relays -----------------------------------------------------------------------

    def _start_relay(self) -> None:
        gate = Gate()
        store = self._new_store(gate)
        name = f"relay-{len(self.actors) + len(self.retired)}"
        relay = Relay(
            store,
            self.publisher_kind(self.broker, name, gate, self.max_in_flight),
            self.options,
            name=name,
            clock=asyncio.get_running_loop().time,
            random=self.random,
        )
        task = asyncio.create_task(relay.run())
        self.actors.append(Actor(relay, store, gate, task))

    def _new_store(self, gate: Gate) -> UnreliableStore:
        return UnreliableStore(
            self._connection,
            clock=self.clock,
            random=self.random,
            faults=self.faults,
            gate=gate,
            commits=self._commits,
        )

    def _start_application(self) -> None:
        gate = Gate()
        name = f"application-{len(self.applications) + len(self.ended)}"
        self.applications.append(
            Application(
                name,
                self._connection,
                self._new_store(gate),
                self.publisher_kind(self.broker, name, gate, self.max_in_flight),
                gate,
                clock=self.clock,
                random=self.random,
            )
        )

    async def _calm(self) -> None:
        await asyncio.sleep(CHAOS_SECONDS)

    async def _chaos(self) -> None:
        acts: list[Callable[[], Any]] = [
            self._kill,
            self._freeze,
            self._outage,
            self._start_relay,
            self._leave,
        ]
        if self.direct:
            acts += [self._end_application, self._freeze_application]
        longest_pause = 4.0
        if self.restless:
            acts, longest_pause = [self._start_relay, self._leave], 0.5
        loop = asyncio.get_running_loop()
        while loop.time() < CHAOS_SECONDS:
            await asyncio.sleep(self.random.uniform(0.2, longest_pause))
            self.random.choice(acts)()

    def _kill(self) -> None:
        if self.actors:
            actor = self.actors.pop(self.random.randrange(len(self.actors)))
            actor.task.cancel()
            self.retired.append(actor)
            self.crashes += 1

    def _leave(self) -> None:
        if self.actors:
            self.random.choice(self.actors).relay.stop()

    def _freeze(self) -> None:
        if self.actors:
            gate = self.random.choice(self.actors).gate
            gate.close()
            self.crashes += 1
            self.freezes += 1
            seconds = self.random.uniform(0.1, 3 * LEASE_SECONDS)
            asyncio.get_running_loop().call_later(seconds, gate.open)

    def _end_application(self) -> None:
        """It is killed, or asked to stop, and started again."""
        application = self.random.choice(self.applications)
        self.applications.remove(application)
        self.ended.append(application)
        if self.random.random() < 0.7:
            application.task.cancel()
            self.crashes += 1
        else:
            application.stop()
        self._start_application()

    def _freeze_application(self) -> None:
        gate = self.random.choice(self.applications).gate
        gate.close()
        self.crashes += 1
        self.freezes += 1
        seconds = self.random.uniform(0.1, 3 * LEASE_SECONDS)
        asyncio.get_running_loop().call_later(seconds, gate.open)

    def _outage(self) -> None:
        self.faults.broker_is_down = True
        seconds = self.random.uniform(0.5, 8)
        asyncio.get_running_loop().call_later(
            seconds, lambda: setattr(self.faults, "broker_is_down", False)
        )

    def _heal(self) -> None:
        self.healed_at = asyncio.get_running_loop().time()
        self.faults.heal()
        for process in (*self.actors, *self.applications):
            process.gate.open()
        self._start_relay()

    async def _until_quiet(self) -> None:
        """Until nothing can be delivered any more, or the time for it is up."""
        loop = asyncio.get_running_loop()
        observer = SqliteStore(
            ":memory:", connection=self._connection, run=inline, clock=self.clock
        )
        while loop.time() < self.healed_at + HEALING_SECONDS:
            await asyncio.sleep(1)
            (status,) = await observer.status()
            self.open_circuits = set(status.open_circuits)
            delivered = await observer.idle(1) and not self._rows("state = 2")
            if delivered and not self.open_circuits:
                await asyncio.sleep(1)
                return

    # --- for the checks -------------------------------------------------------------------

    def _rows(self, where: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(
            f"SELECT seq, state, last_error FROM outbox_queue WHERE {where}"
        ).fetchall()

    def queue(self) -> dict[int, tuple[int, str | None]]:
        return {seq: (state, error) for seq, state, error in self._rows("1")}

    def journalled(self) -> int:
        total = self._connection.execute("SELECT sum(events) FROM outbox_delivery").fetchone()[0]
        return total or 0


@cache
def _template() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    store = SqliteStore(":memory:", connection=connection, run=inline)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(store.initialise())
    return connection


def fresh_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _template().backup(connection)
    return connection


class DarkWorld(World):
    """Nothing goes wrong, but that the broker is down for an hour."""

    def __init__(self, seed: int) -> None:
        assert seed % 10 == 0, "a calm one"
        super().__init__(seed)

    async def _calm(self) -> None:
        await asyncio.sleep(self.random.uniform(0, 5))
        self.faults.broker_is_down = True
        await asyncio.sleep(DARK_SECONDS)


def simulate(seed: int, kind: Callable[[int], World] = World) -> World:
    with contextlib.suppress(RuntimeError):
        _template()
    return virtual_time.run(_live(seed, kind))


async def _live(seed: int, kind: Callable[[int], World]) -> World:
    return await kind(seed).live()
