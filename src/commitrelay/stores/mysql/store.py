"""The outbox in MySQL or MariaDB: what the relay needs of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, takewhile
from operator import itemgetter
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
)
from commitrelay.stores.bell import Bell
from commitrelay.stores.mysql.link import Link, Step, send
from commitrelay.stores.mysql.log import MysqlLog
from commitrelay.stores.mysql.operations import MysqlOperations
from commitrelay.stores.mysql.sweep import Sweep
from commitrelay.stores.text import clean_error

_MAX_ROUNDS = 16
_MIN_WINDOW = 4000
_ALL_BUCKETS = 2**BUCKETS - 1

_as_queued = partial(tuple.__new__, Queued)


class MysqlStore(MysqlLog, MysqlOperations):
    """Store and AdminStore on MySQL 8.0.29 or newer and MariaDB 10.6 or newer."""

    def __init__(self, url: str, *, names: Names | None = None) -> None:
        super().__init__(url, names=names)
        self._claims = self._new_link()
        self._sweep = Sweep(self._claims, self._sql)
        self._settles = self._new_link()
        self._leases = self._new_link()
        self._bell = Bell()

    def _new_link(self) -> Link:
        link = Link(self._url)
        self._links.append(link)
        return link

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(competing=True, wakes=False)

    async def close(self) -> None:
        await self._sweep.close()
        await super().close()

    async def lane(self, name: str) -> Lane:
        return await self._lane(name)

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
            "keep": _ALL_BUCKETS if keep is None else _as_bits(keep),
            "lease_seconds": lease_seconds,
        }
        names = ("lock_leases", "lane_paused", "remove_expired_leases", "renew_lease")
        done = await self._leases.transact(self._steps(values, *names, "lane_leases"))
        if not done[1].rows:
            raise ConfigError(f"there is no lane with the id {lane}: it was removed")
        return _roster(relay, done[-1].rows, paused=bool(done[1].rows[0][0]))

    async def acquire(self, fence: Fence, buckets: frozenset[int]) -> frozenset[int]:
        values = {"buckets": _as_bits(buckets), **_whose(fence)}
        done = await self._leases.transact(
            self._steps(values, "lock_leases", "acquire", "own_buckets")
        )
        if not done[-1].rows:
            raise _lost(fence)
        return _from_bits(done[-1].rows[0][0])

    async def leave(self, fence: Fence) -> None:
        await self._leases.transact(self._steps(_whose(fence), "leave_lane"))

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
        for step in self._steps(values, *names):  # not as one: gaps locked by two would deadlock
            await self._leases.transact([step])

    # --- claim ----------------------------------------------------------------------------

    async def claim(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        values = {
            "lane": fence.lane,
            "above_seq": request.above_seq,
            "buckets": request.buckets,
            "exclude_seqs": request.exclude_seqs,
            "exclude_keys": request.exclude_keys,
            "limit": request.limit,
        }
        if request.above_seq:
            (read,) = self._steps(values, "claim_pending")
            rows = await self._sweep.go_on(read)
        else:
            reads = self._steps(values, "claim_due", "claim_pending")
            rows = await self._sweep.begin(reads, request.limit)
        if len(rows) < request.limit:
            await self._sweep.end()
        return list(map(_as_queued, rows))

    async def claim_heads(self, fence: Fence, limit: int, claim_seconds: float) -> list[Queued]:
        claimed: list[Any] = []
        for _round in range(_MAX_ROUNDS):
            left = limit - len(claimed)
            window = {"window": max(4 * left, _MIN_WINDOW), "limit": left, **_whose(fence)}
            found = await self._claims.ask(self._sql["find_heads"], window)
            seqs = [seq for (seq,) in found.rows]
            claimed += await self._claim_found(fence, seqs, claim_seconds)
            if len(claimed) >= limit or not (await self._park_blocked(window) or seqs):
                break
        claimed.sort(key=itemgetter(0))
        return list(map(_as_queued, claimed))

    async def _claim_found(
        self, fence: Fence, seqs: list[int], claim_seconds: float
    ) -> Sequence[Any]:
        values = {"seqs": seqs, "claim_seconds": claim_seconds, **_whose(fence)}
        names = ("lock_fence", "mark_heads", "claimed_heads") if seqs else ("lock_fence",)
        done = await self._claims.transact(self._steps(values, *names))
        if not done[0].rows:
            raise _lost(fence)
        return done[-1].rows if seqs else ()

    async def _park_blocked(self, window: dict[str, Any]) -> int:
        """Blocked events at the front of the queue leave it, so that they hide no others."""
        found = await self._claims.ask(self._sql["find_blocked"], window)
        if not found.rows:
            return 0
        values = {**window, "seqs": [seq for (seq,) in found.rows]}
        done = await self._claims.transact(self._steps(values, "lock_fence", "settle_parked"))
        return done[1].changed

    # --- settle ---------------------------------------------------------------------------

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        whose = _whose(fence)
        plan: list[tuple[str, dict[str, Any]]] = []
        if settlement.delivered:
            seqs = {"seqs": settlement.delivered}
            plan += [("journal", seqs), ("settle_delivered", seqs)]
        for failure in settlement.failures:
            failed = _failed(failure)
            plan += [("note_failure", failed), ("settle_failure", failed)]
        if settlement.released:
            plan += [("settle_released", {"seqs": settlement.released})]
        if settlement.parked:
            plan += [("settle_parked", {"seqs": settlement.parked})]
        steps = [(self._sql[name], {**whose, **values}) for name, values in plan]
        fenced, *done = await self._settles.transact([*self._steps(whose, "lock_fence"), *steps])
        if not fenced.rows:
            raise _lost(fence)
        names = [name for name, _values in plan]
        return sum(
            result.changed
            for name, result in zip(names, done, strict=True)
            if name not in ("journal", "note_failure")
        )

    async def unpark(self, fence: Fence, buckets: frozenset[int], limit: int) -> int:
        whose = {**_whose(fence), "buckets": buckets, "limit": limit}
        reads = self._steps(whose, "holds_lease", "unblocked_keys", "find_abandoned")
        async with self._settles.use() as connection:
            held, keys, abandoned = await send(connection, reads)
        if not held.rows:
            raise _lost(fence)
        if not keys.rows and not abandoned.rows:
            return 0
        parked = await self._unblocked(whose, keys.rows, limit)
        steps = self._steps(whose, "lock_fence")
        if parked:
            steps += self._steps({**whose, "seqs": parked}, "unpark")
        if abandoned.rows:
            seqs = [seq for (seq,) in abandoned.rows]
            steps += self._steps({**whose, "seqs": seqs}, "free_abandoned")
        fenced, *done = await self._settles.transact(steps)
        if not fenced.rows:
            raise _lost(fence)
        return sum(result.changed for result in done)

    async def _unblocked(self, whose: dict[str, Any], keys: Sequence[Any], limit: int) -> list[int]:
        """The first parked events of each of the keys, up to the limit."""
        if not keys:
            return []
        steps = [(self._sql["blocking_events"], {**whose, "key": key}) for (key,) in keys]
        results = await self._settles.transact(steps)
        rows = [row for result in results for row in result.rows]
        free = (
            seq
            for _key, events in groupby(rows, itemgetter(0))
            for _, seq, _ in takewhile(lambda row: row[2] == State.PARKED, events)
        )
        return list(free)[:limit]

    async def idle(self, lane: int) -> bool:
        values = {"lane": lane, "buckets": range(BUCKETS), "limit": 1}
        for query in ("has_work", "unblocked_keys"):
            rows = (await self._leases.ask(self._sql[query], values)).rows
            if rows and (query == "unblocked_keys" or rows[0][0]):
                return False
        return True

    async def purge_inbox(self, *, older_than_seconds: float, limit: int) -> int:
        values = {"older_than_seconds": older_than_seconds, "limit": limit}
        return (await self._leases.transact(self._steps(values, "purge_inbox")))[0].changed

    def _steps(self, values: Mapping[str, Any], *names: str) -> list[Step]:
        return [(self._sql[name], values) for name in names]

    # --- waiting --------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        await self._bell.wait(seconds)

    def wake(self) -> None:
        """End the current or the next `sleep` at once; safe from any thread."""
        self._bell.ring()


def from_url(url: str, names: Names, options: Mapping[str, str]) -> MysqlStore:
    """The store that a `mysql://` or `mariadb://` URL means; there are no options."""
    if options:
        raise ConfigError(f"a MySQL database has no option {sorted(options)[0]!r}: remove it")
    return MysqlStore(url, names=names)


def _failed(failure: Failure) -> dict[str, Any]:
    dead = State.DEAD if failure.blocks else State.SKIPPED
    return {
        "seq": failure.seq,
        "error": clean_error(failure.error),
        "retry_in": failure.retry_in_seconds,
        "attempts": failure.attempts,
        "state": int(dead if failure.retry_in_seconds is None else State.RETRYING),
    }


def _roster(relay: str, rows: Sequence[Any], paused: bool) -> Roster:
    leases = {name: (token, _from_bits(bits), used) for name, token, bits, used in rows}
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


def _as_bits(buckets: Collection[int] | Iterable[int]) -> int:
    return sum(1 << bucket for bucket in buckets)


def _from_bits(bits: int) -> frozenset[int]:
    return frozenset(bucket for bucket in range(BUCKETS) if bits >> bucket & 1)
