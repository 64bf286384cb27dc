"""Telemetry: what is counted and timed, wrapped around the two ports.

`MeteredStore` and `MeteredPublisher` of a lane share its `LaneMeter`. They count per batch. The
time from commit to acknowledgement is that of each event, but a large batch is measured as one:
its moments are sorted as the text that they are, and cut at the bounds of the histogram. What
the tables hold is not counted here but read now and then: see `observer.py`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import itemgetter

from commitrelay.errors import LeaseLost
from commitrelay.metrics import Counter, Gauge, Histogram, Metric, exposition
from commitrelay.publisher import DELIVERED, Message, Outcome, Publisher, Unreachable
from commitrelay.store import (
    ClaimRequest,
    Fence,
    OpenCircuit,
    Queued,
    Roster,
    Settlement,
    State,
    Store,
)
from commitrelay.wrapped import WrappedPublisher, WrappedStore

LATENCY_BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0),
    3600.0,
)
DURATION_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZE_BOUNDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)

MOST_BORN = 100_000
"""Events in hand of which the time of birth is kept; more are not timed."""

LARGE_BATCH = 64
SAMPLE_SIZE = 32

_ID_AND_BIRTH = itemgetter(Queued._fields.index("id"), Queued._fields.index("created_at"))


class Telemetry:
    """All metrics of one process."""

    def __init__(self) -> None:
        lane = ("lane",)
        self.messages = Gauge(
            "outbox_messages",
            "Events that are not settled, by state; counting stops at a cap.",
            ("lane", "status"),
        )
        self.oldest = Gauge(
            "outbox_oldest_pending_age_seconds",
            "Age of the oldest event that waits or is retried; 0 if there is none.",
            lane,
        )
        self.blocked_keys = Gauge(
            "outbox_blocked_keys",
            "Keys that stand still behind an event that is retried or dead; counting stops at a "
            "cap.",
            lane,
        )
        self.in_flight = Gauge("outbox_in_flight", "Events at the broker, not yet answered.", lane)
        self.up = Gauge(
            "outbox_relay_up", "1 while this relay keeps its lease alive, else 0.", lane
        )
        self.published = Counter(
            "outbox_published_total", "Events that the broker has acknowledged.", lane
        )
        self.failures = Counter(
            "outbox_publish_failures_total",
            "Events that were not taken: refused, or the broker was unreachable.",
            ("lane", "reason"),
        )
        self.retries = Counter(
            "outbox_retries_total", "Refused events that will be tried again.", lane
        )
        self.dead = Counter("outbox_dead_lettered_total", "Events that ran out of attempts.", lane)
        self.lease_lost = Counter(
            "outbox_lease_lost_total", "Times that another relay took over from this one.", lane
        )
        self.latency = Histogram(
            "outbox_delivery_latency_seconds",
            "Time from an event's entry in the log to the broker's acknowledgement.",
            lane,
            bounds=LATENCY_BOUNDS,
        )
        self.duration = Histogram(
            "outbox_publish_duration_seconds",
            "Time that the broker took to answer a batch.",
            lane,
            bounds=DURATION_BOUNDS,
        )
        self.batch_size = Histogram(
            "outbox_batch_size", "Events in a batch to the broker.", lane, bounds=SIZE_BOUNDS
        )

    @property
    def metrics(self) -> list[Metric]:
        return [each for each in vars(self).values() if isinstance(each, Metric)]

    def text(self) -> str:
        return exposition(self.metrics)


class LaneMeter:
    """What the two wrapped ports of one relay know of each other."""

    def __init__(
        self,
        telemetry: Telemetry,
        lane: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.telemetry = telemetry
        self.lane = lane
        self.clock = clock
        self.wall_clock = wall_clock
        self.born: dict[str, str] = {}  # event id → when it was added, of what is in hand
        self.relay: str | None = None  # its name, as soon as it has given it to the database
        self._lease_ends_at = 0.0
        self._token = 0
        self._show_at_zero()

    @property
    def is_up(self) -> bool:
        """Whether the relay has reached its database and broker, and holds its lease."""
        return self.clock() < self._lease_ends_at

    def renewed(self, token: int, started_at: float, lease_seconds: float) -> None:
        if self._token not in (0, token):
            self.telemetry.lease_lost.add(1, self.lane)
        self._token = token
        self._lease_ends_at = started_at + lease_seconds

    def lost(self, token: int) -> None:
        """A lease is lost once, however many calls are refused for it."""
        if token == self._token:
            self.telemetry.lease_lost.add(1, self.lane)
            self.left()

    def left(self) -> None:
        self._token = 0
        self._lease_ends_at = 0.0

    def claimed(self, rows: Sequence[Queued]) -> None:
        if len(self.born) > MOST_BORN:
            self.born.clear()  # of events that went to other relays
        self.born.update(map(_ID_AND_BIRTH, rows))
        for row in rows:
            if row.state == State.PENDING:
                break  # what is due comes first
            if row.state == State.SCHEDULED:  # late on purpose
                self.born.pop(row.id, None)

    def acknowledged(self, messages: Sequence[Message]) -> None:
        self.telemetry.published.add(len(messages), self.lane)
        born = self.born.pop
        found = [born(message.event_id, None) for message in messages]
        moments = [moment for moment in found if moment is not None]
        if len(moments) < LARGE_BATCH:
            now = self.wall_clock()
            for moment in moments:
                self.telemetry.latency.observe(_age(moment, now), self.lane)
        else:
            moments.sort()
            self._measure(moments)

    def _measure(self, moments: list[str]) -> None:
        """Many at a time, in order. Their sum is that of a sample, times as many as there are."""
        now, count = self.wall_clock(), len(moments)
        cuts = [count - bisect_left(moments, _moment(now - bound)) for bound in LATENCY_BOUNDS]
        sample = moments[:: count // SAMPLE_SIZE]
        mean = sum(_age(moment, now) for moment in sample) / len(sample)
        self.telemetry.latency.observe_counts([*cuts, count], mean * count, self.lane)

    def _show_at_zero(self) -> None:
        """A rate can only be taken of a series that was there before it grew."""
        told = self.telemetry
        for counter in (told.published, told.retries, told.dead, told.lease_lost):
            counter.add(0, self.lane)
        for reason in ("refused", "unreachable"):
            told.failures.add(0, self.lane, reason)
        for histogram in (told.latency, told.duration, told.batch_size):
            histogram.touch(self.lane)
        told.in_flight.set(0, self.lane)


class MeteredStore(WrappedStore):
    """Counts what is settled, and notices a lost lease."""

    def __init__(self, inner: Store, meter: LaneMeter) -> None:
        super().__init__(inner)
        self._meter = meter

    async def renew(
        self,
        lane: int,
        relay: str,
        *,
        strategy: str,
        keep: frozenset[int] | None,
        lease_seconds: float,
    ) -> Roster:
        self._meter.relay = relay
        started_at = self._meter.clock()
        roster = await self._inner.renew(
            lane, relay, strategy=strategy, keep=keep, lease_seconds=lease_seconds
        )
        self._meter.renewed(roster.token, started_at, lease_seconds)
        return roster

    async def tell_circuit(
        self, lane: int, relay: str, circuit: OpenCircuit | None, *, valid_seconds: float
    ) -> None:
        self._meter.relay = relay
        await self._inner.tell_circuit(lane, relay, circuit, valid_seconds=valid_seconds)

    async def leave(self, fence: Fence) -> None:
        self._meter.left()
        await self._inner.leave(fence)

    async def close(self) -> None:
        self._meter.left()
        await self._inner.close()

    async def claim(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        try:
            rows = await self._inner.claim(fence, request)
        except LeaseLost:
            self._meter.lost(fence.token)
            raise
        self._meter.claimed(rows)
        return rows

    async def claim_heads(self, fence: Fence, limit: int, claim_seconds: float) -> list[Queued]:
        try:
            rows = await self._inner.claim_heads(fence, limit, claim_seconds)
        except LeaseLost:
            self._meter.lost(fence.token)
            raise
        self._meter.claimed(rows)
        return rows

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        try:
            changed = await self._inner.settle(fence, settlement)
        except LeaseLost:
            self._meter.lost(fence.token)
            raise
        if settlement.failures:
            self._count(settlement)
        return changed

    def _count(self, settlement: Settlement) -> None:
        told, lane = self._meter.telemetry, self._meter.lane
        refused = len(settlement.failures)
        dead = sum(each.retry_in_seconds is None for each in settlement.failures)
        told.failures.add(refused, lane, "refused")
        told.dead.add(dead, lane)
        told.retries.add(refused - dead, lane)


class MeteredPublisher(WrappedPublisher):
    """Times batches and deliveries."""

    def __init__(self, inner: Publisher, meter: LaneMeter) -> None:
        super().__init__(inner)
        self._meter = meter

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        meter, told, lane = self._meter, self._meter.telemetry, self._meter.lane
        count = len(messages)
        told.batch_size.observe(count, lane)
        told.in_flight.add(count, lane)
        started_at = meter.clock()
        try:
            outcomes = await self._inner.publish(messages)
        finally:
            told.duration.observe(meter.clock() - started_at, lane)
            told.in_flight.add(-count, lane)
        if outcomes.count(DELIVERED) == count:
            meter.acknowledged(messages)
        else:
            self._sort(messages, outcomes)
        return outcomes

    def _sort(self, messages: Sequence[Message], outcomes: Sequence[Outcome]) -> None:
        pairs = list(zip(messages, outcomes, strict=True))
        self._meter.acknowledged([message for message, outcome in pairs if outcome is DELIVERED])
        unreachable = sum(isinstance(outcome, Unreachable) for outcome in outcomes)
        self._meter.telemetry.failures.add(unreachable, self._meter.lane, "unreachable")


def _age(moment: str, now: float) -> float:
    """In seconds; clocks that differ do not make it negative."""
    return max(0.0, now - datetime.fromisoformat(moment).timestamp())


def _moment(seconds: float) -> str:
    """As stores write it, but for trailing zeros, which some leave out: that is no millisecond."""
    when = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{when.isoformat(timespec='microseconds')}Z"
