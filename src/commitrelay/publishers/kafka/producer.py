"""PolledProducer: a producer of librdkafka with a thread that polls it.

Acknowledgements are counted per batch, not awaited per message: the event loop is woken once,
when the last message of a batch is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage

from commitrelay.publisher import TOMBSTONE, Message
from commitrelay.publishers.kafka.settings import Config

logger = logging.getLogger("commitrelay.kafka")

ANY_PARTITION = -1
"""The partitioner chooses."""

POLL_SECONDS = 0.1
PURGE_SECONDS = 2.0


def sent(value: bytes) -> bytes | None:
    """The value as Kafka gets it."""
    return None if value is TOMBSTONE else value


class Errors:
    """Which messages failed, and why.

    librdkafka gives back topic, key and value of a message. Messages of one call that are alike
    in all three fail together: one delivered twice is better than one lost.
    """

    __slots__ = ("_by_content",)

    def __init__(self) -> None:
        self._by_content: dict[tuple[str | None, bytes | None, bytes | None], KafkaError] = {}

    @property
    def first(self) -> KafkaError | None:
        return next(iter(self._by_content.values()), None)

    def note(self, error: KafkaError, message: KafkaMessage[bytes, bytes]) -> None:
        self._by_content[message.topic(), message.key(), message.value()] = error

    def note_own(self, error: KafkaError, message: Message) -> None:
        """The same for a message that librdkafka did not even take."""
        self._by_content[message.topic, message.key.encode(), sent(message.value)] = error

    def of(self, messages: Sequence[Message]) -> Iterable[tuple[int, KafkaError]]:
        """The positions of those that failed, with their errors."""
        if not self._by_content:
            return
        for position, (topic, key, value, _headers, _event_id) in enumerate(messages):
            error = self._by_content.get((topic, key.encode(), sent(value)))
            if error is not None:
                yield position, error


class Batch:
    """The messages of one call that one producer sends, and what it says of them."""

    __slots__ = ("_acknowledged", "_expected", "_future", "_loop", "errors")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()
        self._acknowledged = 0
        self._expected = -1
        self.errors = Errors()

    def acknowledge(self, error: KafkaError | None, message: KafkaMessage[bytes, bytes]) -> None:
        """Called in the polling thread, for every message."""
        if error is not None:
            self.errors.note(error, message)
        self._acknowledged += 1
        if self._acknowledged == self._expected:
            self._loop.call_soon_threadsafe(self._finish)

    async def acknowledged(self, expected: int) -> None:
        """Wait until that many messages, all that were produced, are acknowledged or failed."""
        self._expected = expected
        # The last one may have been counted before it was known to be the last.
        if self._acknowledged < expected:
            await self._future

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def failures(self, messages: Sequence[Message]) -> Iterable[tuple[int, KafkaError]]:
        """The positions of the messages that failed, and why."""
        return self.errors.of(messages)


class PolledProducer:
    """A producer and its thread. After a fatal error it is of no more use: `fatal` says why."""

    def __init__(self, config: Config) -> None:
        self.fatal: KafkaError | None = None
        self.client = Producer({**config, "error_cb": self._note_error})
        self.produce: Callable[..., None] = self.client.produce
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="kafka-poll", daemon=True)
        self._thread.start()

    def note(self, error: KafkaError) -> None:
        """Remember a fatal error, wherever it was seen first."""
        if self.fatal is None and (error.fatal() or error.code() == KafkaError._FATAL):
            self.fatal = error

    def close(self, timeout_seconds: float) -> None:
        """Finish what is in flight, or give it up; blocks."""
        if self.fatal is None:
            self.client.flush(timeout_seconds)
        self.client.purge()
        deadline = time.monotonic() + PURGE_SECONDS
        while len(self.client) and time.monotonic() < deadline:
            self._serve(0.05)
        self._ending.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._ending.is_set():
            self._serve(POLL_SECONDS)

    def _serve(self, seconds: float) -> None:
        try:
            self.client.poll(seconds)
        except KafkaException as error:
            self.note(error.args[0])
            self._ending.wait(0.01)  # a fatal producer raises at once, every time

    def _note_error(self, error: KafkaError) -> None:
        self.note(error)
        logger.debug("librdkafka: %s", error.str())
