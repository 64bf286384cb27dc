"""SharedSource: what sources have in common whose broker has no groups with order of its own.

Each partition has one *seat*. Who takes it reads the partition, the others stand by; that there is
only one is the broker's promise, by a lock or an exclusive consumer. Who should take which seat is
agreed among the readers: the partitions are dealt out in turn to all who are there.

When the connection breaks every seat is given up and taken again: what was not acknowledged comes
again, from the first.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, TypeVar

from commitrelay.errors import BrokerUnreachable, CommitrelayError
from commitrelay.retry import Backoff
from commitrelay.source import Arrival, OnRevoked
from commitrelay.sources.buffer import Buffer
from commitrelay.sources.trouble import Trouble

logger = logging.getLogger("commitrelay.source")

T = TypeVar("T")

STAND_BY_SECONDS = 0.5
"""Between two attempts to take a seat that somebody else has."""

STABLE_SECONDS = 5.0
"""A seat that was held for so long is taken again at once."""

MEET_SECONDS = 1.0
"""Between two looks at who else is there."""


class SeatLost(Exception):
    """Somebody else has the partition now."""


class Seat(ABC):
    """One partition in our hands."""

    def __init__(self, partition: str) -> None:
        self.partition = partition

    @abstractmethod
    async def read(self, buffer: Buffer) -> None:
        """Put what arrives into the buffer, until `SeatLost` or `BrokerUnreachable`."""

    async def hold(self) -> None:
        """Keep the seat, while it is read and while it is given up; the same exceptions."""
        await asyncio.Event().wait()

    @abstractmethod
    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        """These are done; ignored if the seat is lost."""

    @abstractmethod
    async def lag(self) -> int | None:
        """How many messages of the partition are not acknowledged."""

    @abstractmethod
    async def release(self) -> None:
        """Let the next reader have it."""


class NoAnswer(BrokerUnreachable):
    """Not in time."""


async def in_time(seconds: float, work: Awaitable[T]) -> T:
    """What comes of it, or `NoAnswer`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise NoAnswer(f"did not answer within {seconds:g} s") from None


class Place(NamedTuple):
    """The position of an arrival."""

    seat: Seat
    where: Any  # what the broker calls it


def places(arrivals: Sequence[Arrival]) -> list[Any]:
    """Where they are, in the broker's words."""
    return [each.position.where for each in arrivals if isinstance(each.position, Place)]


