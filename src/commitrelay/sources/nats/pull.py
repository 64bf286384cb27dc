"""Pull: the messages of a stream from a sequence on, in order, asked for in batches.

The consumer at the server is a throw-away one that keeps no place: where the group is, its record
says. When it is gone, because it was idle for long or the server has forgotten it, the next one
begins behind the last message that came.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.nats.connection import Delivery, NatsConnection, must, status_of
from commitrelay.sources.nats.record import Target

BATCH = 200
EXPIRES_SECONDS = 1.0
SILENCE_SECONDS = 10.0
IDLE_SECONDS = 30.0
NANOSECONDS = 1_000_000_000

NO_MORE = ("404", "408")
"""Nothing new came in time: ask again."""


class Metadata(NamedTuple):
    """What the server says of a message in its reply subject."""

    sequence: int
    number: int  # of the consumer's deliveries


class Pull:
    def __init__(
        self,
        connection: NatsConnection,
        target: Target,
        after: int,
        take: Callable[[int, Delivery], None],
    ) -> None:
        self.last = after
        self._connection = connection
        self._stream, self._subject = target
        self._take = take
        self._inbox = connection.subscribe(self._delivered)
        self._consumer: str | None = None
        self._number = 0
        self._missing = 0
        self._answered = asyncio.Event()

    async def batch(self) -> None:
        """Ask once; returns when all of it has come, or no more will."""
        if self._consumer is None:
            await self._begin()
        self._missing = BATCH
        self._answered.clear()
        body = {"batch": BATCH, "expires": int(EXPIRES_SECONDS * NANOSECONDS)}
        self._connection.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
            json.dumps(body).encode(),
            self._inbox,
        )
        while not self._answered.is_set():
            heard = self._number
            try:
                async with asyncio.timeout(EXPIRES_SECONDS + SILENCE_SECONDS):
                    await self._answered.wait()
            except TimeoutError:
                if self._number == heard:
                    self._connection.drop("no answer")
        if self._connection.lost is not None:
            raise BrokerUnreachable(self._connection.lost)

    async def pending(self) -> int:
        """How many the consumer has still to deliver."""
        if self._consumer is None:
            await self._begin()
        answer = await self._connection.api(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        return int(must(answer, f"stream {self._stream}")["num_pending"])

    def connection_ended(self) -> None:
        self._answered.set()

    async def end(self) -> None:
        if self._consumer is not None:
            await self._connection.api(f"CONSUMER.DELETE.{self._stream}.{self._consumer}")

    async def _begin(self) -> None:
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self.last + 1}
        config = {
            **(start if self.last else {"deliver_policy": "all"}),
            "ack_policy": "none",
            "filter_subject": self._subject,
            "inactive_threshold": int(IDLE_SECONDS * NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        answer = await self._connection.api(
            f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config}
        )
        if "error" in answer:
            code = answer["error"].get("description", "no reason given")
            raise BrokerUnreachable(f"{self._connection.name}: stream {self._stream}: {code}")
        self._consumer = answer["name"]
        self._number = 0

    def _delivered(self, delivery: Delivery) -> None:
        status = status_of(delivery.headers) if delivery.headers else None
        if status is not None:
            if status not in NO_MORE and not status.startswith("1"):
                self._consumer = None  # whatever it is, a new one will tell
            if not status.startswith("1"):
                self._answered.set()
            return
        metadata = _metadata(delivery.reply_to)
        if self._consumer is None or metadata.number != self._number + 1:
            self._consumer = None  # one is missing: begin again behind the last that came
            self._answered.set()
            return
        self._number = metadata.number
        self.last = metadata.sequence
        self._take(metadata.sequence, delivery)
        self._missing -= 1
        if not self._missing:
            self._answered.set()


def _metadata(reply_to: str) -> Metadata:
    """`$JS.ACK.stream.consumer.delivered.SEQUENCE.NUMBER.time.pending`, or longer with a domain."""
    tokens = reply_to.split(".")
    first = 5 if len(tokens) < 11 else 7
    return Metadata(int(tokens[first]), int(tokens[first + 1]))
