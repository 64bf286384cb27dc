"""Store: the port to the database that holds log, queue, journal, lanes and leases.

The relay talks to a database through `Store` only. An adapter under `stores/` implements it,
declares what it can do in `StoreCapabilities`, and passes `commitrelay.testing.StoreSuite`.

Three rules hold for every adapter:

* Time is the database's. No method takes a wall-clock time from the relay; delays are seconds.
* Every change of the queue is fenced: it happens in one transaction with a check that the
  lease named by the `Fence` still exists, and changes no row if it does not (`LeaseLost`).
* No transaction is open when a method returns, but for the read-only snapshot of a sweep
  (see `claim`), which the adapter ends by itself soon after `SWEEP_SECONDS`.

A server that does not answer is `StoreUnreachable`; the adapter reconnects by itself at the
next call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from commitrelay.sql import Names

BUCKETS = 64
"""Keys are spread over this many buckets, which relays lease from each other."""

SWEEP_SECONDS = 0.2
"""How long a sweep may read ahead; then it starts over and finds what was committed late."""


class State(IntEnum):
    """Where a queue row stands; the numbers are stored, so they never change meaning."""

    PENDING = 0
    RETRYING = 1  # refused, due again later; blocks its key
    SCHEDULED = 2  # deliver_at is ahead; does not block its key
    PARKED = 3  # waits behind a retrying, dead or parked event of its key
    DEAD = 4  # out of attempts; blocks its key
    CLAIMED = 5  # being sent (competing strategy, direct pass); blocks its key
    SKIPPED = 6  # dead as well, but its followers pass (on_dead=skip)


BLOCKING = (State.RETRYING, State.PARKED, State.DEAD, State.CLAIMED)
"""An event in one of these states holds back the later events of its key."""


class Verdict(IntEnum):
    """How an event left the queue, as the journal keeps it."""

    PUBLISHED = 0
    DISCARDED = 1  # an operator decided that it need not be delivered
    RESOLVED = 2  # an operator says that it was delivered by other means


class Queued(NamedTuple):
    """One event as the relay claims it: the queue row and its event, ready to be sent.

    A tuple, because one is made for every event: text and bytes as the driver gives them, no
    uuid, datetime or dict objects.
    """

    seq: int
    key: int | str  # the same for all events of an aggregate; opaque
    bucket: int
    state: int
    attempts: int
    blocked: bool  # an earlier event of its key is in a blocking state
    id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    payload: bytes
    content_type: str
    headers: str  # a JSON object of strings, "{}" if there are none
    idempotency_key: str | None
    created_at: str  # RFC 3339, UTC, such as 2026-11-15T20:33:45.123456Z


SEQ: Final = 0
KEY: Final = 1
BUCKET: Final = 2
ATTEMPTS: Final = 4
BLOCKED: Final = 5
"""Where they are in a `Queued`: what is done for every event is not done by name."""


class Lane(NamedTuple):
    """A named destination with its own queue, filter, leases and pause switch."""

    id: int
    name: str
    paused: bool


class Fence(NamedTuple):
    """Proof of ownership that goes with every write: which relay, in which lane, which token."""

    lane: int
    relay: str
    token: int


class Roster(NamedTuple):
    """Who owns what in a lane, as seen by a relay that has just renewed its lease."""

    token: int  # this relay's fencing token; a new one if its old lease was gone
    mine: frozenset[int]  # buckets that this relay holds
    others: dict[str, frozenset[int]]  # the other live relays, also those without any bucket
    strategies: frozenset[str]  # of the other live relays: one lane must not mix them
    paused: bool  # the lane's switch, so that a pause takes effect at the next renewal

    @property
    def free(self) -> frozenset[int]:
        return frozenset(range(BUCKETS)) - self.mine.union(*self.others.values())


class OpenCircuit(NamedTuple):
    """A relay holds off, because its broker cannot be reached."""

    open_seconds: float
    error: str


class ClaimRequest(NamedTuple):
    """What to read next. `exclude_*` keep out what this relay already has in hand."""

    limit: int
    buckets: frozenset[int]
    above_seq: int = 0  # read-ahead floor of the current sweep; 0 also returns what is due
    exclude_seqs: Collection[int] = ()
    exclude_keys: Collection[int | str] = ()


class Failure(NamedTuple):
    """An event that was refused: what becomes of it."""

    seq: int
    error: str
    retry_in_seconds: float | None  # None: out of attempts, dead
    blocks: bool = True  # False: dead, but its followers may pass (on_dead=skip)
    attempts: int | None = None  # made before this one; told twice, a failure counts once


@dataclass(slots=True)
class Settlement:
    """The results of one or several batches, written in one transaction.

    `delivered` leave the queue and enter the journal. `failures` become retrying or dead, with
    one attempt more. `parked` go out of the hot scan, if something of their key still blocks
    them. `released` (competing strategy) become pending again with no attempt spent.
    """

    delivered: list[int] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    parked: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.delivered or self.failures or self.parked or self.released)


class SettledPage(NamedTuple):
    """A piece of the log as a purge sees it, in seq order."""

    seqs: list[int]  # old enough, and in no lane's queue
    last_seq: int  # where the next page begins
    is_last: bool  # the log ends here, or nothing in this page was old enough


class StoreCapabilities(NamedTuple):
    competing: bool  # can claim key heads with row locks (claim_heads)
    wakes: bool  # sleep() returns early when an event was committed elsewhere


class Store(Protocol):
    """What the relay needs of a database. One instance serves one lane of one relay."""

    @property
    def capabilities(self) -> StoreCapabilities: ...

    async def open(self) -> None:
        """Connect and check the schema: `SchemaMissing`, `StoreUnreachable` or `ConfigError`."""

    async def close(self) -> None:
        """Disconnect. Leases stay until they expire: see `leave`."""

    async def lane(self, name: str) -> Lane:
        """The lane of that name; `ConfigError` if there is none."""

    async def renew(
        self,
        lane: int,
        relay: str,
        *,
        strategy: str,
        keep: frozenset[int] | None,
        lease_seconds: float,
    ) -> Roster:
        """Extend this relay's lease (or join, with no bucket and a new, larger token).

        `keep` are the buckets it goes on holding; the rest are given up (None: keep all). Leases
        that have expired by the database's clock are removed first, this relay's excepted.
        """

    async def acquire(self, fence: Fence, buckets: frozenset[int]) -> frozenset[int]:
        """Take those of `buckets` that nobody holds; return all that this relay holds now."""

    async def leave(self, fence: Fence) -> None:
        """Give the lease up at once, so that others need not wait for it to expire."""

    async def tell_circuit(
        self, lane: int, relay: str, circuit: OpenCircuit | None, *, valid_seconds: float
    ) -> None:
        """Keep, for who reads the status, that a relay holds off; None: it does not, any more.

        Needs no lease: a relay that never reached its broker has none. What was told is void after
        `valid_seconds`, so that nobody believes a relay that died.
        """

    async def claim(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        """Read deliverable events of the leased buckets in seq order, at most `limit`.

        Changes no row: the lease is the claim. With `above_seq == 0` a sweep begins: the events
        whose retry or delivery time has come are returned first (by due time), then pending ones
        by seq. Otherwise the sweep goes on above it, with what its first claim could see: a later
        event of a key must not be returned while an earlier one, committed in between, was passed
        over. A sweep that cannot go on returns nothing. Rows with `blocked` set are to be parked,
        not sent.
        """

    async def claim_heads(self, fence: Fence, limit: int, claim_seconds: float) -> list[Queued]:
        """Competing strategy: lock and mark (`CLAIMED`) up to `limit` key heads of any bucket.

        A claim that is older than `claim_seconds` (of the claimer's choice) is claimable again.
        """

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        """Write results; return the number of rows changed. `LeaseLost` changes nothing.

        Rows that somebody else has changed meanwhile (an operator's discard, another relay's
        claim) are left alone.
        """

    async def unpark(self, fence: Fence, buckets: frozenset[int], limit: int) -> int:
        """Make parked events pending again, in seq order per key, whose key nothing blocks."""

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage:
        """Look at the next `limit` events of the log above `after_seq`: which are to be purged?"""

    async def delete_settled(self, seqs: Sequence[int]) -> int:
        """Delete those of these events that are in no lane's queue, and what is kept about them."""

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int:
        """Where the log has partitions: make those to come, drop those with nothing but settled
        events of that age (None: drop none); how many events went."""

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int:
        """Delete up to `limit` batches of the journal of which no event is left; how many."""

    async def purge_inbox(self, *, older_than_seconds: float, limit: int) -> int:
        """Delete up to `limit` marks of the inbox of that age, the oldest first; how many."""

    async def idle(self, lane: int) -> bool:
        """Whether nothing is pending, claimed or retrying.

        What is dead, parked behind it, or scheduled for later does not count.
        """

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or earlier when something may have been committed."""

    def wake(self) -> None:
        """End a `sleep` now; from any thread."""


class DirectStore(Protocol):
    """What a direct pass needs of a database: it owns what its process has claimed, no lease.

    Every change is fenced by the claim: `Fence.token` is the direct pass's own, which is negative
    so that it never meets a lease's, and a row is changed only while it is claimed with it.
    """

    @property
    def names(self) -> Names: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def lane(self, name: str) -> Lane: ...

    async def take_claimed(self, fence: Fence, ids: Collection[str]) -> list[Queued]:
        """Those of these events that are claimed with this token, and committed."""

    async def settle_claimed(
        self,
        fence: Fence,
        *,
        delivered: Collection[int] = (),
        released: Collection[int] = (),
        parked: Collection[int] = (),
        error: str | None = None,
    ) -> int:
        """Write results in one transaction; the number of rows changed.

        `delivered` leave the queue and enter the journal. `released` become retrying and due at
        once, with no attempt spent; `error` says why. `parked` follow a released one of their key.
        """


# --- what operators read -------------------------------------------------------------------


WAITING = ("pending", "retrying", "scheduled", "parked")


class LaneStatus(NamedTuple):
    """One lane at a glance. Counts stop at `capped_at`, so that they stay cheap."""

    lane: str
    paused: bool
    counts: dict[str, int]  # by lower-case state name: pending, retrying, scheduled, …
    capped_at: int
    oldest_pending_seconds: float | None  # age of the oldest pending or retrying event
    published_last_minute: int
    last_published_at: datetime | None
    last_error: str | None
    relays: dict[str, RelayStatus]  # those whose lease has not expired
    open_circuits: Mapping[str, OpenCircuit] = MappingProxyType({})  # by relay

    @property
    def is_served(self) -> bool:
        """Whether a relay is there, be it one that waits for its broker."""
        return bool(self.relays or self.open_circuits)

    @property
    def waiting(self) -> int:
        """Events that a relay would deliver, now or later."""
        return sum(self.counts.get(state, 0) for state in WAITING)


class RelayStatus(NamedTuple):
    buckets: int
    lease_expires_in_seconds: float


BLOCKED_CAP = 1000
"""Monitoring counts blocked keys up to this many."""


class Vitals(NamedTuple):
    """What monitoring reads beside the status; cheap, however large the tables are."""

    blocked_keys: dict[str, int]  # by lane: keys behind a retrying or dead event, up to a cap
    table_bytes: int  # log and queue on disk
    slot_lag_bytes: dict[str, int]  # by replication slot: what the server keeps for it


class EventFilter(NamedTuple):
    status: str | None = None  # a State's lower-case name, or published
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    event_type: str | None = None
    lane: str | None = None
    error: str | None = None  # a part of the last error's text; only queued events have one
    since: datetime | None = None  # added at this time or later
    until: datetime | None = None  # added before this time


class Delivery(NamedTuple):
    """One line of an event's story in one lane."""

    lane: str
    status: str  # pending, …, published, discarded, resolved; completed, once out of the queue
    attempts: int
    due_at: datetime | None
    last_error: str | None
    published_at: datetime | None
    relay: str | None
    waits_for_seq: int | None  # the event of the same key that it is stuck behind


UNREADABLE_HEADERS = "(not an object of strings)"
"""The name under which an event's record shows headers that a plain INSERT got wrong."""


class EventRecord(NamedTuple):
    """One event of the log, with where it stands in every lane."""

    seq: int
    id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    content_type: str
    headers: dict[str, str]
    idempotency_key: str | None
    created_at: datetime
    deliver_at: datetime | None
    payload: bytes | None  # None in lists, to keep them light
    deliveries: Sequence[Delivery]
    completed_at: datetime | None = None  # when `Outbox.complete` was called for it


class AdminStore(Protocol):
    """What operators need of a database; the same adapters implement both ports."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def initialise(self) -> Sequence[str]:
        """Create or migrate the schema; the names of the migrations that were applied."""

    async def status(self) -> Sequence[LaneStatus]: ...

    async def vitals(self) -> Vitals: ...

    async def list_events(
        self, where: EventFilter, *, before_seq: int | None, limit: int, above_seq: int = 0
    ) -> Sequence[EventRecord]:
        """Newest first, from `before_seq` (keyset paging) to `above_seq`, without payloads."""

    async def show_event(self, event_id: str) -> EventRecord | None: ...

    async def set_paused(self, lane: str, paused: bool) -> None: ...

    async def add_lane(
        self,
        name: str,
        *,
        aggregate_types: Sequence[str] | None = None,
        event_types: Sequence[str] | None = None,
    ) -> Lane:
        """A new lane gets what is added from now on and passes its filter (None: everything)."""
