"""Publisher: the port to the broker.

An adapter under `publishers/` implements `Publisher`, declares what it can do in
`PublisherCapabilities`, and passes `commitrelay.testing.PublisherSuite`.

`publish` answers with one outcome per message, in the order of the messages:

* ``DELIVERED``: the broker has it, durably, as far as the broker promises.
* ``Refused(reason)``: the broker (or its client) rejects this very message. Costs an attempt.
* ``Unreachable(reason)``: nobody answered, or the answer was lost. Costs no attempt; the relay
  opens its circuit and tries again later, with the same event id.
* ``NOT_SENT``: held back by the publisher because an earlier message failed. Costs nothing.

A broker that says when to come back is heard: ``retry_after_seconds`` of a refusal is the least
that its event waits, that of an outage is how long the relay waits.

A publisher that *stops at a failure* promises more: from the first message that is not
delivered until `recover` is called, no later message is delivered, also of `publish` calls
that overlap. The relay can then keep many events of one key in flight and still never let a
later one overtake a failed one. It calls `recover` when nothing is in flight any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol


class Tombstone(bytes):
    """No value at all. There is one instance, `TOMBSTONE`: compare with `is`.

    It is empty, so a broker that knows no difference between nothing and empty needs no code.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "TOMBSTONE"


TOMBSTONE: Final = Tombstone()


class Message(NamedTuple):
    """What goes to the broker: an event, routed and formatted. A tuple, because there are many."""

    topic: str
    key: str  # the aggregate id: what the broker partitions by
    value: bytes  # `TOMBSTONE` where the broker shall get a null
    headers: list[tuple[str, str]]
    event_id: str

    @property
    def timestamp_ms(self) -> int:
        """Since 1970, for brokers that keep a time with a message; 0: when it is sent."""
        return 0


TOPIC: Final = 0
VALUE: Final = 2
"""Where they are in a `Message`: what is done for every message is not done by name."""


class StampedMessage(Message):
    """A message with a time of its own, set once after it was made."""

    stamp_ms = 0

    @property
    def timestamp_ms(self) -> int:
        return self.stamp_ms


class Delivered:
    """The broker has the message. There is one instance, `DELIVERED`: compare with `is`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DELIVERED"


class NotSent:
    """The message was held back. There is one instance, `NOT_SENT`: compare with `is`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOT_SENT"


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will not take this message; another one it might."""

    reason: str
    retry_after_seconds: float | None = None  # not earlier, says the broker


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The broker did not answer in time; the message may or may not have arrived."""

    reason: str
    retry_after_seconds: float | None = None  # it did answer: come back then


DELIVERED: Final = Delivered()
NOT_SENT: Final = NotSent()
Outcome = Delivered | NotSent | Refused | Unreachable


@dataclass(frozen=True, slots=True)
class PublisherCapabilities:
    stops_at_failure: bool
    max_in_flight: int | None = None  # publish() calls that may overlap; None: any number
    one_owner: bool = False  # `recover` shuts out every other instance of the same identity


class Publisher(Protocol):
    """What the relay needs of a broker. One instance serves one lane of one relay."""

    @property
    def capabilities(self) -> PublisherCapabilities: ...

    @property
    def delivery_timeout_seconds(self) -> float:
        """`publish` answers within this time, whatever the broker does."""

    async def open(self) -> None:
        """Connect and check: `BrokerUnreachable`, `ConfigError` or `PublisherError`."""

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """Send all; one outcome per message, in their order. Raises nothing but cancellation.

        Calls may overlap. Messages are sent in the order of the calls and, within one, of the
        list; those with the same topic and key arrive in that order.
        """

    async def recover(self) -> None:
        """Get ready (again), with nothing in flight, or `BrokerUnreachable`.

        Called after a failure, and whenever the relay has got its lease: a publisher that can
        shut out a former owner who does not know yet that he is one does it here.
        """

    async def close(self) -> None:
        """Finish or give up what is in flight within `delivery_timeout_seconds`, disconnect."""
