"""The outbox in PostgreSQL: what the relay needs of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import RowMaker

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
    StoreCapabilities,
)
from commitrelay.stores.bell import Bell
from commitrelay.stores.postgres.gate import Gate
from commitrelay.stores.postgres.link import Link
from commitrelay.stores.postgres.log import PostgresLog
from commitrelay.stores.postgres.operations import PostgresOperations
from commitrelay.stores.postgres.sweep import Sweep
from commitrelay.stores.text import clean_error

BUSY_CLAIM = 100
"""A claim of so many events says that the relay is busy: it lets its gate go."""

_MAX_PARKING_ROUNDS = 16

_as_queued: RowMaker[Queued] = partial(tuple.__new__, Queued)


def _queued_rows(cursor: AsyncCursor[Any]) -> RowMaker[Queued]:
    return _as_queued


class PostgresStore(PostgresLog, PostgresOperations):
    """Store and AdminStore on PostgreSQL 14 or newer.

    `notify=False` polls only, for poolers that hand sessions on; `prepare_threshold=None` does
    without prepared statements, for those that do not keep them.
    """

    def __init__(
        self,
        url: str,
        *,
        names: Names | None = None,
        notify: bool = True,
        prepare_threshold: int | None = 0,
    ) -> None:
        super().__init__(url, names=names, prepare_threshold=prepare_threshold)
        self._claims = self._new_link()
        self._sweep = Sweep(self._claims, self._sql)
        self._settles = self._new_link()
        self._leases = self._new_link()
        self._bell = Bell()
        self._gate: Gate | None = None
        if notify:
            self._listens = self._new_link()
            self._gate = Gate(self._listens, self._sql, self._names.bare("event"), self._bell)

    def _new_link(self) -> Link:
        link = Link(self._url, tuned=True, prepare_threshold=self._prepare_threshold)
        self._links.append(link)
        return link

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(competing=True, wakes=self._gate is not None)

    async def close(self) -> None:
        if self._gate is not None:
            await self._gate.close()
        await self._sweep.close()
        await super().close()

    async def lane(self, name: str) -> Lane:
        async with self._leases.use() as connection:
            row = await self._one(connection, "find_lane", {"name": name})
        if row is None:
            raise ConfigError(f"there is no lane {name!r} in this outbox: add it first")
        lane = Lane(*row)
        if self._gate is not None:
            self._gate.lane = lane.id
        return lane

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
        values = {
            "lane": lane,
            "relay": relay,
            "strategy": strategy,
            "keep": None if keep is None else _array(keep),
            "lease_seconds": lease_seconds,
        }
        steps = ("lock_lane", "remove_expired_leases", "renew_lease", "lane_leases")
        async with self._leases.use() as connection:
            done = await self._in_one_message(connection, dict.fromkeys(steps, values))
        if not done["lock_lane"].rows:
            raise ConfigError(f"there is no lane with the id {lane}: it was removed")
        return _roster(relay, done["lane_leases"].rows, paused=done["lock_lane"].rows[0][0])

    async def acquire(self, fence: Fence, buckets: frozenset[int]) -> frozenset[int]:
        values = {"buckets": _array(buckets), **_whose(fence)}
        async with self._leases.use() as connection:
            done = await self._in_one_message(connection, {"lock_lane": values, "acquire": values})
        if not done["acquire"].rows:
            raise _lost(fence)
        return frozenset(done["acquire"].rows[0][0])

    async def leave(self, fence: Fence) -> None:
        async with self._leases.use() as connection:
            await connection.execute(self._sql["leave_lane"], _whose(fence))

    async def tell_circuit(
        self, lane: int, relay: str, circuit: OpenCircuit | None, *, valid_seconds: float
    ) -> None:
        values: dict[str, Any] = {"lane": lane, "relay": relay}
        names: tuple[str, ...] = ("close_circuit",)
        if circuit is not None:
            names = ("remove_expired_circuits", "open_circuit")
            values |= {
                "open_seconds": circuit.open_seconds,
                "error": clean_error(circuit.error),
                "valid_seconds": valid_seconds,
            }
        async with self._leases.use() as connection:
            await self._in_one_message(connection, dict.fromkeys(names, values))

    # --- claim ----------------------------------------------------------------------------

    async def claim(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        values = {
            "lane": fence.lane,
            "above_seq": request.above_seq,
            "buckets": _asked(request.buckets),
            "exclude_seqs": _array(request.exclude_seqs),
            "exclude_keys": _array(request.exclude_keys),
            "limit": request.limit,
        }
        if request.above_seq:
            rows = await self._sweep.go_on(partial(self._queued, "claim_pending", values))
        else:
            read = partial(self._queued, "claim_all", values)
            rows = await self._sweep.begin(read, request.limit)
        if len(rows) < request.limit:
            await self._sweep.end()
        return self._noticed(rows)

    async def claim_heads(self, fence: Fence, limit: int, claim_seconds: float) -> list[Queued]:
        values = {"limit": limit, "claim_seconds": claim_seconds, **_whose(fence)}
        async with self._claims.use() as connection:
            rows = await self._queued("claim_heads", values, connection)
            for _round in range(_MAX_PARKING_ROUNDS):
                values["limit"] = limit - len(rows)
                if not values["limit"] or not await self._run(connection, "park_blocked", values):
                    break
                rows += await self._queued("claim_heads", values, connection)
            if not rows and await self._one(connection, "lock_fence", values) is None:
                raise _lost(fence)
        rows.sort(key=itemgetter(0))
        return self._noticed(rows)

    async def _queued(
        self, query: str, values: dict[str, Any], connection: AsyncConnection[Any]
    ) -> list[Queued]:
        async with connection.cursor(binary=True, row_factory=_queued_rows) as cursor:
            await cursor.execute(self._sql[query], values)
            return await cursor.fetchall()

    def _noticed(self, rows: list[Queued]) -> list[Queued]:
        if self._gate is not None and len(rows) >= BUSY_CLAIM:
            self._gate.open()
        return rows

    # --- settle ---------------------------------------------------------------------------

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        steps = _steps(settlement)
        async with self._settles.use() as connection:
            if list(steps) == ["settle_delivered"]:
                return await self._deliver(connection, fence, steps["settle_delivered"])
            return await self._settle(connection, fence, steps)

    async def _deliver(
        self, connection: AsyncConnection[Any], fence: Fence, values: dict[str, Any]
    ) -> int:
        row = await self._one(connection, "settle_delivered", {**values, **_whose(fence)})
        if not row[0]:
            raise _lost(fence)
        return int(row[1])

    async def _settle(
        self, connection: AsyncConnection[Any], fence: Fence, steps: dict[str, dict[str, Any]]
    ) -> int:
        """All steps in one transaction; each one checks the lease itself."""
        whose = _whose(fence)
        fenced = {step: {**values, **whose} for step, values in steps.items()}
        done = await self._in_one_message(connection, {"lock_fence": whose, **fenced})
        if not done.pop("lock_fence").rows:
            raise _lost(fence)
        delivered = done.pop("settle_delivered", None)
        changed = sum(result.changed for result in done.values())
        return changed + (delivered.rows[0][1] if delivered else 0)

    async def unpark(self, fence: Fence, buckets: frozenset[int], limit: int) -> int:
        values = {"buckets": _asked(buckets), "limit": limit, **_whose(fence)}
        async with self._settles.use() as connection:
            row = await self._one(connection, "unpark", values)
        if not row[0]:
            raise _lost(fence)
        return int(row[1])

    async def idle(self, lane: int) -> bool:
        async with self._leases.use() as connection:
            for query in ("has_work", "has_unblocked"):
                row = await self._one(connection, query, {"lane": lane})
                if row[0]:
                    return False
        return True

    async def purge_inbox(self, *, older_than_seconds: float, limit: int) -> int:
        values = {"older_than_seconds": older_than_seconds, "limit": limit}
        async with self._leases.use() as connection:
            return await self._run(connection, "purge_inbox", values)

    # --- direct pass ----------------------------------------------------------------------

    @property
    def names(self) -> Names:
        return self._names

    async def take_claimed(self, fence: Fence, ids: Collection[str]) -> list[Queued]:
        values = {"ids": _array(ids), **_whose(fence)}
        async with self._claims.use() as connection:
            return await self._queued("take_claimed", values, connection)

    async def settle_claimed(
        self,
        fence: Fence,
        *,
        delivered: Collection[int] = (),
        released: Collection[int] = (),
        parked: Collection[int] = (),
        error: str | None = None,
    ) -> int:
        whose = _whose(fence)
        steps: dict[str, dict[str, Any]] = {}
        if delivered:
            steps["pass_delivered"] = {"seqs": _array(delivered), **whose}
        if released:
            reason = None if error is None else clean_error(error)
            steps["pass_released"] = {"seqs": _array(released), "error": reason, **whose}
        if parked:
            steps["pass_parked"] = {"seqs": _array(parked), **whose}
        async with self._settles.use() as connection:
            done = await self._in_one_message(connection, steps)
        journal = done.pop("pass_delivered", None)
        changed = sum(result.changed for result in done.values())
        return changed + (journal.rows[0][0] if journal and journal.rows else 0)

    # --- waiting --------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        if self._gate is None or self._gate.lane is None:
            await self._bell.wait(seconds)
        else:
            await self._gate.sleep(seconds)

    def wake(self) -> None:
        """End the current or the next `sleep` at once; safe from any thread."""
        self._bell.ring()


def from_url(url: str, names: Names, options: Mapping[str, str]) -> PostgresStore:
    """The store that a URL means; options: `notify` (on/off), `prepare_threshold` (number/off)."""
    unknown = sorted(set(options) - {"notify", "prepare_threshold"})
    if unknown:
        raise ConfigError(
            f"a PostgreSQL database has no option {unknown[0]!r}: use notify or prepare_threshold"
        )
    return PostgresStore(
        url,
        names=names,
        notify=_switch("notify", options.get("notify", "on")),
        prepare_threshold=_threshold(options.get("prepare_threshold", "0")),
    )


def _switch(name: str, text: str) -> bool:
    if text.lower() in {"on", "true", "yes", "1"}:
        return True
    if text.lower() in {"off", "false", "no", "0"}:
        return False
    raise ConfigError(f"option {name} is {text!r}: use on or off")


def _threshold(text: str) -> int | None:
    if text.lower() in {"off", "none"}:
        return None
    if not text.isdecimal():
        raise ConfigError(f"option prepare_threshold is {text!r}: use a number, or off")
    return int(text)


def _steps(settlement: Settlement) -> dict[str, dict[str, Any]]:
    """The statements that a settlement needs, in their order, with their values."""
    steps: dict[str, dict[str, Any]] = {}
    if settlement.delivered:
        steps["settle_delivered"] = {"seqs": _array(settlement.delivered)}
    if settlement.failures:
        failures = json.dumps([_failed(failure) for failure in settlement.failures])
        seqs = _array([failure.seq for failure in settlement.failures])
        steps["settle_failures"] = {"failures": failures, "seqs": seqs}
    if settlement.released:
        steps["settle_released"] = {"seqs": _array(settlement.released)}
    if settlement.parked:
        steps["settle_parked"] = {"seqs": _array(settlement.parked)}
    return steps


def _failed(failure: Failure) -> dict[str, Any]:
    return {
        "seq": failure.seq,
        "error": clean_error(failure.error),
        "retry_in": failure.retry_in_seconds,
        "blocks": failure.blocks,
        "attempts": failure.attempts,
    }


def _roster(relay: str, rows: Sequence[Any], paused: bool) -> Roster:
    leases = {name: (token, frozenset(buckets), used) for name, token, buckets, used in rows}
    token, mine, _ = leases.pop(relay)
    return Roster(
        token=token,
        mine=mine,
        others={name: buckets for name, (_, buckets, _) in leases.items()},
        strategies=frozenset(used for _, _, used in leases.values()),
        paused=paused,
    )


def _lost(fence: Fence) -> LeaseLost:
    return LeaseLost(
        f"relay {fence.relay} lost its lease (token {fence.token}) in lane {fence.lane}: "
        "another relay may own its keys now, so it must join again"
    )


def _whose(fence: Fence) -> dict[str, Any]:
    return {"lane": fence.lane, "relay": fence.relay, "token": fence.token}


def _asked(buckets: frozenset[int]) -> str | None:
    return None if len(buckets) == BUCKETS else _array(buckets)


def _array(values: Collection[Any]) -> str:
    """An array as text: ten times as fast as a list, and always of the same type."""
    return "{" + ",".join(map(str, values)) + "}"
