"""A broker in memory that fails, delays, loses acknowledgements and reorders."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

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
from tests.simulation.faults import Faults, Gate

DELIVERY_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True)
class Arrival:
    at: float
    event_id: str
    relay: str


class Broker:
    """The log of everything that has arrived."""

    def __init__(self, random: Random, faults: Faults, poison: set[str]) -> None:
        self.random = random
        self.faults = faults
        self.poison = poison  # ids of events that are always refused
        self.log: list[Arrival] = []
        self.refusals: Counter[str] = Counter()  # of each event
        self.faults_seen = 0
        self.calls_too_many = 0  # that overlapped although the publisher allows fewer

    def receive(self, message: Message, relay: str) -> Outcome:
        """What happens to one message at the moment of its arrival."""
        dice = self.random.random
        now = asyncio.get_running_loop().time()
        if self.faults.broker_is_down or dice() < self.faults.lose_message:
            self.faults_seen += 1
            return Unreachable("the broker does not answer")
        if message.event_id in self.poison or dice() < self.faults.refuse:
            self.refusals[message.event_id] += 1
            return Refused("the broker does not want it")
        self.log.append(Arrival(now, message.event_id, relay))
        if dice() < self.faults.lose_ack:
            self.faults_seen += 1
            return Unreachable("the acknowledgement was lost")
        return DELIVERED


class _Connection(ABC):
    delivery_timeout_seconds = DELIVERY_TIMEOUT_SECONDS
    stops_at_failure: bool

    def __init__(
        self, broker: Broker, relay: str, gate: Gate, max_in_flight: int | None = None
    ) -> None:
        self.capabilities = PublisherCapabilities(self.stops_at_failure, max_in_flight)
        self._broker = broker
        self._relay = relay
        self._gate = gate
        self._calls = 0

    async def open(self) -> None:
        await self._gate.pass_through()
        if self._broker.faults.broker_is_down:
            raise BrokerUnreachable("the broker is down")

    async def close(self) -> None:
        return

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        self._calls += 1
        self._broker.calls_too_many += self._calls > (self.capabilities.max_in_flight or inf)
        try:
            return await self._publish(messages)
        finally:
            self._calls -= 1

    @abstractmethod
    async def _publish(self, messages: Sequence[Message]) -> Sequence[Outcome]: ...

    async def _latency(self) -> None:
        await asyncio.sleep(self._broker.random.expovariate(1 / 0.02) % 0.3)
        await self._gate.pass_through()


class ReorderingPublisher(_Connection):
    """Every message travels on its own; what follows a failure is delivered all the same."""

    stops_at_failure = False

    async def _publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return list(await asyncio.gather(*(self._one(message) for message in messages)))

    async def _one(self, message: Message) -> Outcome:
        await self._latency()
        outcome = self._broker.receive(message, self._relay)
        await self._latency()
        return outcome

    async def recover(self) -> None:
        await self.open()


class StoppingPublisher(_Connection):
    """One message after the other, over all calls; nothing after a failure until `recover`."""

    stops_at_failure = True

    def __init__(
        self, broker: Broker, relay: str, gate: Gate, max_in_flight: int | None = None
    ) -> None:
        super().__init__(broker, relay, gate, max_in_flight)
        self._turn = asyncio.Lock()
        self._stopped = False

    async def _publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        async with self._turn:
            await self._latency()
            outcomes = [self._one(message) for message in messages]
        await self._latency()
        return outcomes

    def _one(self, message: Message) -> Outcome:
        if self._stopped:
            return NOT_SENT
        outcome = self._broker.receive(message, self._relay)
        self._stopped = outcome is not DELIVERED
        return outcome

    async def recover(self) -> None:
        await self.open()
        self._stopped = False


PublisherKind = type[ReorderingPublisher] | type[StoppingPublisher]
