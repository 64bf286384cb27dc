"""Member: a consumer of librdkafka in its group, and the thread that polls it.

The thread polls whether anybody reads or not, so a slow reader stays in the group: while the buffer
is full, the partitions are paused. It is also the only one who calls the consumer: a call beside a
thread that polls may have to wait for ever for its turn. So commits are sent between two polls,
which are short while something is in hand.

When partitions go, the thread waits for `on_revoked` and then commits what was acknowledged, before
it lets them go. Meanwhile acknowledgements are only noted, for nobody polls who could hear of a
commit.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from commitrelay.publisher import TOMBSTONE
from commitrelay.source import Arrival
from commitrelay.sources.buffer import Buffer
from commitrelay.sources.kafka.offsets import Offsets, Partition, Place
from commitrelay.sources.kafka.settings import KafkaSourceSettings
from commitrelay.sources.trouble import Trouble

logger = logging.getLogger("commitrelay.source")

POLL_SECONDS = 0.1
BUSY_POLL_SECONDS = 0.005
MAX_BATCH = 500
RETRY_COMMIT_SECONDS = 0.5
LOOK_SECONDS = 1.0
"""Between two looks at how far the partitions reach."""


Revoked = Callable[[Collection[str]], Coroutine[Any, Any, None]]

_OUTAGES = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


class Member:
    """Made by the event loop, which it keeps to for everything but polling."""

    def __init__(self, settings: KafkaSourceSettings, buffer: Buffer, revoked: Revoked) -> None:
        self.offsets = Offsets()
        self._settings = settings
        self._buffer = buffer
        self._revoked = revoked
        self._trouble = Trouble(settings)
        self._complaint: str | None = None
        self._batch: list[Arrival] = []
        self._paused = False
        self._settling = False  # partitions go: acknowledgements are noted and no more
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.joined = asyncio.Event()
        self._committing: int | None = None  # the number of the commit on its way
        self._answered = 0
        self._retry_at = self._look_at = 0.0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.client = Consumer(
            settings.consumer(on_commit=self._on_commit, error_cb=self._on_error)
        )

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="kafka-consume", daemon=True)
        self._thread.start()

    def end(self, timeout_seconds: float) -> None:
        """Commit, leave the group, disconnect; blocks."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        else:
            self.client.close()

    # --- in the event loop: acknowledgements ---------------------------------------------------

    async def commit(self, arrivals: Sequence[Arrival], timeout_seconds: float) -> None:
        """Until the broker knows that these are done; while it is away, until the time-out."""
        number = self.offsets.done(arrivals)
        if self._settling or self._ending.is_set():
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, told))
        await asyncio.wait([told], timeout=timeout_seconds)

    def _answer(self, number: int) -> None:
        """Everything up to that number is committed."""
        while self._waiting and self._waiting[0][0] <= number:
            told = self._waiting.popleft()[1]
            if not told.done():
                told.set_result(None)

    async def _settle(self, names: Collection[str]) -> None:
        """Partitions go: whoever waits for a commit need not, one comes before they are gone."""
        self._answer(self.offsets.number)
        self._buffer.drop(names)
        await self._revoked(names)

    # --- in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        self.client.subscribe(
            list(self._settings.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        while not self._ending.is_set():
            try:
                self._throttle()
                self._commit()
                self._look()
                self._poll()
            except KafkaException as error:
                self._committed(error.args[0])
                self._complain(error.args[0])
                self._ending.wait(POLL_SECONDS)
            self._flush()
        self.client.close()

    def _throttle(self) -> None:
        if not self._paused and self._buffer.is_full:
            self.client.pause(self.client.assignment())
            self._paused = True
        elif self._paused and self._buffer.is_low:
            self.client.resume(self.client.assignment())
            self._paused = False

    def _commit(self) -> None:
        if (
            self._committing is not None
            or self.offsets.number == self._answered
            or time.monotonic() < self._retry_at
        ):
            return
        targets, number = self.offsets.to_commit()
        self._committing = number
        if targets:
            self.client.commit(offsets=targets, asynchronous=True)
        else:
            self._committed(None)

    def _committed(self, error: KafkaError | None) -> None:
        number, self._committing = self._committing, None
        if number is None:
            return
        if error is None:
            self._answered = number
            self._in_loop(self._answer, number)
        else:
            logger.debug("%s: commit: %s", self._settings, error)
            self.offsets.not_committed()
            self._retry_at = time.monotonic() + RETRY_COMMIT_SECONDS

    def _look(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        for held in self.offsets.all():
            target = TopicPartition(*held.partition)
            held.high = self.client.get_watermark_offsets(target, cached=True)[1]

    def _poll(self) -> None:
        seconds = BUSY_POLL_SECONDS if self.offsets.is_busy else POLL_SECONDS
        message = self.client.poll(seconds)
        while message is not None:
            self._take(message)
            if len(self._batch) >= MAX_BATCH:
                return
            message = self.client.poll(0)

    def _take(self, message: Any) -> None:
        partition: Partition = (message.topic(), message.partition())
        held = self.offsets.held(partition)
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                if held is not None:
                    held.end = message.offset()
            else:
                self._complain(error)
            return
        self._trouble.is_over()
        self._complaint = None
        if held is None:
            return
        offset = message.offset()
        held.read = offset + 1
        if held.first is None:
            held.first = offset
        value = message.value()
        self._batch.append(
            Arrival(
                partition[0],
                held.name,
                Place(held, offset),
                _text(message.key()),
                TOMBSTONE if value is None else value,
                [(name, _text(raw)) for name, raw in message.headers() or ()],
            )
        )

    def _flush(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, []
            self._in_loop(self._buffer.put, batch)

    # --- rebalances, called by librdkafka within poll ------------------------------------------

    def _on_assign(self, _client: object, partitions: list[TopicPartition]) -> None:
        self._trouble.is_over()
        self.offsets.assigned((each.topic, each.partition) for each in partitions)
        self._paused = False  # the new ones are not: look again
        self._in_loop(self.joined.set)

    def _on_revoke(self, _client: object, partitions: list[TopicPartition]) -> None:
        self._let_go(partitions, commit=True)

    def _on_lost(self, _client: object, partitions: list[TopicPartition]) -> None:
        """Somebody else may have them already."""
        self._let_go(partitions, commit=False)

    def _let_go(self, partitions: list[TopicPartition], *, commit: bool) -> None:
        going = [(each.topic, each.partition) for each in partitions]
        names = [held.name for each in going if (held := self.offsets.held(each)) is not None]
        self._flush()
        self._settling = True
        try:
            if not commit:
                self.offsets.removed(going)
            if names and not self._ending.is_set():
                self._announce(names)
            if commit:
                self._commit_before_they_go()
        finally:
            self.offsets.removed(going)
            self._settling = False

    def _announce(self, names: list[str]) -> None:
        assert self._loop is not None
        try:
            settling = asyncio.run_coroutine_threadsafe(self._settle(names), self._loop)
            settling.result(self._settings.revoke_timeout_seconds)
        except TimeoutError:
            settling.cancel()
            logger.warning(
                "%s: %s go to another reader, and what is in hand was not done within %g s",
                self._settings,
                ", ".join(names),
                self._settings.revoke_timeout_seconds,
            )
        except (RuntimeError, CancelledError):
            pass  # the event loop has ended
        except Exception:
            logger.exception("%s: what follows a revocation has failed", self._settings)

    def _commit_before_they_go(self) -> None:
        offsets = self.offsets.all_done()
        if not offsets:
            return
        try:
            self.client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            logger.warning(
                "%s: the last commit before a rebalance failed, some messages will come again: %s",
                self._settings,
                error.args[0].str(),
            )

    # --- what librdkafka says, in the thread ---------------------------------------------------

    def _on_commit(self, error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
        if error is None:
            self._trouble.is_over()
        self._committed(error)

    def _on_error(self, error: KafkaError) -> None:
        self._complain(error)

    def _complain(self, error: KafkaError) -> None:
        text = self._settings.kafka.hide_secrets(error.str())
        if error.code() in _OUTAGES:
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._trouble.goes_on(text)
        elif text != self._complaint:
            self._complaint = text
            logger.warning("%s: %s", self._settings, text)

    def _in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            self._ending.set()  # the event loop has ended without closing the source


def _text(raw: bytes | None) -> str:
    """Bytes that are no UTF-8 survive: `.encode("utf-8", "surrogateescape")` gives them back."""
    return "" if raw is None else raw.decode("utf-8", "surrogateescape")
