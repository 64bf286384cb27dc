"""The outbox in an SQLite file: what the relay needs of it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil
from typing import Any

from commitrelay.errors import ConfigError, LeaseLost
from commitrelay.sql import Names
from commitrelay.store import (
    BUCKETS,
    ClaimRequest,
    Failure,
    Fence,
    Lane,
    OpenCircuit,
    Queued,
    Roster,
    Settlement,
    State,
    StoreCapabilities,
    Verdict,
)
from commitrelay.stores.bell import Bell
from commitrelay.stores.sqlite.bundle import Bundle, as_queued
from commitrelay.stores.sqlite.database import Run
from commitrelay.stores.sqlite.log import SqliteLog
from commitrelay.stores.sqlite.operations import SqliteOperations
from commitrelay.stores.text import clean_error

_Deliver = Callable[[sqlite3.Connection, Fence, Collection[int]], int]


class _SomeAreGoneError(Exception):
    """Events were to be settled that are not in the queue any more."""


class SqliteStore(SqliteLog, SqliteOperations):
    """Store and AdminStore on one SQLite file, in WAL mode with synchronous=FULL.

    `run` tells how to run a blocking call (default: in a thread of its own), `clock` is the
    database's clock (default: time.time), `connection` a ready-made connection to use instead of
    opening `path_or_url`.
    """

    def __init__(
        self,
        path_or_url: str,
        *,
        names: Names | None = None,
        run: Run | None = None,
        clock: Callable[[], float] = time.time,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        super().__init__(path_or_url, names=names, run=run, clock=clock, connection=connection)
        self._bell = Bell()
        self._bundle = Bundle(self._sql)

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(competing=False, wakes=False)

    async def lane(self, name: str) -> Lane:
        row = await self._database.read(lambda db: self._one(db, "find_lane", name=name))
        if row is None:
            raise ConfigError(f"there is no lane {name!r} in {self._database.path}: add it first")
        return Lane(row[0], row[1], bool(row[2]))

    # --- leases ---------------------------------------------------------------------------

    async def renew(
        self,
        lane: int,
        relay: str,
        *,
        strategy: str,
        keep: frozenset[int] | None,
        lease_seconds: float,
    ) -> Roster:
        whose = {"lane": lane, "relay": relay, "strategy": strategy}
        return await self._database.write(lambda db: self._renew(db, whose, keep, lease_seconds))

    def _renew(
        self,
        db: sqlite3.Connection,
        whose: dict[str, Any],
        keep: frozenset[int] | None,
        lease_seconds: float,
    ) -> Roster:
        lane, now_ms = whose["lane"], self._database.now_ms()
        times = {"now_ms": now_ms, "expires_ms": now_ms + ceil(lease_seconds * 1000)}
        self._run(db, "remove_expired_leases", **whose, **times)
        own = self._one(db, "own_lease", **whose)
        if own is None:
            token = self._value(db, "join_lane", **whose, **times)
        else:
            token = own[0]
            held = _buckets(own[1]) if keep is None else _buckets(own[1]) & keep
            self._run(
                db, "extend_lease", token=token, buckets=_json(sorted(held)), **whose, **times
            )
        paused = self._one(db, "lane_paused", lane=lane)
        if paused is None:
            raise ConfigError(f"there is no lane with the id {lane}: it was removed")
        leases = {
            name: (_buckets(buckets), used)
            for name, buckets, used in self._all(db, "lane_leases", lane=lane)
        }
        mine, _ = leases.pop(whose["relay"])
        return Roster(
            token=token,
            mine=mine,
            others={name: buckets for name, (buckets, _) in leases.items()},
            strategies=frozenset(used for _, used in leases.values()),
            paused=bool(paused[0]),
        )

    async def acquire(self, fence: Fence, buckets: frozenset[int]) -> frozenset[int]:
        return await self._database.write(lambda db: self._acquire(db, fence, buckets))

    def _acquire(
        self, db: sqlite3.Connection, fence: Fence, buckets: frozenset[int]
    ) -> frozenset[int]:
        self._check_fence(db, fence)
        held = {
            relay: _buckets(text)
            for relay, text, _ in self._all(db, "lane_leases", lane=fence.lane)
        }
        mine = held.pop(fence.relay)
        mine |= buckets.difference(*held.values())
        self._run(db, "set_buckets", token=fence.token, buckets=_json(sorted(mine)))
        return mine

    async def leave(self, fence: Fence) -> None:
        await self._database.write(lambda db: self._run(db, "leave_lane", **_whose(fence)))

    async def tell_circuit(
        self, lane: int, relay: str, circuit: OpenCircuit | None, *, valid_seconds: float
    ) -> None:
        await self._database.write(
            lambda db: self._tell_circuit(db, lane, relay, circuit, valid_seconds)
        )

    def _tell_circuit(
        self,
        db: sqlite3.Connection,
        lane: int,
        relay: str,
        circuit: OpenCircuit | None,
        valid_seconds: float,
    ) -> None:
        if circuit is None:
            self._run(db, "close_circuit", lane=lane, relay=relay)
            return
        now_ms = self._database.now_ms()
        self._run(db, "remove_expired_circuits", now_ms=now_ms)
        self._run(
            db,
            "open_circuit",
            lane=lane,
            relay=relay,
            opened_ms=now_ms - round(circuit.open_seconds * 1000),
            error=clean_error(circuit.error),
            expires_ms=now_ms + ceil(valid_seconds * 1000),
        )

    def _check_fence(self, db: sqlite3.Connection, fence: Fence) -> None:
        if self._one(db, "holds_lease", **_whose(fence)) is None:
            raise LeaseLost(
                f"relay {fence.relay} lost its lease (token {fence.token}) in lane {fence.lane}: "
                "another relay may own its keys now, so it must join again"
            )

    # --- claim and settle -----------------------------------------------------------------

    async def claim(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        if request.above_seq or request.exclude_seqs or request.exclude_keys:
            return await self._database.read(lambda db: self._claim(db, fence, request))
        return await self._database.look(
            (fence.lane, request.limit, request.buckets),
            lambda db: self._claim(db, fence, request),
            lambda db: self._value(db, "next_due", lane=fence.lane),
        )

    def _claim(self, db: sqlite3.Connection, fence: Fence, request: ClaimRequest) -> list[Queued]:
        values = {
            "lane": fence.lane,
            "now_ms": self._database.now_ms(),
            "above_seq": request.above_seq,
            "buckets": None if len(request.buckets) == BUCKETS else _json(request.buckets),
            "exclude_seqs": _json(request.exclude_seqs) if request.exclude_seqs else None,
            "exclude_keys": _json(request.exclude_keys) if request.exclude_keys else None,
            "limit": request.limit,
        }
        claimed: list[Queued] = []
        if request.above_seq == 0:
            claimed.extend(map(as_queued, db.execute(self._sql["claim_due"], values)))
            values["limit"] = request.limit - len(claimed)
        bundled = self._bundle.read(db, values) if request.above_seq else None
        if bundled is None:
            bundled = [*map(as_queued, db.execute(self._sql["claim_pending"], values))]
        claimed += bundled
        self._bundle.weigh(claimed)
        return claimed

    async def claim_heads(self, fence: Fence, limit: int, claim_seconds: float) -> list[Queued]:
        raise ConfigError(
            "the competing strategy needs row locks, which SQLite does not have: "
            "use strategy partitioned or leader"
        )

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        try:
            return await self._database.write(
                lambda db: self._settle(db, fence, settlement, self._deliver_all)
            )
        except _SomeAreGoneError:
            return await self._database.write(
                lambda db: self._settle(db, fence, settlement, self._deliver)
            )

    def _settle(
        self, db: sqlite3.Connection, fence: Fence, settlement: Settlement, deliver: _Deliver
    ) -> int:
        self._check_fence(db, fence)
        whose = _whose(fence)
        changed = 0
        if settlement.delivered:
            changed += deliver(db, fence, settlement.delivered)
        for failure in settlement.failures:
            changed += self._fail(db, fence, failure)
        if settlement.released:
            changed += self._run(db, "settle_released", seqs=_json(settlement.released), **whose)
        if settlement.parked:
            now_ms = self._database.now_ms()
            changed += self._run(
                db, "settle_parked", seqs=_json(settlement.parked), now_ms=now_ms, **whose
            )
        return changed

    def _deliver_all(self, db: sqlite3.Connection, fence: Fence, delivered: Collection[int]) -> int:
        """As nearly always: to be told of each one takes as long as the rest."""
        values = {"seqs": _json(delivered), **_whose(fence)}
        if self._run(db, "settle_all_delivered", **values) != len(delivered):
            raise _SomeAreGoneError
        self._journal(db, fence.lane, fence.relay, Verdict.PUBLISHED, delivered)
        return len(delivered)

    def _deliver(
        self,
        db: sqlite3.Connection,
        fence: Fence,
        delivered: Collection[int],
        query: str = "settle_delivered",
    ) -> int:
        values = {"seqs": _json(delivered), **_whose(fence)}
        gone = [seq for (seq,) in self._all(db, query, **values)]
        self._journal(db, fence.lane, fence.relay, Verdict.PUBLISHED, gone)
        return len(gone)

    def _fail(self, db: sqlite3.Connection, fence: Fence, failure: Failure) -> int:
        values = {**_whose(fence), **self._failed(failure), "now_ms": self._database.now_ms()}
        if not self._run(db, "settle_failure", **values):
            return 0
        return self._run(db, "note_failure", **values)

    def _failed(self, failure: Failure) -> dict[str, Any]:
        retry_in = failure.retry_in_seconds
        state = State.DEAD if failure.blocks else State.SKIPPED
        return {
            "seq": failure.seq,
            "error": clean_error(failure.error),
            "state": int(State.RETRYING if retry_in is not None else state),
            "due_ms": None if retry_in is None else self._database.in_ms(retry_in),
            "attempts": failure.attempts,
        }

    async def unpark(self, fence: Fence, buckets: frozenset[int], limit: int) -> int:
        whose = _whose(fence)
        row = await self._database.glance(lambda db: self._one(db, "anything_blocked", **whose))
        if row == (1, 0):  # as nearly always: no need for the write lock
            return 0
        return await self._database.write(lambda db: self._unpark(db, fence, buckets, limit))

    def _unpark(
        self, db: sqlite3.Connection, fence: Fence, buckets: frozenset[int], limit: int
    ) -> int:
        self._check_fence(db, fence)
        asked = None if len(buckets) == BUCKETS else _json(buckets)
        keys = self._all(db, "unblocked_keys", lane=fence.lane, buckets=asked, limit=limit)
        left = limit
        for (key,) in keys:
            if left <= 0:
                break
            left -= self._run(db, "unpark_key", lane=fence.lane, key=key, limit=left)
        return limit - left + self._free_abandoned(db, fence, asked, limit)

    def _free_abandoned(
        self, db: sqlite3.Connection, fence: Fence, buckets: str | None, limit: int
    ) -> int:
        values = {"lane": fence.lane, "now_ms": self._database.now_ms()}
        keys = self._all(db, "abandoned_keys", buckets=buckets, limit=limit, **values)
        return sum(self._run(db, "free_abandoned", key=key, **values) for (key,) in keys)

    async def idle(self, lane: int) -> bool:
        return await self._database.read(lambda db: self._idle(db, lane))

    def _idle(self, db: sqlite3.Connection, lane: int) -> bool:
        if self._value(db, "has_work", lane=lane, now_ms=self._database.now_ms()):
            return False
        heads = {"lane": lane, "buckets": None, "limit": 1}
        return not (
            self._all(db, "unblocked_keys", **heads)
            or self._all(db, "abandoned_keys", now_ms=None, **heads)
        )

    async def purge_inbox(self, *, older_than_seconds: float, limit: int) -> int:
        before_ms = self._database.now_ms() - ceil(older_than_seconds * 1000)
        return await self._database.write(
            lambda db: self._run(db, "purge_inbox", before_ms=before_ms, limit=limit)
        )

    # --- direct pass ----------------------------------------------------------------------

    @property
    def names(self) -> Names:
        return self._names

    async def take_claimed(self, fence: Fence, ids: Collection[str]) -> list[Queued]:
        values = {"ids": _json(ids), **_whose(fence)}
        return await self._database.read(
            lambda db: [as_queued(row) for row in self._all(db, "take_claimed", **values)]
        )

    async def settle_claimed(
        self,
        fence: Fence,
        *,
        delivered: Collection[int] = (),
        released: Collection[int] = (),
        parked: Collection[int] = (),
        error: str | None = None,
    ) -> int:
        reason = None if error is None else clean_error(error)
        whose = _whose(fence)

        def settle(db: sqlite3.Connection) -> int:
            changed = self._deliver(db, fence, delivered, "pass_delivered") if delivered else 0
            if released:
                values = {"seqs": _json(released), "now_ms": self._database.now_ms(), **whose}
                changed += self._run(db, "pass_released", error=reason, **values)
            if parked:
                changed += self._run(db, "pass_parked", seqs=_json(parked), **whose)
            return changed

        return await self._database.write(settle)

    # --- waiting --------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        await self._bell.wait(seconds)

    def wake(self) -> None:
        """End the current or the next `sleep` at once; safe from any thread."""
        self._bell.ring()


def from_url(url: str, names: Names, options: Mapping[str, str]) -> SqliteStore:
    """The store that `sqlite:///file` means; there are no options."""
    if options:
        raise ConfigError(f"an SQLite URL has no option {sorted(options)[0]!r}: remove it")
    return SqliteStore(url, names=names)


def _whose(fence: Fence) -> dict[str, Any]:
    return {"lane": fence.lane, "relay": fence.relay, "token": fence.token}


def _buckets(text: str) -> frozenset[int]:
    return frozenset(json.loads(text))


def _json(values: Collection[int | str] | Iterable[int]) -> str:
    return json.dumps(list(values), separators=(",", ":"))
