"""The SQLite store in memory, slow and unreliable, with a watch on its fence."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from commitrelay.errors import LeaseLost, StoreUnreachable
from commitrelay.store import ClaimRequest, Fence, Queued, Settlement, State
from commitrelay.stores.sqlite.store import SqliteStore
from tests.simulation.faults import Faults, Gate

UNRELIABLE = ("renew", "acquire", "tell_circuit", "unpark", "idle", "take_claimed")


async def inline(work: Callable[[], Any]) -> Any:
    return work()


class UnreliableStore:
    """Delegates to a real store; calls take time, fail before their effect, or after it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Callable[[], float],
        random: Random,
        faults: Faults,
        gate: Gate,
        commits: dict[int, int],
    ) -> None:
        self._inner = SqliteStore(":memory:", connection=connection, run=inline, clock=clock)
        self._connection = connection
        self._random = random
        self._faults = faults
        self._gate = gate
        self._commits = commits  # seq → number of its transaction's commit
        self._sweep_sees = 0
        self._keeps_snapshots = random.random() < 0.5
        self._snapshot: list[Queued] = []
        self.stale_writes = 0
        self.faults_seen = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in UNRELIABLE:
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._unreliably(lambda: method(*args, **kwargs))

        return call

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        return await self._unreliably(lambda: self._settle_and_watch(fence, settlement))

    async def _settle_and_watch(self, fence: Fence, settlement: Settlement) -> int:
        lease = self._connection.execute(
            "SELECT 1 FROM outbox_lease WHERE lane = ? AND relay = ? AND token = ?",
            (fence.lane, fence.relay, fence.token),
        ).fetchone()
        before = self._connection.total_changes
        try:
            return await self._inner.settle(fence, settlement)
        except LeaseLost:
            assert lease is None, "a valid fence was refused"
            raise
        finally:
            if lease is None and self._connection.total_changes != before:
                self.stale_writes += 1

    async def settle_claimed(
        self,
        fence: Fence,
        *,
        delivered: list[int],
        released: list[int],
        parked: list[int],
        error: str | None,
    ) -> int:
        async def settle_and_watch() -> int:
            seqs = [*delivered, *released, *parked]
            marks = ", ".join("?" * len(seqs))
            (held,) = self._connection.execute(
                "SELECT count(*) FROM outbox_queue"
                f" WHERE seq IN ({marks}) AND state = 5 AND claim_token = ?",
                (*seqs, fence.token),
            ).fetchone()
            changed = await self._inner.settle_claimed(
                fence, delivered=delivered, released=released, parked=parked, error=error
            )
            self.stale_writes += changed != held
            return changed

        return await self._unreliably(settle_and_watch)

    async def claim(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        return await self._unreliably(lambda: self._claim_from_snapshot(fence, request))

    async def _claim_from_snapshot(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        """SQLite knows no commits out of seq order; a store that does reads from a snapshot.

        Half of the stores do as PostgreSQL and MySQL: all claims of a sweep see what was there
        when it began, also what was settled since.
        """
        if request.above_seq == 0:
            self._sweep_sees = max(self._commits.values(), default=0)
            everything = request._replace(limit=10**6, exclude_seqs=(), exclude_keys=())
            self._snapshot = await self._inner.claim(fence, everything)
        if request.above_seq and self._keeps_snapshots:
            rows = [row for row in self._snapshot if _matches(row, request)][: request.limit]
        else:
            rows = await self._inner.claim(fence, request)
        if self._random.random() < 0.02:
            await asyncio.sleep(self._random.uniform(0.1, 1.0))  # long enough for a rebalance
        return [row for row in rows if self._commits[row.seq] <= self._sweep_sees]

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
        await self._gate.pass_through()

    async def _unreliably(self, call: Callable[[], Awaitable[Any]]) -> Any:
        await self._latency()
        if self._random.random() < self._faults.store_fails:
            self.faults_seen += 1
            raise StoreUnreachable("the database does not answer")
        result = await call()
        await self._latency()
        if self._random.random() < self._faults.store_loses_reply:
            self.faults_seen += 1
            raise StoreUnreachable("the database's reply was lost")
        return result

    async def _latency(self) -> None:
        await asyncio.sleep(self._random.expovariate(1 / 0.003) % 0.05)
        await self._gate.pass_through()


def _matches(row: Queued, request: ClaimRequest) -> bool:
    return (
        row.state == State.PENDING
        and row.seq > request.above_seq
        and row.bucket in request.buckets
        and row.seq not in request.exclude_seqs
        and row.key not in request.exclude_keys
    )
