"""Claim: what a transaction takes, just before it commits, for the direct pass of its process.

One statement on the caller's own handle marks the events that the transaction has added as being
sent, so that no relay ever sees them otherwise. Only the head of a key can be claimed, and nothing
at all while the lane has a backlog: the rest is left to the relay, as if there were no direct pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Protocol

from commitrelay.conversation import Conversation
from commitrelay.handles import run_on, run_on_async
from commitrelay.sql import Names
from commitrelay.statement import Dialect, Style, statement

MAX_EVENTS_PER_CLAIM = 100
"""A transaction that adds more than this is a bulk load: the relay's batches serve it better."""


@dataclass(slots=True, eq=False)
class Claim:
    """The events of one transaction in the direct pass's hands, from before the claim on."""

    ids: Sequence[str]
    made_at: float  # by the direct pass's own monotonic clock, from before the statement was sent
    lane: str
    token: int
    seconds: float
    count: int = 0  # how many of them could be claimed
    looks: int = 0  # how often they were looked for in vain
    ended: Future[None] = field(default_factory=Future)

    def wait(self, seconds: float) -> None:
        """Until the events are settled or let go, but no longer than this."""
        if seconds > 0:
            wait([self.ended], seconds)

    async def wait_async(self, seconds: float) -> None:
        import asyncio  # noqa: PLC0415 - those who only write events do not pay for it

        if seconds > 0:
            await asyncio.wait([asyncio.wrap_future(self.ended)], timeout=seconds)

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class DirectPassPort(Protocol):
    """What an outbox needs of a direct pass."""

    @property
    def wait_seconds(self) -> float:
        """How long a transaction waits, once committed, for the broker's answer."""

    def check(self, names: Names) -> None:
        """`ConfigError` if its store is another outbox than the one with these names."""

    def begin(self, ids: Sequence[str]) -> Claim | None:
        """A claim to make now, or None: leave these events to the relay."""

    def pass_on(self, claim: Claim) -> None:
        """The transaction has ended, well or not: look whether the claim was committed."""

    def left(self, count: int, reason: str) -> None:
        """So many events are the relay's, and why."""


class Claimer:
    """Makes the claims of one outbox, on whatever handle its transactions run."""

    def __init__(self, names: Names, direct: DirectPassPort) -> None:
        self._names = names
        self.direct = direct

    def claim(self, handle: object, ids: Sequence[str]) -> Claim | None:
        """Claim what can be claimed of these, in the transaction that is open on ``handle``."""
        claim = self.direct.begin(ids) if ids else None
        if claim is not None:
            try:
                claim.count = run_on(handle, self._talk(claim), called="transaction")
            except BaseException:
                self.direct.pass_on(claim)
                raise
        return claim

    async def claim_async(self, handle: object, ids: Sequence[str]) -> Claim | None:
        claim = self.direct.begin(ids) if ids else None
        if claim is not None:
            try:
                claim.count = await run_on_async(handle, self._talk(claim), called="transaction")
            except BaseException:
                self.direct.pass_on(claim)
                raise
        return claim

    def _talk(self, claim: Claim) -> Callable[[Dialect, Style], Conversation[int]]:
        return lambda dialect, style: claim_added(claim, self._names, dialect, style)


def claim_added(
    claim: Claim,
    names: Names,
    dialect: Dialect,
    style: Style,
    clock: Callable[[], float] = time.time,
) -> Conversation[int]:
    """The claiming statement; how many events it got. ``clock`` is SQLite's."""
    text = statement("claim_added", len(claim.ids), dialect, style, names)
    if text is None:
        return 0
    preparation = statement("before_claim", 1, dialect, style, names)
    if preparation is not None:
        yield preparation, ()
    term_ms = round(claim.seconds * 1000)
    until = round(clock() * 1000) + term_ms if dialect == "sqlite" else term_ms
    count = yield text, (claim.token, until, claim.lane, *claim.ids, claim.lane)
    return count