class SharedSource(ABC):
    """One connection and a seat for each partition that is ours."""

    def __init__(
        self, partitions: Collection[str], *, timeout_seconds: float, revoke_timeout_seconds: float
    ) -> None:
        self.me = secrets.token_hex(8)
        self._partitions = sorted(partitions)
        self._timeout_seconds = timeout_seconds
        self._revoke_timeout_seconds = revoke_timeout_seconds
        self._buffer = Buffer()
        self._seats: dict[str, Seat] = {}
        self._tried = {each: asyncio.Event() for each in self._partitions}
        self._members: list[str] = [self.me]
        self._is_alone = False  # nobody can be heard
        self._changed = asyncio.Event()
        self._reaching = asyncio.Lock()
        self._trouble = Trouble(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._on_revoked: OnRevoked | None = None

    # --- what a subclass is asked ----------------------------------------------------------------

    @abstractmethod
    async def _connect(self) -> None:
        """A new connection: `BrokerUnreachable`, or `ConfigError` if waiting does not help."""

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @property
    @abstractmethod
    def _is_connected(self) -> bool: ...

    @abstractmethod
    async def _take(self, partition: str) -> Seat | None:
        """The seat, or None if somebody else has it."""

    async def _meet(self) -> Collection[str]:
        """Say that we are here, and hear who else is."""
        return [self.me]

    async def _part(self) -> None:
        """Say that we leave."""
        return

    # --- the port --------------------------------------------------------------------------------

    async def open(self, on_revoked: OnRevoked) -> None:
        self._on_revoked = on_revoked
        await self._in_time(self._connect())
        if len(self._partitions) > 1:
            await self._look_around()
            self._tasks.append(asyncio.create_task(self._meet_others()))
        self._tasks += [asyncio.create_task(self._tend(each)) for each in self._partitions]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_seconds):
                await asyncio.gather(*(each.wait() for each in self._tried.values()))

    async def read(self, limit: int, wait_seconds: float) -> Sequence[Arrival]:
        return await self._buffer.take(limit, wait_seconds)

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        mine: dict[Seat, list[Arrival]] = {}
        for arrival in arrivals:
            place = arrival.position
            assert isinstance(place, Place)
            if self._seats.get(arrival.partition) is place.seat:
                mine.setdefault(place.seat, []).append(arrival)
        for seat, done in mine.items():
            with suppress(BrokerUnreachable):  # then they come again
                await self._in_time(seat.ack(done))

    async def lag(self) -> int | None:
        total = 0
        for seat in list(self._seats.values()):
            try:
                lag = await self._in_time(seat.lag())
            except BrokerUnreachable:
                return None
            if lag is None:
                return None
            total += lag
        return total

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        seats, self._seats = list(self._seats.values()), {}
        if self._is_connected:
            with suppress(BrokerUnreachable):
                for seat in seats:
                    await self._in_time(seat.release())
                await self._in_time(self._part())
        await self._disconnect()

    # --- who reads what ----------------------------------------------------------------------

    def _is_mine(self, partition: str) -> bool:
        turn = self._partitions.index(partition)
        return self._members[turn % len(self._members)] == self.me

    async def _meet_others(self) -> None:
        while True:
            await asyncio.sleep(MEET_SECONDS)
            await self._look_around()

    async def _look_around(self) -> None:
        try:
            self._met(await in_time(self._timeout_seconds, self._meet()))
        except BrokerUnreachable as error:
            if self._is_connected and not self._is_alone:
                self._is_alone = True
                logger.warning(
                    "%s: readers cannot hear of each other, so the first takes all: %s", self, error
                )
        else:
            self._is_alone = False

    def _met(self, members: Collection[str]) -> None:
        """These readers are there."""
        listed = sorted({self.me, *members})
        if listed != self._members:
            self._members = listed
            self._changed.set()
            self._changed = asyncio.Event()

    async def _until(self, *, mine: bool, partition: str) -> None:
        while self._is_mine(partition) is not mine:
            await self._changed.wait()

    # --- one partition -----------------------------------------------------------------------

    async def _tend(self, partition: str) -> None:
        """Take the seat whenever it is ours to take, and give it up when it is not."""
        backoff = Backoff(Random(), first_seconds=0.05, most_seconds=2.0)  # noqa: S311
        while True:
            if not self._is_mine(partition):
                self._tried[partition].set()
            await self._until(mine=True, partition=partition)
            try:
                await self._reach()
                seat = await self._in_time(self._take(partition))
            except CommitrelayError as error:
                self._tried[partition].set()
                self._trouble.goes_on(error)
                await asyncio.sleep(backoff.seconds())
                continue
            self._trouble.is_over()
            if seat is None:
                self._tried[partition].set()
                await asyncio.sleep(STAND_BY_SECONDS)
                continue
            taken_at = time.monotonic()
            is_lost = await self._occupy(seat)
            if time.monotonic() - taken_at > STABLE_SECONDS:
                backoff.reset()
            if is_lost:
                await asyncio.sleep(backoff.seconds())

    async def _reach(self) -> None:
        async with self._reaching:
            if not self._is_connected:
                await self._disconnect()
                await self._in_time(self._connect())

    async def _occupy(self, seat: Seat) -> bool:
        """Until the seat should be another reader's, or is lost: which of them."""
        partition = seat.partition
        self._seats[partition] = seat
        self._tried[partition].set()
        reading = asyncio.create_task(seat.read(self._buffer))
        holding = asyncio.create_task(seat.hold())
        leaving = asyncio.create_task(self._until(mine=False, partition=partition))
        try:
            await asyncio.wait({reading, holding, leaving}, return_when=asyncio.FIRST_COMPLETED)
            is_lost = reading.done() or holding.done()
            reading.cancel()
            if is_lost:
                self._explain(partition, [each for each in (reading, holding) if each.done()])
            self._buffer.drop([partition])
            await self._announce(partition)
            del self._seats[partition]
            if not is_lost:
                with suppress(BrokerUnreachable):
                    await self._in_time(seat.release())
            return is_lost
        finally:
            for task in (reading, holding, leaving):
                task.cancel()
            await asyncio.gather(reading, holding, leaving, return_exceptions=True)

    def _explain(self, partition: str, ended: list[asyncio.Task[None]]) -> None:
        for task in ended:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, SeatLost):
                logger.warning("%s: %s has another reader now", self, partition)
            elif isinstance(error, BrokerUnreachable):
                if not self._is_connected:
                    self._trouble.goes_on(error)
                else:
                    logger.warning("%s: %s is read anew: %s", self, partition, error)
            elif error is not None:
                logger.error("%s: reading %s has failed", self, partition, exc_info=error)

    async def _announce(self, partition: str) -> None:
        assert self._on_revoked is not None, "opened before"
        try:
            async with asyncio.timeout(self._revoke_timeout_seconds):
                await self._on_revoked([partition])
        except TimeoutError:
            logger.warning(
                "%s: %s goes to another reader, and what is in hand was not done within %g s",
                self,
                partition,
                self._revoke_timeout_seconds,
            )
        except Exception:
            logger.exception("%s: what follows a revocation has failed", self)

    async def _in_time(self, work: Awaitable[T]) -> T:
        """The broker answers, or is as good as gone."""
        try:
            return await in_time(self._timeout_seconds, work)
        except NoAnswer as error:
            self._give_up_connection()
            raise BrokerUnreachable(f"{self} {error}") from None

    @abstractmethod
    def _give_up_connection(self) -> None:
        """It does not answer: the next one who needs it makes a new one."""
