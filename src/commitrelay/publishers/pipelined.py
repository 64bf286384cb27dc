"""PipelinedPublisher: what publishers over a pipelined connection have in common.

Acknowledgements are counted per batch: the caller is woken once, by the last one. Nothing stops at
a failure, for what was sent behind a failed message is on its way already; so the relay keeps one
unacknowledged event per key.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import (
    NOT_SENT,
    Message,
    Outcome,
    PublisherCapabilities,
    Unreachable,
)

T = TypeVar("T")

READY_SHARE = 0.8
"""Of the delivery timeout: how long `open` and `recover` may take."""


class Batch:
    """The messages of one call, their outcomes so far, and how many are still to come."""

    __slots__ = ("_done", "_left", "messages", "outcomes")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.outcomes: list[Outcome] = [NOT_SENT] * len(messages)
        self._left = len(messages)
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, position: int, outcome: Outcome) -> None:
        if not self._left:
            return  # too late: the caller has his answer
        self.outcomes[position] = outcome
        self._left -= 1
        if not self._left:
            self._finish()

    def give_up(self, reason: str) -> None:
        """Nothing more will be heard: whoever has no outcome yet gets this one."""
        outage = Unreachable(reason)
        self.outcomes = [outage if each is NOT_SENT else each for each in self.outcomes]
        self._left = 0
        self._finish()

    async def settled(self) -> None:
        """Wait until every message has its outcome."""
        if self._left:
            await self._done

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


class Link(Protocol):
    """An open connection. When it breaks, it gives up every batch that was sent through it."""

    @property
    def lost(self) -> str | None:
        """Why it is of no more use; None while it is."""

    async def send(self, batch: Batch) -> None:
        """Write all messages in order; returns before they are acknowledged."""

    async def check(self) -> None:
        """Whether the broker answers and takes messages: `BrokerUnreachable` if not."""

    def drop(self, reason: str) -> None:
        """Disconnect at once."""


class PipelinedPublisher(ABC):
    """One connection at a time; broken, it stays so until `recover`."""

    capabilities = PublisherCapabilities(stops_at_failure=False)

    def __init__(self, *, delivery_timeout_seconds: float) -> None:
        self.delivery_timeout_seconds = delivery_timeout_seconds
        self._link: Link | None = None
        self._turn = asyncio.Lock()  # fair: calls write in the order in which they were made
        self._under_way: set[Batch] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @abstractmethod
    async def _connect(self) -> Link:
        """A new connection, ready for messages: `BrokerUnreachable` or `ConfigError`."""

    async def open(self) -> None:
        await self._reconnect()

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        batch = Batch(messages)
        self._under_way.add(batch)
        self._idle.clear()
        try:
            async with asyncio.timeout(self.delivery_timeout_seconds):
                async with self._turn:
                    await self._open_link().send(batch)
                await batch.settled()
        except TimeoutError:
            batch.give_up(self._no_answer())
            # Late answers on it are of no use to anybody: `recover` starts anew.
            self._drop(self._no_answer())
        except BrokerUnreachable as error:
            batch.give_up(str(error))
        finally:
            self._under_way.discard(batch)
            if not self._under_way:
                self._idle.set()
        return batch.outcomes

    async def recover(self) -> None:
        link = self._link
        if link is None or link.lost is not None:
            await self._reconnect()
            return
        try:
            await self._within_time(link.check())
        except BrokerUnreachable as error:
            self._drop(str(error))
            raise

    async def close(self) -> None:
        if self._link is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self.delivery_timeout_seconds / 2):
                await self._idle.wait()
        self._drop(f"{self}: the publisher was closed")

    async def _reconnect(self) -> None:
        self._link = await self._within_time(self._connect())

    async def _within_time(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.delivery_timeout_seconds * READY_SHARE):
                return await work
        except TimeoutError:
            raise BrokerUnreachable(self._no_answer()) from None

    def _open_link(self) -> Link:
        if self._link is None:
            raise BrokerUnreachable(f"{self}: not connected")
        if self._link.lost is not None:
            raise BrokerUnreachable(self._link.lost)
        return self._link

    def _drop(self, reason: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.drop(reason)

    def _no_answer(self) -> str:
        return f"{self} did not answer within {self.delivery_timeout_seconds:g} s"
