"""Wrappers that make a port fail on purpose, to see what a system does about it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from commitrelay.publisher import (
    Message,
    Outcome,
    Publisher,
    PublisherCapabilities,
    Refused,
)


class FlakyPublisher:
    """Refuses a share of the messages at random and lets the others through to `inner`.

    It does not stop at a failure, whatever `inner` does: what follows is sent all the same.
    """

    def __init__(self, inner: Publisher, *, refuse: float, random: Random) -> None:
        self._inner = inner
        self._refuse = refuse
        self._random = random
        self.capabilities = PublisherCapabilities(
            stops_at_failure=False, max_in_flight=inner.capabilities.max_in_flight
        )
        self.delivery_timeout_seconds = inner.delivery_timeout_seconds

    async def open(self) -> None:
        await self._inner.open()

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        refused = [self._random.random() < self._refuse for _ in messages]
        passed = [message for message, bad in zip(messages, refused, strict=True) if not bad]
        outcomes = iter(await self._inner.publish(passed) if passed else ())
        return [Refused("refused at random") if bad else next(outcomes) for bad in refused]

    async def recover(self) -> None:
        await self._inner.recover()

    async def close(self) -> None:
        await self._inner.close()
