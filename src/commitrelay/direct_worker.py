"""Direct worker: reads back what was claimed and committed, publishes it, settles it.

It never trusts that a transaction has committed: it looks for the claimed events through its own
connection, and what it does not find there it does not send. Whatever goes wrong, an event is let
go to the relay, at once if the database answers, else when its claim expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from commitrelay.claim import Claim
from commitrelay.errors import BrokerUnreachable, StoreUnreachable
from commitrelay.format import Composer
from commitrelay.guard import guarded_publish
from commitrelay.mention import key_of, mention
from commitrelay.outage import Outage
from commitrelay.publisher import (
    DELIVERED,
    NOT_SENT,
    Message,
    Outcome,
    Publisher,
    Refused,
    Unreachable,
)
from commitrelay.store import DirectStore, Fence, Queued
from commitrelay.urls import scrub

logger = logging.getLogger("commitrelay.direct")

BATCHES = 4
"""Batches at work at a time: while one is settled, the next ones are at the broker."""

BATCH_EVENTS = 500

LOOK_AGAIN_SECONDS = (0.05, 0.25, 1.0)
"""A claim that is not found was rolled back, or its commit is still on its way."""

Item = tuple[Queued, Message]


@dataclass(slots=True)
class DirectStats:
    """What a direct pass has done since it started."""

    passed: int = 0
    released: int = 0  # claimed, then let go to the relay
    in_hand: int = 0
    left_to_relay: Counter[str] = field(default_factory=Counter)  # never claimed, by reason


class DirectWorker:
    """Passes claims on, in one event loop. `is_ready` says whether it is worth making any."""

    def __init__(
        self,
        store: DirectStore,
        publisher: Publisher,
        *,
        lane: str,
        compose: Composer,
        name: str,
        token: int,
        stats: DirectStats,
        on_ended: Callable[[Claim], None],
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._lane = lane
        self._compose = compose
        self._name = name
        self._token = token
        self._stats = stats
        self._on_ended = on_ended
        self._clock = clock
        self._broker_outage = Outage("broker", clock=clock, random=random, most_seconds=15.0)
        self._store_outage = Outage("database", clock=clock, random=random)
        most = publisher.capabilities.max_in_flight or BATCHES
        self._most_batches = min(BATCHES, most)
        self._waiting: deque[Claim] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        self._publishing = 0
        self._stirred = asyncio.Event()
        self._landed = asyncio.Event()
        self._halted = asyncio.Event()
        self._halt_reason: Unreachable | None = None
        self._stopping = asyncio.Event()
        self.is_ready = False

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop`: then what is not yet at the broker is let go, the rest is settled."""
        try:
            await self._patiently(self._store_outage, self._open_store)
            await self._patiently(self._broker_outage, self._open_publisher)
            async with asyncio.TaskGroup() as self._tasks:
                recovering = self._tasks.create_task(self._recover())
                self.is_ready = not self._stopping.is_set()
                await self._work()
                recovering.cancel()
        finally:
            self.is_ready = False
            await self._publisher.close()
            await self._store.close()

    def stop(self) -> None:
        self.is_ready = False
        self._stopping.set()
        self._stirred.set()

    def hand_over(self, claim: Claim) -> None:
        """The claim's transaction has ended: see what became of it."""
        self._waiting.append(claim)
        self._stirred.set()

    async def _open_store(self) -> None:
        await self._store.open()
        lane = await self._store.lane(self._lane)
        self._fence = Fence(lane.id, self._name, self._token)

    async def _open_publisher(self) -> None:
        await self._publisher.open()
        await self._publisher.recover()

    async def _patiently(self, outage: Outage, attempt: Callable[[], object]) -> None:
        while not self._stopping.is_set():
            try:
                await attempt()  # type: ignore[misc]
            except (StoreUnreachable, BrokerUnreachable) as error:
                await self._pause(outage.goes_on(error))
            else:
                outage.is_over()
                return

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _work(self) -> None:
        while not self._stopping.is_set() or self._waiting or self._batches:
            await self._stirred.wait()
            self._stirred.clear()
            while self._waiting and len(self._batches) < self._most_batches:
                batch = self._tasks.create_task(self._pass(self._take()))
                self._batches.add(batch)
                batch.add_done_callback(self._batch_ended)

    def _batch_ended(self, batch: asyncio.Task[None]) -> None:
        self._batches.discard(batch)
        self._stirred.set()

    def _take(self) -> list[Claim]:
        claims = [self._waiting.popleft()]
        count = claims[0].count
        while self._waiting and count < BATCH_EVENTS:
            claims.append(self._waiting.popleft())
            count += claims[-1].count
        return claims

    # --- one batch ------------------------------------------------------------------------

    async def _pass(self, claims: list[Claim]) -> None:
        rows = await self._read_back(claims)
        if rows is None:
            self._end(claims)  # the database is away: the claims expire by themselves
            return
        found = {row.id for row in rows}
        missing = [claim for claim in claims if found.isdisjoint(claim.ids)]
        for claim in missing:
            self._look_again(claim)
        claims = [claim for claim in claims if claim not in missing]
        if rows:
            deadlines = {
                event_id: self._deadline(claim) for claim in claims for event_id in claim.ids
            }
            delivered, error = await self._send(rows, deadlines)
            await self._settle(claims, rows, delivered, error)
        self._end(claims)

    async def _read_back(self, claims: list[Claim]) -> list[Queued] | None:
        ids = [event_id for claim in claims for event_id in claim.ids]
        while any(self._clock() < self._deadline(claim) for claim in claims):
            try:
                rows = await self._store.take_claimed(self._fence, ids)
            except StoreUnreachable as error:
                await asyncio.sleep(self._store_outage.goes_on(error))
            else:
                self._store_outage.is_over()
                return sorted(rows)
        return None

    def _look_again(self, claim: Claim) -> None:
        if self._stopping.is_set() or claim.looks >= len(LOOK_AGAIN_SECONDS):
            self._end([claim])
            return
        pause = LOOK_AGAIN_SECONDS[claim.looks]
        claim.looks += 1
        asyncio.get_running_loop().call_later(pause, self.hand_over, claim)

    def _deadline(self, claim: Claim) -> float:
        """Sent before this, a message is surely answered before the claim expires."""
        return claim.made_at + claim.seconds - self._publisher.delivery_timeout_seconds

    async def _send(
        self, rows: Sequence[Queued], deadlines: dict[str, float]
    ) -> tuple[list[int], str | None]:
        """One event of a key at a time; the seqs that are at the broker, and what went wrong."""
        delivered: list[int] = []
        error: str | None = None
        lines: dict[object, deque[Queued]] = {}
        for row in rows:
            lines.setdefault(row.key, deque()).append(row)
        while lines:
            fronts: list[Item] = []
            for key, line in list(lines.items()):
                item = self._composed(line.popleft(), deadlines)
                if item is None:
                    del lines[key]
                else:
                    fronts.append(item)
            outcomes = await self._publish([message for _row, message in fronts])
            for (row, _message), outcome in zip(fronts, outcomes, strict=True):
                if outcome is DELIVERED:
                    delivered.append(row.seq)
                elif isinstance(outcome, (Refused, Unreachable)):
                    error = scrub(outcome.reason)
                if outcome is not DELIVERED or not lines[row.key]:
                    del lines[row.key]
        return delivered, error

    def _composed(self, row: Queued, deadlines: dict[str, float]) -> Item | None:
        """Ready to be sent; None if it is too late, or if it must fail: the relay's to tell."""
        if self._clock() >= deadlines[row.id]:
            return None
        try:
            return row, self._compose(row)
        except Exception:  # whatever a template or a stored header does
            return None

    async def _publish(self, messages: list[Message]) -> Sequence[Outcome]:
        if not messages:
            return ()
        if self._halted.is_set() or self._stopping.is_set():
            return [NOT_SENT] * len(messages)
        self._publishing += 1
        try:
            outcomes = await guarded_publish(self._publisher, messages)
        finally:
            self._publishing -= 1
            self._landed.set()
        self._heed(outcomes)
        return outcomes

    def _heed(self, outcomes: Sequence[Outcome]) -> None:
        """Stop at a failure that concerns more than its own message."""
        if outcomes.count(DELIVERED) == len(outcomes):
            self._broker_outage.is_over()
            return
        unreachable = next((each for each in outcomes if isinstance(each, Unreachable)), None)
        refused_only = all(each is DELIVERED or isinstance(each, Refused) for each in outcomes)
        if refused_only and not self._publisher.capabilities.stops_at_failure:
            return
        self.is_ready = False
        self._halt_reason = unreachable or self._halt_reason
        self._halted.set()

    async def _settle(
        self,
        claims: Collection[Claim],
        rows: Sequence[Queued],
        delivered: list[int],
        error: str | None,
    ) -> None:
        released, parked = _let_go(rows, delivered)
        ends_at = max(claim.made_at + claim.seconds for claim in claims)
        while self._clock() < ends_at:
            try:
                await self._store.settle_claimed(
                    self._fence,
                    delivered=delivered,
                    released=released,
                    parked=parked,
                    error=error,
                )
            except StoreUnreachable as trouble:
                await asyncio.sleep(self._store_outage.goes_on(trouble))
            else:
                self._store_outage.is_over()
                break
        self._stats.passed += len(delivered)
        self._stats.released += len(released) + len(parked)
        if released:
            self._tell_of(rows, {*released, *parked}, error or "not sent")

    def _tell_of(self, rows: Sequence[Queued], left: Collection[int], reason: str) -> None:
        """One line for all, for in an outage they are many: by the name of the first."""
        first = next(row for row in rows if row.seq in left)
        key = key_of(first.aggregate_type, first.aggregate_id)
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        logger.info(
            "event %s of %s%s left to the relay: %s", first.id, key, more, reason,
            extra=mention(first.id, key, self._lane),
        )  # fmt: skip

    def _end(self, claims: Collection[Claim]) -> None:
        for claim in claims:
            self._on_ended(claim)

    # --- recover --------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Wait out a broker that fails; meanwhile whatever comes is let go."""
        while True:
            await self._halted.wait()
            while self._publishing:
                self._landed.clear()
                await self._landed.wait()
            reason, self._halt_reason = self._halt_reason, None
            if reason is not None:
                await self._pause(self._broker_outage.goes_on(reason.reason))
            if self._stopping.is_set():
                return
            try:
                await self._publisher.recover()
            except BrokerUnreachable as error:
                self._halt_reason = Unreachable(str(error))
                continue
            self._halted.clear()
            self.is_ready = not self._stopping.is_set()


def _let_go(rows: Sequence[Queued], delivered: Collection[int]) -> tuple[list[int], list[int]]:
    """The seqs that were not delivered: the first ones of their keys, and those behind them."""
    rest = {row.seq: row.key for row in rows if row.seq not in set(delivered)}
    first = {key: seq for seq, key in sorted(rest.items(), reverse=True)}
    released = sorted(first.values())
    return released, sorted(set(rest).difference(released))
