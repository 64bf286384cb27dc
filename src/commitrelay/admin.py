"""Admin: what operators ask of an outbox. The CLI calls it, and so may anything else; no SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from uuid import UUID

from commitrelay.errors import CommitrelayError, ConfigError
from commitrelay.kinds import duration
from commitrelay.page import Page, look
from commitrelay.store import AdminStore, EventFilter, EventRecord, LaneStatus, State

STATUSES = (*(state.name.lower() for state in State), "published", "discarded", "resolved")
MAX_LISTED = 1000
STANDING_SECONDS = 60.0
"""A lane that has something to do and publishes nothing for so long stands still."""


class Admin:
    """Questions and commands to one outbox: `async with Admin(store) as admin: …`."""

    def __init__(self, store: AdminStore) -> None:
        self._store = store

    async def __aenter__(self) -> Self:
        try:
            await self._store.open()
        except BaseException:
            await self._store.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._store.close()

    async def status(self) -> Sequence[LaneStatus]:
        """Every lane at a glance."""
        return await self._store.status()

    async def events(
        self, where: EventFilter, *, before_seq: int | None = None, limit: int = 50
    ) -> Page:
        """Events, newest first, without payloads; `before_seq` is where the last page ended."""
        if where.lane is not None:
            await self._check_lane(where.lane)
        return await look(self._store, where, before_seq, min(limit, MAX_LISTED))

    async def event(self, event_id: str) -> EventRecord:
        """One event with its payload and its story in every lane."""
        try:
            event_id = str(UUID(event_id))
        except ValueError:
            raise ConfigError(
                f"{event_id!r} is not an event id: it is a UUID, as `commitrelay list` shows it"
            ) from None
        found = await self._store.show_event(event_id)
        if found is None:
            raise CommitrelayError(
                f"no event {event_id}: it was never committed here, or purged after its retention"
            )
        return found

    async def _check_lane(self, name: str) -> None:
        known = [status.lane for status in await self._store.status()]
        if name not in known:
            raise ConfigError(f"no lane {name!r}: there is {', '.join(known)}")


async def initialise(store: AdminStore) -> Sequence[str]:
    """Create or migrate the schema; the names of the migrations that were applied."""
    try:
        return await store.initialise()
    finally:
        await store.close()


def breaches(
    lanes: Sequence[LaneStatus], *, max_lag_seconds: float | None, max_dead: int | None
) -> list[str]:
    """What exceeds its threshold, one sentence each."""
    found = []
    for status in lanes:
        lag = status.oldest_pending_seconds
        if max_lag_seconds is not None and lag is not None and lag > max_lag_seconds:
            limit = duration(max_lag_seconds)
            found.append(f"lane {status.lane}: oldest event waits {lag:.0f}s, limit {limit}")
        dead = sum(status.counts.get(state, 0) for state in ("dead", "skipped"))
        if max_dead is not None and dead > max_dead:
            found.append(f"lane {status.lane}: {dead} dead events, limit {max_dead}")
    return found


def circuit(status: LaneStatus) -> str | None:
    """Open if a relay of the lane holds off from its broker, else closed; None without a relay."""
    if status.open_circuits:
        return "open"
    return "closed" if status.relays else None


def stands_still(status: LaneStatus) -> bool:
    """Whether relays are there and events wait, but nothing goes out."""
    lag = status.oldest_pending_seconds
    if status.paused or not status.relays or not status.counts.get("pending") or lag is None:
        return False
    last = status.last_published_at
    idle = lag if last is None else (datetime.now(UTC) - last).total_seconds()
    return min(lag, idle) > STANDING_SECONDS


def unserved(lanes: Sequence[LaneStatus]) -> list[LaneStatus]:
    """Lanes where events wait and no relay is; none where no relay is in any lane."""
    if not any(status.is_served for status in lanes):
        return []
    return [status for status in lanes if status.waiting and not status.is_served]


def events_wait(status: LaneStatus) -> str:
    """1 event waits; 12 events wait; 100,000+ events wait where counting stopped."""
    number = status.waiting
    more = "+" if number >= status.capped_at else ""
    return "1 event waits" if number == 1 else f"{number:,}{more} events wait"
