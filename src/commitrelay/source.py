"""Source: the port to the broker on the consumer's side.

An adapter under `sources/` implements `Source` and passes `commitrelay.testing.SourceSuite`.

A source reads *partitions*: what the broker keeps in order and gives to one reader of a group at
a time (a Kafka partition, a RabbitMQ queue, a stream, a file topic). Three rules hold:

* The arrivals of a partition come in the broker's order, each with an opaque `position`.
* `ack` is called with a partition's arrivals in the order in which they came, without gaps: what
  is acknowledged is never delivered to this group again; all that follows is, after a crash.
* A partition that goes to another reader is announced by `on_revoked`, which the source awaits
  before it lets go where the broker permits: acks given before it returns still count. What
  arrived from that partition and was not acknowledged will arrive at its new reader.

A broker that does not answer is `BrokerUnreachable`, at `open` only; later the source logs it once,
reconnects by itself, and `read` returns nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, Protocol


class Arrival(NamedTuple):
    """One message as it arrived. A tuple, because there are many."""

    topic: str
    partition: str  # unique within the source, such as "orders/3"
    position: object  # where it is in its partition; only the source reads it
    key: str  # "" if the broker keeps none: the format may know better
    value: bytes  # `TOMBSTONE` for a null
    headers: list[tuple[str, str]]


OnRevoked = Callable[[Collection[str]], Awaitable[None]]


class Source(Protocol):
    """What a consumer needs of a broker. One instance serves one consumer process."""

    async def open(self, on_revoked: OnRevoked) -> None:
        """Connect, check and join the group: `BrokerUnreachable`, `ConfigError`, …"""

    async def read(self, limit: int, wait_seconds: float) -> Sequence[Arrival]:
        """Up to `limit` arrivals, as soon as there are any, or none after `wait_seconds`.

        It need not be called for the source to stay in its group: back-pressure is not to read.
        """

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        """These are done: never again to this group. Those of revoked partitions are ignored."""

    async def lag(self) -> int | None:
        """How many messages of its partitions this reader has not acknowledged.

        None if it has no partition, or cannot tell.
        """

    async def close(self) -> None:
        """Leave the group at once, so that others need not wait for a time-out; disconnect."""
