"""Operations: the port by which operators change an outbox, and what it tells them of it.

The adapters under `stores/` implement it beside `Store` and `AdminStore`. Four rules hold:

* An audit row is committed before anything is changed; which events an act changed is written in
  the same transaction as the change. One act changes an event of a lane once.
* Every change is a compare-and-set: an event that is not in the state that the operator saw, or
  that a relay may have in hand, is left alone and not counted.
* Nothing that blocked its key becomes pending: a sweep under way may have read past it, and a later
  event of the key would overtake it. What is tried again becomes *retrying* and due, what is
  replayed becomes *parked*, and the relay takes both from there before it sweeps.
* Work comes in bounded batches, so that no lock is held for long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from commitrelay.store import EventFilter, Lane, State, Verdict

MAX_TARGETS = 100_000
"""One command changes no more events of a queue than this."""

WAITING_CAP = 10_000
"""Counts of what waits behind an event stop here, and so does looking for it."""


class Target(NamedTuple):
    """One event in one lane's queue, as an operator saw it."""

    seq: int
    lane: int
    state: State


class Batch(NamedTuple):
    """Events of one lane that were seen in one state, to be changed in one transaction."""

    lane: int
    state: State
    seqs: Sequence[int]


class Act(NamedTuple):
    """What an operator is about to do, for the audit."""

    actor: str
    action: str  # retry, discard, resolve, edit, replay, pause, …
    lane: str | None  # None: all of them
    detail: Mapping[str, Any]  # what was asked for


class AuditRow(NamedTuple):
    """What an operator did."""

    id: int
    at: datetime
    actor: str
    action: str
    lane: str | None
    detail: Mapping[str, Any]
    events: int  # that were changed


class Version(NamedTuple):
    """What of an event can be edited."""

    payload: bytes
    content_type: str
    headers: str  # a JSON object of strings


class BlockedKey(NamedTuple):
    """A key that stands still, and the event that it stands still behind."""

    lane: str
    aggregate_type: str
    aggregate_id: str
    seq: int
    id: str
    event_type: str
    state: str
    attempts: int
    due_at: datetime | None
    last_error: str | None
    since: datetime  # its first failed attempt, or when it was added
    waiting: int  # later events of the key that are known to wait
    more_may_wait: bool  # counting stopped at WAITING_CAP


class FailedAttempt(NamedTuple):
    lane: str
    attempt: int
    at: datetime
    relay: str
    error: str


class Settled(NamedTuple):
    """How and when an event left a lane's queue, and by whom: a relay or an operator."""

    lane: str
    status: str  # published, discarded, resolved
    at: datetime
    by: str


class Edited(NamedTuple):
    """When an event was edited, and what it was before."""

    at: datetime
    actor: str
    old: Version


class StuckBehind(NamedTuple):
    """The event that blocks an event's key in a lane."""

    lane: str
    seq: int
    id: str
    event_type: str
    state: str
    last_error: str | None


class Hold(NamedTuple):
    """In whose hands an event in a lane's queue is; what is dead is in an operator's.

    *claimed* or *direct*: marked as being sent, by a relay or by a direct pass. *leased*: a relay
    has the lease of its bucket, and delivers it. *unclaimed*: any relay of the lane may claim it.
    *unheld*: no relay has its bucket.
    """

    lane: str
    kind: str
    relay: str | None  # None also if the relay that has claimed it is gone
    ends_in_seconds: float | None  # the claim or the lease, by the database's clock


class Story(NamedTuple):
    """All that happened to an event, beside what its record tells. Each part is oldest first."""

    attempts: Sequence[FailedAttempt]
    settled: Sequence[Settled]
    edits: Sequence[Edited]
    acts: Sequence[AuditRow]
    stuck_behind: Sequence[StuckBehind]
    holds: Sequence[Hold]
    completed_at: datetime | None


class Operations(Protocol):
    """What operators change in a database, and what they read to decide on it."""

    async def find_targets(
        self,
        where: EventFilter,
        *,
        ids: Sequence[str] | None,
        states: Sequence[State],
        limit: int,
    ) -> Sequence[Target]:
        """Queued events in one of `states` that match, at most `limit`; None: whatever id."""

    async def begin_act(self, act: Act) -> int:
        """Write the audit row, and commit it; its id goes with every change that follows."""

    async def retry_events(self, audit: int, batch: Batch) -> int:
        """Dead or retrying events are due now, with all their attempts before them; how many.

        What is due already is left alone: a relay may have it in hand.
        """

    async def remove_events(self, audit: int, batch: Batch, verdict: Verdict) -> int:
        """Take events out of a lane's queue and journal them with the actor's name; how many.

        Pending and due events are left alone while any relay has a lease in the lane: it may have
        them in hand.
        """

    async def count_edits(self, seqs: Sequence[int]) -> Mapping[int, int]:
        """How often each of these events has been edited; those that never were may be missing."""

    async def edit_event(self, audit: int, target: Target, new: Version, *, edits: int) -> bool:
        """Change a dead event, unless it was edited since, and keep what it was; whether it was.

        `edits` is how often it had been edited when the operator looked.
        """

    async def find_in_log(
        self,
        where: EventFilter,
        *,
        ids: Sequence[str] | None,
        above_seq: int,
        limit: int,
    ) -> Sequence[int]:
        """Seqs of the log that match, ascending from `above_seq`; of a lane: what has left it."""

    async def replay_events(self, audit: int, lane: Lane, seqs: Sequence[int]) -> int:
        """Put events of the log into a lane's queue as parked; how many were not in it."""

    async def blocked_keys(self, lane: str | None, *, limit: int) -> Sequence[BlockedKey]:
        """Keys whose first blocking event is retrying or dead, at most `limit`."""

    async def story(self, seq: int) -> Story:
        """What happened to one event."""

    async def list_audit(self, *, before_id: int | None, limit: int) -> Sequence[AuditRow]:
        """What operators did, newest first."""
