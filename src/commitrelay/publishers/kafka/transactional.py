"""TransactionalKafkaPublisher: every batch is one Kafka transaction.

Consumers with isolation.level=read_committed see all of a batch or nothing of it, so it stops at a
failure. All relays of a lane share one transactional.id. Whoever gets the lease calls `recover`,
and the broker shuts every former owner out: one that was paused and comes back cannot deliver.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import (
    DELIVERED,
    NOT_SENT,
    TOPIC,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.publishers.kafka.outcomes import outcome_of
from commitrelay.publishers.kafka.producer import ANY_PARTITION, Errors, PolledProducer, sent
from commitrelay.publishers.kafka.settings import BATCH_BYTES, KafkaSettings
from commitrelay.publishers.kafka.topics import Topics, missing_topics
from commitrelay.publishers.worker import WorkerPublisher

ABORT_SECONDS = 0.3


class TransactionalKafkaPublisher(WorkerPublisher):
    """One transaction per `publish`; calls run one after the other."""

    capabilities = PublisherCapabilities(stops_at_failure=True, max_in_flight=1, one_owner=True)

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(delivery_timeout_seconds=settings.delivery_timeout_seconds)
        self.settings = settings
        self._topics = Topics(settings)
        self._producer: PolledProducer | None = None
        self._batch_bytes = BATCH_BYTES
        self._call_seconds = self.delivery_timeout_seconds * 0.8

    def __str__(self) -> str:
        return str(self.settings)

    async def missing_topics(self, topics: Collection[str]) -> Sequence[str]:
        """Those of these topics that are not there and will not be made; need not be open."""
        return await missing_topics(self.settings, topics)

    # --- in the worker's thread --------------------------------------------------------------

    def _connect(self) -> None:
        """A standby opens as well: so it only looks whether the broker is there."""
        self._topics.reach()

    def _recover(self) -> None:
        self._take_over()
        super()._recover()

    def _take_over(self) -> PolledProducer:
        """A new producer, and the end of all others with its transactional.id."""
        self._disconnect()
        milliseconds = round(self._call_seconds * 1000)
        producer = PolledProducer(
            self.settings.producer(
                self._batch_bytes,
                **{
                    "transactional.id": self.settings.transactional_id,
                    "message.timeout.ms": milliseconds,
                    "transaction.timeout.ms": max(10_000, 2 * milliseconds),
                },
            )
        )
        try:
            producer.client.init_transactions(self._call_seconds)
        except KafkaException as error:
            producer.close(0)
            text = self.settings.hide_secrets(error.args[0].str())
            raise BrokerUnreachable(f"{self}: no transactions: {text}") from None
        self._producer = producer
        return producer

    def _disconnect(self) -> None:
        if self._producer is not None:
            self._producer.close(0)
            self._producer = None

    def _refusal(self, message: Message) -> str | None:
        if message.topic in self._topics.batch_bytes:
            return None
        return self._topics.look_up([message.topic]).get(message.topic)

    def _all_fit(self, messages: Sequence[Message]) -> bool:
        return {message[TOPIC] for message in messages} <= self._topics.batch_bytes.keys()

    def _send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        producer = self._sized_for(messages)
        started = time.monotonic()
        transaction = _Transaction(producer, messages, started + self._call_seconds)
        try:
            transaction.run()
        except KafkaException as error:
            deadline = started + 0.95 * self.delivery_timeout_seconds
            return self._failed(transaction, error.args[0], deadline)
        return [DELIVERED] * len(messages)

    def _sized_for(self, messages: Sequence[Message]) -> PolledProducer:
        """The producer, with batches that no topic among these is too small for."""
        sizes = self._topics.batch_bytes
        needed = min(sizes.get(topic, BATCH_BYTES) for topic in {each.topic for each in messages})
        if needed < self._batch_bytes:
            self._batch_bytes = needed
            self._disconnect()
        return self._producer or self._take_over()

    def _failed(
        self, transaction: _Transaction, cause: KafkaError, deadline: float
    ) -> Sequence[Outcome]:
        aborted = transaction.abort(deadline)
        cause = transaction.fatal or cause
        # The old producer may still be purging: a new one starts from a clean sheet, and ends
        # whatever transaction the old one has left open.
        self._disconnect()
        for topic in {message.topic for message in transaction.messages}:
            self._topics.forget(topic)
        count = len(transaction.messages)
        refusals = transaction.refusals() if aborted else {}
        if not refusals:
            reason = f"{self}: {self.settings.hide_secrets(cause.str())}"
            return [Unreachable(reason)] * count
        return [refusals.get(position, NOT_SENT) for position in range(count)]


class _Transaction:
    """One batch on its way: all of it becomes visible, or nothing."""

    def __init__(
        self, producer: PolledProducer, messages: Sequence[Message], deadline: float
    ) -> None:
        self.messages = messages
        self._producer = producer
        self._deadline = deadline
        self._errors = Errors()
        self._acknowledged = 0
        self._decided = threading.Event()

    def run(self) -> None:
        """Send and commit; `KafkaException` if that failed."""
        self._producer.client.begin_transaction()
        self._produce_all()
        # After one message has failed, librdkafka holds the others back: no use to wait for them.
        self._decided.wait(self._seconds_left)
        if self._errors.first is not None:
            raise KafkaException(self._errors.first)
        self._commit()

    def abort(self, deadline: float) -> bool:
        """Whether it is certain that nothing of it will ever be seen."""
        while True:
            try:
                # What waits for its partition to join the transaction escapes abort's own purge.
                self._producer.client.purge(in_queue=True, in_flight=False)
                self._producer.client.abort_transaction(ABORT_SECONDS)
            except KafkaException as error:
                self._producer.note(error.args[0])
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    return False
            else:
                return True

    @property
    def fatal(self) -> KafkaError | None:
        """Why its producer is of no more use; None if it still is."""
        return self._producer.fatal

    def refusals(self) -> dict[int, Outcome]:
        """Who is to blame: of messages that were refused as too large together, the largest."""
        refused: dict[int, Outcome] = {}
        too_large: dict[int, Outcome] = {}
        for position, error in self._errors.of(self.messages):
            outcome = outcome_of(error, self.messages[position].topic)
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                too_large[position] = outcome
            elif isinstance(outcome, Refused):
                refused[position] = outcome
        if too_large:
            largest = max(too_large, key=lambda position: len(self.messages[position].value))
            refused[largest] = too_large[largest]
        return refused

    @property
    def _seconds_left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def _produce_all(self) -> None:
        produce, acknowledge = self._producer.produce, self._acknowledge
        for message in self.messages:
            topic, key, value, headers, _event_id = message
            body = sent(value)
            stamp = 0 if type(message) is Message else message.timestamp_ms
            while True:
                try:
                    produce(topic, body, key, ANY_PARTITION, acknowledge, None, stamp, headers)
                    break
                except BufferError:
                    if self._decided.wait(0.002) or time.monotonic() > self._deadline:
                        break
                except KafkaException as error:
                    self._errors.note_own(error.args[0], message)
                    raise

    def _acknowledge(self, error: KafkaError | None, message: KafkaMessage[bytes, bytes]) -> None:
        """Called in the polling thread."""
        self._acknowledged += 1
        if error is not None:
            self._errors.note(error, message)
        if error is not None or self._acknowledged == len(self.messages):
            self._decided.set()

    def _commit(self) -> None:
        while True:
            try:
                self._producer.client.commit_transaction(self._seconds_left)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= self._deadline:
                    raise
            else:
                return
