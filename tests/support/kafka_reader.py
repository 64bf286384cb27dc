"""Reads a Kafka topic from start to end, as a careful consumer sees it."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, KafkaError, TopicPartition

from commitrelay.testing.publisher_suite import Received


def consume_partitions(bootstrap: str, topic: str) -> dict[int, list[Received]]:
    """All committed messages of a topic, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    received: dict[int, list[Received]] = {partition: [] for partition in partitions}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    unread = set(partitions)
    while unread:
        message = consumer.poll(20)
        assert message is not None, f"no end of {topic} within 20 s"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            unread.discard(message.partition())
            continue
        headers = {name: value.decode() for name, value in message.headers() or []}
        received[message.partition()].append(
            Received(message.key().decode(), message.value(), headers)
        )
    consumer.close()
    return received


def consume(bootstrap: str, topic: str) -> list[Received]:
    """The same in one list, one partition after the other."""
    return [each for part in consume_partitions(bootstrap, topic).values() for each in part]
