"""Kafka: `kafka://host:9092?topic=orders`, on librdkafka's consumer.

settings.py  the URL and the options, as settings of librdkafka
check.py     whether topics and group are there, asked first
offsets.py   which partitions are ours, and what of them is done
member.py    the consumer and the thread that polls it: in, out and through rebalances
source.py    the source
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import MissingExtra

try:
    import confluent_kafka  # noqa: F401
except ImportError:
    raise MissingExtra("kafka", "reading from Kafka") from None

from commitrelay.sources.kafka.settings import KafkaSourceSettings
from commitrelay.sources.kafka.source import KafkaSource

__all__ = ["KafkaSource", "KafkaSourceSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> KafkaSource:
    """`kafka://[user:password@]host:9092?topic=…&group=…`; see `KafkaSourceSettings`."""
    return KafkaSource(KafkaSourceSettings.from_url(url, options))
