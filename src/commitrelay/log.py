"""LogStore: the port by which the log and the journal are read as they grow, and written away.

The adapters under `stores/` implement it beside `Store` and `AdminStore`. Reading above a number
is no promise to see everything: a transaction may commit a lower number later. Whoever follows
the log looks again at the gaps (`follow.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from commitrelay.store import EventRecord, SettledPage


class Position(NamedTuple):
    """Where log and journal end at the moment."""

    seq: int
    batch: int


class JournalBatch(NamedTuple):
    """One row of the journal: events that left a lane's queue together."""

    id: int
    lane: str
    status: str  # published, discarded or resolved
    at: datetime
    relay: str
    seqs: Sequence[int]


class LaneFilter(NamedTuple):
    """Which events a lane takes when they are added: they must pass both. None: all of them."""

    aggregate_types: Sequence[str] | None = None
    event_types: Sequence[str] | None = None

    def takes_the_same_as(self, other: LaneFilter) -> bool:
        return all(
            mine == theirs if mine is None or theirs is None else set(mine) == set(theirs)
            for mine, theirs in zip(self, other, strict=True)
        )


class LaneRecord(NamedTuple):
    """A lane as it was set up."""

    name: str
    paused: bool
    aggregate_types: Sequence[str] | None  # None: all
    event_types: Sequence[str] | None
    created_at: datetime
    waiting: int  # events in its queue, counted up to a cap
    relays: int  # leases that have not expired

    @property
    def filter(self) -> LaneFilter:
        return LaneFilter(self.aggregate_types, self.event_types)


class LogStore(Protocol):
    """What purge, archive, tail, lanes and doctor need of a database beside `AdminStore`."""

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage: ...

    async def delete_settled(self, seqs: Sequence[int]) -> int: ...

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int: ...

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int: ...

    async def count_act(self, audit: int, events: int) -> None:
        """Add to the number of events that the act of an audit row has changed."""

    async def read_events(
        self, seqs: Sequence[int], *, payloads: bool = True
    ) -> Sequence[EventRecord]:
        """Those of these events that are there, in seq order, with their deliveries."""

    async def end_of_log(self) -> Position: ...

    async def added(self, *, after_seq: int, limit: int) -> Sequence[EventRecord]:
        """Events above a seq, lowest first, without payloads."""

    async def batches(self, *, after: int, limit: int) -> Sequence[JournalBatch]:
        """Batches of the journal above a number, lowest first."""

    async def lanes(self) -> Sequence[LaneRecord]:
        """All lanes, in the order in which they were added."""

    async def set_filter(self, name: str, *, seen: LaneFilter, new: LaneFilter) -> bool:
        """Change what a lane takes from now on; what is in its queue stays.

        False, and nothing is changed, if its filter is not what was seen, or the lane is closed.
        """

    async def close_lane(self, name: str) -> None:
        """From now on the lane takes no event and is paused: the first step of its removal."""

    async def empty_lane(self, name: str, limit: int) -> int:
        """Take up to `limit` events out of a closed lane's queue; how many."""

    async def remove_lane(self, name: str) -> bool:
        """Forget a closed lane with its leases, if its queue is empty; whether it was."""

    async def facts(self, query: str, values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The rows that a query of `doctor.sql` answers, by the names of its columns."""
