"""DeadLetters: an event that runs out of attempts is also sent to a topic for such events.

It is sent before it is marked as dead, so it arrives at least once, with its event id. A broker
that does not answer postpones the death: the event is retried later and dies again then, so
nothing is lost, and its lane goes on. One that refuses the dead letter is heard: the event is
dead in the outbox all the same, and the log says so.

The publisher is one of its own: the lane's may stand still because of that very event.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import NamedTuple, Protocol

from commitrelay.errors import BrokerUnreachable, CommitrelayError
from commitrelay.format import Plain
from commitrelay.mention import key_of, mention
from commitrelay.operations import Operations
from commitrelay.publisher import (
    DELIVERED,
    NOT_SENT,
    Message,
    Outcome,
    Publisher,
    Refused,
)
from commitrelay.retry import Backoff
from commitrelay.route import Route
from commitrelay.store import (
    AdminStore,
    EventFilter,
    EventRecord,
    Failure,
    Fence,
    Queued,
    Settlement,
    State,
    Store,
)
from commitrelay.urls import scrub
from commitrelay.wrapped import WrappedStore

logger = logging.getLogger("commitrelay.dead_letters")

PATIENCE_SECONDS = 2.0
"""For so long may the other results of a batch wait for the dead letters among them."""

OPENING_SECONDS = 5.0
"""For so long may a relay's start wait for the broker of its dead letters."""

POSTPONED_SECONDS = 10.0
"""When a death is postponed, it comes after this time at the earliest."""

ERROR = "dead-letter-error"
ATTEMPTS = "dead-letter-attempts"
LANE = "dead-letter-lane"
RELAY = "dead-letter-relay"
HISTORY = "dead-letter-history"

MOST_ERROR_CHARACTERS = 1000
MOST_HISTORY = 10
MOST_HISTORY_CHARACTERS = 200
"""Of each error in the history: some brokers take headers of a few kilobytes only."""


class Archive(AdminStore, Operations, Protocol):
    """Where the events are read again that have died."""


