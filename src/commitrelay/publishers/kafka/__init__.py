"""Kafka: `kafka://host:9092`, on librdkafka's producer.

settings.py       the URL and the options, as settings of librdkafka
producer.py       one producer, the thread that polls it, and counted acknowledgements
topics.py         whether a topic is there, and how large its messages may be
outcomes.py       what an error of librdkafka means for a message
publisher.py      the publisher
transactional.py  the same with one Kafka transaction per batch
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import MissingExtra

try:
    import confluent_kafka  # noqa: F401
except ImportError:
    raise MissingExtra("kafka", "publishing to Kafka") from None

from commitrelay.publishers.kafka.publisher import KafkaPublisher
from commitrelay.publishers.kafka.settings import KafkaSettings
from commitrelay.publishers.kafka.transactional import TransactionalKafkaPublisher

__all__ = ["KafkaPublisher", "KafkaSettings", "TransactionalKafkaPublisher", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> KafkaPublisher | TransactionalKafkaPublisher:
    """`kafka://[user:password@]host:9092[,host2:9092]?setting=…`; see `KafkaSettings`."""
    settings = KafkaSettings.from_url(url, options)
    publisher = TransactionalKafkaPublisher if settings.transactional_id else KafkaPublisher
    return publisher(settings)
