"""WorkerPublisher: what publishers over blocking calls have in common, one thread at work.

All calls run in one thread, in the order in which they were made, so that messages stay in order
and a failure stops what is queued behind it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import (
    DELIVERED,
    NOT_SENT,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)

T = TypeVar("T")


class WorkerPublisher(ABC):
    """Stops at a failure: a refusal holds back its key, anything worse all, until `recover`."""

    capabilities = PublisherCapabilities(stops_at_failure=True)

    def __init__(self, *, delivery_timeout_seconds: float) -> None:
        self.delivery_timeout_seconds = delivery_timeout_seconds
        self._worker: ThreadPoolExecutor | None = None
        self._held_keys: set[str] = set()
        self._stopped = False

    # --- what a subclass is asked, in the worker's thread ------------------------------------

    @abstractmethod
    def _connect(self) -> None:
        """Get ready, at first and after a failure: `BrokerUnreachable` or `ConfigError`."""

    @abstractmethod
    def _refusal(self, message: Message) -> str | None:
        """Why this message cannot be sent; None if it can."""

    def _all_fit(self, _messages: Sequence[Message]) -> bool:
        """Whether `_refusal` certainly has nothing to say of any; asked once for all."""
        return False

    @abstractmethod
    def _send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """Send all, durably; an `OSError` or `BrokerUnreachable` if nobody took them."""

    # --- the port ------------------------------------------------------------------------

    async def open(self) -> None:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, type(self).__name__)
        await self._in_worker(self._connect)

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        try:
            return await self._in_worker(lambda: self._publish(messages))
        except BrokerUnreachable as error:
            self._stopped = True
            return [Unreachable(str(error))] * len(messages)

    async def recover(self) -> None:
        await self._in_worker(self._recover)

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        done = asyncio.wrap_future(worker.submit(self._disconnect))
        worker.shutdown(wait=False)
        await asyncio.wait([done], timeout=self.delivery_timeout_seconds)

    async def _in_worker(self, work: Callable[[], T]) -> T:
        if self._worker is None:
            raise BrokerUnreachable(f"{self} is not open")
        future: Future[T] = self._worker.submit(work)
        try:
            async with asyncio.timeout(self.delivery_timeout_seconds):
                # Shielded: an abandoned call keeps its place in the thread, so that whatever
                # comes later cannot overtake it.
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            raise BrokerUnreachable(
                f"{self} did not answer within {self.delivery_timeout_seconds:g} s"
            ) from None

    # --- in the worker's thread ------------------------------------------------------------

    def _disconnect(self) -> None:
        """Let go of what `_connect` has taken."""
        return

    def _recover(self) -> None:
        self._connect()
        self._held_keys.clear()
        self._stopped = False

    def _publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        if self._stopped:
            return [NOT_SENT] * len(messages)
        if not self._held_keys and messages and self._all_fit(messages):
            return self._try_to_send(messages)
        outcomes: list[Outcome] = [NOT_SENT] * len(messages)
        accepted: list[int] = []
        for position, message in enumerate(messages):
            if message.key in self._held_keys:
                continue
            if reason := self._refusal(message):
                outcomes[position] = Refused(reason)
                self._held_keys.add(message.key)
            else:
                accepted.append(position)
        if accepted:
            results = self._try_to_send([messages[position] for position in accepted])
            for position, result in zip(accepted, results, strict=True):
                outcomes[position] = result
        return outcomes

    def _try_to_send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        try:
            outcomes = self._send(messages)
        except (OSError, BrokerUnreachable) as error:
            outcomes = [Unreachable(f"{self}: {error}")] * len(messages)
        if outcomes.count(DELIVERED) < len(outcomes):
            self._stopped = True
        return outcomes
