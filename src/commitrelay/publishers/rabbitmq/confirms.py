"""Confirms: which message a confirm, a rejection or a return of the broker is about. No I/O.

The broker numbers the messages of a channel as they come, from 1, and confirms by these numbers,
one at a time or all up to a number, in any order. A `Flight` is a run of numbers: the messages of
one call. It counts, and wakes its call once, when the last of them is settled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from itertools import compress

OPEN, SETTLED = 0, 1


class UnknownConfirm(Exception):
    """The broker confirms what was never sent: nothing that it says can be trusted."""


class Flight:
    """Messages on their way, under consecutive numbers."""

    __slots__ = (
        "_done",
        "_flags",
        "_ids",
        "_low",
        "_open",
        "_places",
        "_sealed",
        "failures",
        "first",
    )

    def __init__(self, first: int) -> None:
        self.first = first
        self.failures: dict[int, str] = {}  # by position: why the broker did not take it
        self._ids: list[str] = []
        self._places: dict[str, list[int]] = {}  # by event id; made when something comes back
        self._flags = bytearray()
        self._open = 0
        self._low = 0  # everything below is settled
        self._sealed = False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        return len(self._flags)

    @property
    def is_settled(self) -> bool:
        return not self._open

    @property
    def unsettled(self) -> list[int]:
        """The positions that nothing was heard of."""
        return [position for position, flag in enumerate(self._flags) if flag == OPEN]

    @property
    def settled(self) -> list[int]:
        return list(compress(range(len(self._flags)), self._flags))

    def add(self, event_ids: Sequence[str]) -> None:
        self._ids += event_ids
        self._places = {}
        self._flags += bytes(len(event_ids))
        self._open += len(event_ids)

    def seal(self) -> None:
        """Nothing more will be added."""
        self._sealed = True
        self._wake_if_done()

    async def done(self) -> None:
        """Until all are settled; or the exception that `fail` was given."""
        await asyncio.shield(self._done)  # whoever gives up waiting does not end it for others

    def fail(self, error: Exception) -> None:
        """Nothing more will be heard."""
        if not self._done.done():
            self._done.set_exception(error)
            self._done.exception()  # its call may have given up waiting

    def settle(self, position: int, failure: str | None) -> None:
        if self._flags[position] == OPEN:
            self._flags[position] = SETTLED
            self._open -= 1
            if failure is not None:
                self.failures.setdefault(position, failure)
            self._wake_if_done()

    def settle_up_to(self, position: int, failure: str | None) -> None:
        """Including that one."""
        end = min(position + 1, len(self._flags))
        if end <= self._low:
            return
        if failure is not None:
            for each in range(self._low, end):
                if self._flags[each] == OPEN:
                    self.failures.setdefault(each, failure)
        self._open -= self._flags.count(OPEN, self._low, end)
        self._flags[self._low : end] = b"\x01" * (end - self._low)
        self._low = end
        self._wake_if_done()

    def returned(self, event_id: str | None, reason: str) -> bool:
        """A return names no number: every unsettled message with that id is taken as returned."""
        if not self._places:
            for position, each in enumerate(self._ids):
                self._places.setdefault(each, []).append(position)
        places = self._places.get(event_id or "", [])
        unsettled = [position for position in places if self._flags[position] == OPEN]
        self.failures.update(dict.fromkeys(unsettled, reason))
        return bool(unsettled)

    def _wake_if_done(self) -> None:
        if self._sealed and not self._open and not self._done.done():
            self._done.set_result(None)


class Confirms:
    """All flights of one channel."""

    def __init__(self) -> None:
        self._next = 1
        self._flights: deque[Flight] = deque()

    async def idle(self) -> None:
        """Until nothing is on its way: every message has its answer, or will never have one."""
        for flight in list(self._flights):
            flight.seal()
            with contextlib.suppress(Exception):
                await flight.done()

    def begin(self) -> Flight:
        flight = Flight(self._next)
        self._flights.append(flight)
        return flight

    def sent(self, flight: Flight, event_ids: Sequence[str]) -> None:
        """These were written, in this order, right after what the flight has already."""
        assert flight.first + len(flight) == self._next, "one flight writes at a time"
        flight.add(event_ids)
        self._next += len(event_ids)

    def settle(self, number: int, multiple: bool, failure: str | None = None) -> None:
        """The broker took (or, for a reason, did not take) one message, or all up to it."""
        if number == 0 and multiple:
            number = self._next - 1  # AMQP: all that are outstanding
        if not 0 < number < self._next:
            raise UnknownConfirm(f"it confirms message {number} of {self._next - 1}")
        for flight in self._flights:
            position = number - flight.first
            if position < 0:
                break
            if multiple:
                flight.settle_up_to(position, failure)
            elif position < len(flight):
                flight.settle(position, failure)
                break
        while len(self._flights) > 1 and self._flights[0].is_settled:
            self._flights.popleft()

    def returned(self, event_id: str | None, reason: str) -> None:
        # All flights: not one, so that a message that was sent twice is not taken as delivered.
        found = [flight.returned(event_id, reason) for flight in self._flights]
        if not any(found):
            raise UnknownConfirm(f"it returns a message {event_id!r} that is not on its way")

    def fail(self, error: Exception) -> None:
        for flight in self._flights:
            flight.fail(error)
