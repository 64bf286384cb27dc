"""Findings: what is wrong right now, of one observation of the outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from commitrelay.admin import events_wait
from commitrelay.kinds import duration, size
from commitrelay.observer import Observation
from commitrelay.store import LaneStatus

QUIET_SECONDS = 300.0
"""A lost lease is news for this long."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is too much; None: never."""

    lag_seconds: float | None = 300.0
    standing_seconds: float | None = 120.0
    table_bytes: int | None = None
    slot_lag_bytes: int | None = None
    reminder_seconds: float | None = 3600.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: what, where, and how much of it."""

    alert: str
    subject: str  # the lane, or the replication slot
    summary: str
    value: float
    limit: float
    lane: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    is_unserved: bool = False  # the lane has no relay that could tell of it

    @property
    def key(self) -> tuple[str, str, bool]:
        return self.alert, self.subject, self.is_unserved


class Watch:
    """What is wrong in an observation. It remembers only what one look cannot tell."""

    def __init__(
        self,
        limits: Limits,
        *,
        clock: Callable[[], float],
        leases_lost: Callable[[str], float],
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._leases_lost = leases_lost
        self._stood: dict[str, tuple[datetime | None, float]] = {}
        self._lost: dict[str, tuple[float, float]] = {}  # lane → how often, seen first when
        self._unserved: dict[str, float] = {}  # lane → since when events wait there

    def lane(self, status: LaneStatus) -> Iterator[Finding]:
        yield from self._dead(status)
        yield from self._lag(status)
        yield from self._standing(status)

    def unserved(self, lanes: Sequence[LaneStatus]) -> Iterator[Finding]:
        """Of all the lanes that nobody serves."""
        now, limit = self._clock(), self._limits.standing_seconds
        waiting = [status for status in lanes if status.waiting and not status.paused]
        self._unserved = {each.lane: self._unserved.get(each.lane, now) for each in waiting}
        for status in waiting:
            lane, stood = status.lane, now - self._unserved[status.lane]
            if limit is not None and stood > limit:
                said = (
                    f"no relay serves lane {lane}: {events_wait(status)}, for {stood:.0f}s by now, "
                    f"limit {duration(limit)}: start one with commitrelay run --lane {lane}, or "
                    "see commitrelay lanes remove"
                )
                yield Finding("standing", lane, said, stood, limit, lane, is_unserved=True)

    def outbox(self, observation: Observation) -> Iterator[Finding]:
        """What concerns no lane in particular."""
        vitals, limits = observation.vitals, self._limits
        if limits.table_bytes is not None and vitals.table_bytes > limits.table_bytes:
            yield Finding(
                "table_size",
                "outbox",
                f"log and queue have grown to {size(vitals.table_bytes)}, "
                f"limit {size(limits.table_bytes)}: purge, or see why nothing is delivered",
                vitals.table_bytes,
                limits.table_bytes,
            )
        for slot, lag in vitals.slot_lag_bytes.items():
            if limits.slot_lag_bytes is not None and lag > limits.slot_lag_bytes:
                yield Finding(
                    "slot_lag",
                    slot,
                    f"PostgreSQL keeps {size(lag)} for the replication slot {slot}, "
                    f"limit {size(limits.slot_lag_bytes)}: start its reader, or drop it",
                    lag,
                    limits.slot_lag_bytes,
                )

    def _dead(self, status: LaneStatus) -> Iterator[Finding]:
        dead = status.counts.get("dead", 0) + status.counts.get("skipped", 0)
        if dead:
            noun = "event is" if dead == 1 else "events are"
            said = f"{dead} {noun} dead in lane {status.lane}: see commitrelay list --status dead"
            yield _of_lane("dead_letter", status.lane, said, dead, 0)

    def _lag(self, status: LaneStatus) -> Iterator[Finding]:
        lag, limit = status.oldest_pending_seconds, self._limits.lag_seconds
        if lag is not None and limit is not None and lag > limit:
            paused = ", which is paused" if status.paused else ""
            said = (
                f"the oldest event of lane {status.lane}{paused} waits for {lag:.0f}s, "
                f"limit {duration(limit)}"
            )
            yield _of_lane("lag", status.lane, said, lag, limit)

    def _standing(self, status: LaneStatus) -> Iterator[Finding]:
        limit, lane = self._limits.standing_seconds, status.lane
        if limit is None or status.paused or not status.counts.get("pending"):
            self._stood.pop(lane, None)
            return
        last, since = self._stood.get(lane, (None, 0.0))
        if lane not in self._stood or last != status.last_published_at:
            self._stood[lane] = (status.last_published_at, self._clock())
            return
        stood = self._clock() - since
        if stood > limit:
            said = (
                f"lane {lane} stands still: events wait, and none was delivered for {stood:.0f}s, "
                f"limit {duration(limit)}"
            )
            yield _of_lane("standing", lane, said, stood, limit)

    def lease(self, lane: str) -> Iterator[Finding]:
        lost, now = self._leases_lost(lane), self._clock()
        known, since = self._lost.get(lane, (0.0, 0.0))
        if lost > known:
            self._lost[lane] = (lost, now)
        elif not known or now - since > QUIET_SECONDS:
            return
        times = "once" if lost == 1 else f"{lost:.0f} times"
        said = (
            f"this relay has lost its lease in lane {lane} {times}: it was paused, starved, or cut "
            "off from the database"
        )
        yield _of_lane("lease_lost", lane, said, lost, 0)


def _of_lane(alert: str, lane: str, summary: str, value: float, limit: float) -> Finding:
    return Finding(alert, lane, summary, value, limit, lane=lane)