class DeadLetters:
    """A publisher that is opened and brought back behind the scenes, and never waited for."""

    def __init__(self, publisher: Publisher, topic: str, lane: str) -> None:
        self.lane = lane
        self._publisher = publisher
        self._compose = Plain(Route(topic))
        self._is_ready = False
        self._opening: asyncio.Task[None] | None = None
        self._recovering: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to open it. What is wrong with its URL is an error, an outage is none."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name=f"dead letters {self.lane}")
        await asyncio.wait({self._opening}, timeout=OPENING_SECONDS)
        if self._opening.done():
            self._opening.result()

    async def send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """One outcome per message, soon: `NOT_SENT` for all that would take long."""
        outcomes: Sequence[Outcome] = [NOT_SENT] * len(messages)
        if self._is_ready:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    outcomes = await self._publisher.publish(messages)
            if outcomes.count(DELIVERED) < len(outcomes):
                self._is_ready = False
                self._recovering = asyncio.create_task(self._patiently(self._publisher.recover))
        return outcomes

    def message(self, record: EventRecord, failure: Failure, relay: str, history: str) -> Message:
        """The event as it is, in the plain format, and how it died. An error if it has no form."""
        message = self._compose(_queued(record, failure))
        died = [
            (ERROR, _one_line(failure.error)),
            (ATTEMPTS, str((failure.attempts or 0) + 1)),
            (LANE, self.lane),
            (RELAY, relay),
            (HISTORY, history),
        ]
        names = {name for name, _value in died}
        kept = [(name, value) for name, value in message.headers if name.lower() not in names]
        return message._replace(headers=[*kept, *died])

    async def close(self) -> None:
        for task in (self._opening, self._recovering):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, CommitrelayError):
                    await task
        await self._publisher.close()

    async def _open(self) -> None:
        await self._patiently(self._publisher.open)

    async def _patiently(self, attempt: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(Random(), first_seconds=0.2, most_seconds=15.0)  # noqa: S311
        told = False
        while True:
            try:
                await attempt()
            except BrokerUnreachable as error:
                if not told:
                    logger.warning("dead letters of lane %s have to wait: %s", self.lane, error)
                    told = True
                await asyncio.sleep(backoff.seconds())
            else:
                self._is_ready = True
                return


class Letter(NamedTuple):
    """A message about an event that dies."""

    failure: Failure
    message: Message
    about: dict[str, str]


class BuryingStore(WrappedStore):
    """Sends dead letters before it lets their events be dead."""

    def __init__(self, inner: Store, letters: DeadLetters, archive: Archive) -> None:
        super().__init__(inner)
        self._letters = letters
        self._archive = archive

    async def open(self) -> None:
        await self._inner.open()
        await self._letters.open()

    async def close(self) -> None:
        await self._letters.close()
        await self._inner.close()

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        dying = [each for each in settlement.failures if each.retry_in_seconds is None]
        if dying:
            postponed = await self._bury(dying, fence.relay)
            failures = [postponed.get(each.seq, each) for each in settlement.failures]
            settlement = replace(settlement, failures=failures)
        return await self._inner.settle(fence, settlement)

    async def _bury(self, dying: Sequence[Failure], relay: str) -> dict[int, Failure]:
        """Send them; what becomes of those that have to wait."""
        found = [await self._letter(failure, relay) for failure in dying]
        letters = [letter for letter in found if letter is not None]
        outcomes = await self._letters.send([letter.message for letter in letters])
        postponed: dict[int, Failure] = {}
        for (failure, message, about), outcome in zip(letters, outcomes, strict=True):
            event = f"event {about['event_id']} of {about['key']}"
            if outcome is DELIVERED:
                logger.info("sent dead %s to %s", event, message.topic, extra=about)
            elif isinstance(outcome, Refused):
                reason = scrub(outcome.reason)
                logger.error("dead letter of %s refused: %s", event, reason, extra=about)
            else:
                logger.warning("%s dies later: its dead letter must wait", event, extra=about)
                later = failure._replace(retry_in_seconds=POSTPONED_SECONDS, blocks=True)
                postponed[failure.seq] = later
        return postponed

    async def _letter(self, failure: Failure, relay: str) -> Letter | None:
        record = await self._record(failure.seq)
        if record is None:
            return None  # somebody has purged or discarded it meanwhile
        key = key_of(record.aggregate_type, record.aggregate_id)
        about = mention(record.id, key, self._letters.lane)
        try:
            history = await self._history(failure.seq)
            return Letter(failure, self._letters.message(record, failure, relay, history), about)
        except CommitrelayError as error:
            reason = "event %s of %s cannot be a dead letter: %s"
            logger.error(reason, record.id, key, error, extra=about)
            return None

    async def _record(self, seq: int) -> EventRecord | None:
        found = await self._archive.list_events(EventFilter(), before_seq=seq + 1, limit=1)
        if not found or found[0].seq != seq:
            return None
        return await self._archive.show_event(found[0].id)

    async def _history(self, seq: int) -> str:
        """The failed attempts before this one, as JSON, oldest first."""
        story = await self._archive.story(seq)
        attempts = [
            {
                "attempt": each.attempt,
                "at": each.at.isoformat(),
                "error": _one_line(each.error)[:MOST_HISTORY_CHARACTERS],
            }
            for each in story.attempts
            if each.lane == self._letters.lane
        ]
        return json.dumps(attempts[-MOST_HISTORY:])


def _queued(record: EventRecord, failure: Failure) -> Queued:
    created_at = record.created_at.replace(tzinfo=None).isoformat(timespec="microseconds")
    return Queued(
        record.seq,
        0,
        0,
        State.PENDING,
        failure.attempts or 0,
        False,
        record.id,
        record.aggregate_type,
        record.aggregate_id,
        record.event_type,
        record.payload or b"",
        record.content_type,
        json.dumps(record.headers, ensure_ascii=False),
        record.idempotency_key,
        f"{created_at}Z",
    )


def _one_line(text: str) -> str:
    """Fit for a header, and without passwords."""
    words = " ".join(scrub(text).replace("\0", " ").split())
    return words.encode(errors="replace").decode()[:MOST_ERROR_CHARACTERS]
