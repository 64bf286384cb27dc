"""Sending: one call on its way: what was written, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from commitrelay.publisher import DELIVERED, NOT_SENT, Message, Outcome, Refused
from commitrelay.publishers.rabbitmq.channel import REJECTED, Channel, ChannelClosed
from commitrelay.publishers.rabbitmq.confirms import Flight


class Sending:
    """Fills `outcomes` by position; what it says nothing about stays `NOT_SENT`."""

    def __init__(self, messages: Sequence[Message], outcomes: list[Outcome]) -> None:
        self.messages = messages
        self.outcomes = outcomes
        self.addressed: list[tuple[int, str, str]] = []  # position, exchange, routing key
        self._positions: list[int] = []
        self._frames: list[bytes] = []
        self._ids: list[str] = []
        self._flight: Flight | None = None

    def add(self, position: int, event_id: str, frames: bytes) -> None:
        self._positions.append(position)
        self._frames.append(frames)
        self._ids.append(event_id)

    async def write(self, channel: Channel) -> None:
        """Hand everything to the broker, in order; waits only while it wants no more."""
        self._flight = channel.confirms.begin()
        try:
            with contextlib.suppress(ChannelClosed):  # `finished` tells
                await channel.send(self._flight, self._frames, self._ids)
        except BaseException:
            self._collect()
            raise

    async def finished(self) -> ChannelClosed | None:
        """Until every message has its answer; why there are none any more."""
        assert self._flight is not None
        try:
            await self._flight.done()
        except ChannelClosed as cause:
            return cause
        finally:
            self._collect()
        return None

    @property
    def unknown(self) -> list[int]:
        """The positions of messages that nothing was heard of."""
        return [each for each in self._positions if self.outcomes[each] is NOT_SENT]

    @property
    def trouble(self) -> set[tuple[str, str]]:
        """The (exchange, routing key) pairs of messages that were not taken."""
        if self._flight is None or not self._flight.failures:
            return set()
        failed = {self._positions[each] for each in self._flight.failures}
        return {(exchange, key) for position, exchange, key in self.addressed if position in failed}

    def _collect(self) -> None:
        assert self._flight is not None
        for each in self._flight.settled:
            self.outcomes[self._positions[each]] = DELIVERED
        if not self._flight.failures:
            return
        # A message that came back was not taken, also if its confirm has not arrived yet.
        places = {position: (exchange, key) for position, exchange, key in self.addressed}
        for each, reason in self._flight.failures.items():
            position = self._positions[each]
            exchange, key = places[position]
            where = f"exchange {exchange!r}, routing key {key!r}: " if reason is REJECTED else ""
            self.outcomes[position] = Refused(where + reason)
