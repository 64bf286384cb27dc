"""KafkaTopic: the demo's topic on Kafka, created for one run and deleted after it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from commitrelay.demo.ledger import Received
from commitrelay.demo.topic import received
from commitrelay.errors import BrokerUnreachable, PublisherError
from commitrelay.format import EVENT_ID
from commitrelay.publishers.kafka import KafkaSettings

PARTITIONS = 6
REACH_SECONDS = 5.0
TIMEOUT_SECONDS = 20.0
MAX_MESSAGES = 5000


class KafkaTopic:
    title = "Kafka"

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self._settings = KafkaSettings.from_url(url, {})
        self._consumer: Any = None

    def prepare(self) -> None:
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415

        with self._errors():
            admin = self._admin()
            admin.list_topics(timeout=REACH_SECONDS)
            topic = NewTopic(self.name, num_partitions=PARTITIONS)
            _wait(admin.create_topics([topic], operation_timeout=TIMEOUT_SECONDS))

    def subscribe(self) -> None:
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

        # It joins no group: it reads all partitions from their beginning and commits nothing.
        self._consumer = Consumer(
            {
                **self._settings.client(),
                "group.id": self.name,
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(self.name, each, 0) for each in range(PARTITIONS)])

    def poll(self) -> list[Received]:
        messages = self._consumer.consume(MAX_MESSAGES, timeout=0.02)
        return [_received(message) for message in messages if _is_message(message)]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def remove(self) -> None:
        with self._errors():
            admin = self._admin()
            _wait(admin.delete_topics([self.name], operation_timeout=TIMEOUT_SECONDS))

    def _admin(self) -> Any:
        """A client; to be kept until its futures are done, for they end with it."""
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        return AdminClient(self._settings.client())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

        try:
            yield
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            text = self._settings.hide_secrets(f"{self._settings}: {reason.str()}")
            if reason.code() < 0:
                raise BrokerUnreachable(f"{text}: check its address, and that it runs") from None
            raise PublisherError(text) from None


def _wait(futures: dict[str, Future[None]]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_SECONDS + 5)


def _is_message(message: Any) -> bool:
    from confluent_kafka import KafkaError  # noqa: PLC0415

    error = message.error()
    if error is None:
        return True
    if error.code() >= 0 and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise PublisherError(f"reading back from Kafka failed: {error.str()}")
    return False  # the client's own errors pass: it connects again by itself


def _received(message: Any) -> Received:
    headers = dict(message.headers())
    return received(headers[EVENT_ID].decode(), message.value())


from_url = KafkaTopic
