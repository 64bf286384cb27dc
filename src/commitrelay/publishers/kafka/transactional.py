"""TransactionalKafkaPublisher: every batch is one Kafka transaction.

Consumers with isolation.level=read_committed see all of a batch or nothing of it, so it stops at a
failure. Opening a publisher fences every older one with the same identity, for good: a relay that
was paused and comes back cannot deliver any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage

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
from commitrelay.publishers.kafka.outcomes import outcome_of
from commitrelay.publishers.kafka.producer import Errors
from commitrelay.publishers.kafka.settings import BATCH_BYTES, KafkaSettings
from commitrelay.publishers.kafka.topics import Topics
from commitrelay.publishers.worker import WorkerPublisher

DEFAULT_IDENTITY = "relay"

_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)


class TransactionalKafkaPublisher(WorkerPublisher):
    """One transaction per `publish`; calls run one after the other."""

    capabilities = PublisherCapabilities(stops_at_failure=True, max_in_flight=1)

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(delivery_timeout_seconds=settings.delivery_timeout_seconds)
        self.settings = settings
        self.transactional_id = f"commitrelay-{DEFAULT_IDENTITY}"
        self._topics = Topics(settings)
        self._producer: Producer | None = None
        self._batch_bytes = BATCH_BYTES
        self._is_fenced = False
        self._call_seconds = self.delivery_timeout_seconds * 0.8

    def __str__(self) -> str:
        return str(self.settings)

    def fence(self, identity: str) -> None:
        """Be `identity`, from the next `open` or `recover` on: older ones of that name are out."""
        self.transactional_id = f"commitrelay-{identity}"
        self._is_fenced = False
        self._producer = None

    # --- in the worker's thread --------------------------------------------------------------

    def _connect(self) -> None:
        if self._is_fenced:
            raise BrokerUnreachable(
                f"{self}: another relay has taken over {self.transactional_id}: this one is out "
                "until it has a lease again"
            )
        if self._producer is not None:
            return
        self._topics.reach()
        milliseconds = round(self._call_seconds * 1000)
        producer = Producer(
            self.settings.producer(
                self._batch_bytes,
                **{
                    "transactional.id": self.transactional_id,
                    "message.timeout.ms": milliseconds,
                    "transaction.timeout.ms": max(10_000, 2 * milliseconds),
                    "error_cb": _ignore,
                },
            )
        )
        try:
            producer.init_transactions(self._call_seconds)
        except KafkaException as error:
            text = self.settings.hide_secrets(error.args[0].str())
            raise BrokerUnreachable(f"{self}: no transactions: {text}") from None
        self._producer = producer

    def _disconnect(self) -> None:
        self._producer = None
        self._topics.close()

    def _refusal(self, message: Message) -> str | None:
        if message.topic in self._topics.batch_bytes:
            return None
        try:
            return self._topics.look_up([message.topic]).get(message.topic)
        except BrokerUnreachable:
            return None  # let the transaction find out, and stop everything

    def _send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        producer = self._sized_for(messages)
        errors = Errors()
        deadline = time.monotonic() + self._call_seconds
        try:
            producer.begin_transaction()
            _produce(producer, messages, errors)
            _commit(producer, deadline)
        except KafkaException as error:
            return self._failed(producer, error.args[0], messages, errors)
        return [DELIVERED] * len(messages)

    def _sized_for(self, messages: Sequence[Message]) -> Producer:
        """The producer, with batches that no topic among these is too small for."""
        sizes = self._topics.batch_bytes
        needed = min(sizes.get(topic, BATCH_BYTES) for topic in {each.topic for each in messages})
        if needed < self._batch_bytes:
            self._batch_bytes = needed
            self._producer = None
            self._connect()
        if self._producer is None:
            raise BrokerUnreachable("its identity has changed")
        return self._producer

    def _failed(
        self,
        producer: Producer,
        cause: KafkaError,
        messages: Sequence[Message],
        errors: Errors,
    ) -> Sequence[Outcome]:
        self._is_fenced = cause.code() in _FENCED
        aborted = not cause.fatal() and _abort(producer, self._call_seconds / 4)
        if not aborted:
            self._producer = None  # whether it was committed, the next one's start decides
        for topic in {message.topic for message in messages}:
            self._topics.forget(topic)
        refusals = _refusals(messages, errors) if aborted else {}
        if not refusals:
            return [Unreachable(f"{self}: {self.settings.hide_secrets(cause.str())}")] * len(
                messages
            )
        return [refusals.get(position, NOT_SENT) for position in range(len(messages))]


def _produce(producer: Producer, messages: Sequence[Message], errors: Errors) -> None:
    def note(error: KafkaError | None, message: KafkaMessage[bytes, bytes]) -> None:
        if error is not None:
            errors.note(error, message)

    produce: Callable[..., None] = producer.produce
    for message in messages:
        topic, key, value, headers, _event_id = message
        while True:
            try:
                produce(topic, value, key, on_delivery=note, headers=headers)
            except BufferError:
                producer.poll(0.01)
            except KafkaException as error:
                errors.note_own(error.args[0], message)
                raise
            else:
                break
        producer.poll(0)


def _commit(producer: Producer, deadline: float) -> None:
    while True:
        try:
            producer.commit_transaction(max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= deadline:
                raise
        else:
            return


def _abort(producer: Producer, seconds: float) -> bool:
    try:
        producer.abort_transaction(seconds)
    except KafkaException:
        return False
    return True


def _refusals(messages: Sequence[Message], errors: Errors) -> dict[int, Outcome]:
    """Who is to blame: of messages that were refused as too large together, the largest."""
    refused: dict[int, Outcome] = {}
    too_large: dict[int, Outcome] = {}
    for position, error in errors.of(messages):
        outcome = outcome_of(error, messages[position].topic)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            too_large[position] = outcome
        elif isinstance(outcome, Refused):
            refused[position] = outcome
    if too_large:
        largest = max(too_large, key=lambda position: len(messages[position].value))
        refused[largest] = too_large[largest]
    return refused


def _ignore(_error: KafkaError) -> None:
    """Errors that matter come back from the calls themselves."""
