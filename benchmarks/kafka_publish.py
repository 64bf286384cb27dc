"""How much of librdkafka's speed is left in the Kafka publishers? Decision record 0001 quotes this.

    make services && eval "$(scripts/services env)"
    .venv/bin/python benchmarks/kafka_publish.py [EVENTS] [BYTES]

The bare loop produces with a counting callback and promises nothing; the publishers get batches
of 1000, up to 8 of them at a time (the transactional one takes one at a time).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import uuid
from dataclasses import replace
from urllib.parse import urlsplit

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pipelines import BATCH, WINDOW, make_messages, report, through

from commitrelay.publisher import Message
from commitrelay.publishers.kafka import KafkaPublisher, KafkaSettings, TransactionalKafkaPublisher

BOOTSTRAP = urlsplit(os.environ["COMMITRELAY_KAFKA_URL"]).netloc
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})


def make_topic() -> str:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    ADMIN.create_topics([NewTopic(name, 8, 1)])[name].result(10)
    return name


def bare(messages: list[Message]) -> None:
    producer = Producer(KafkaSettings(BOOTSTRAP).producer())
    done = threading.Event()
    acknowledged = 0

    def count(_error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if acknowledged == len(messages):
            done.set()

    def poll() -> None:
        while not done.is_set():
            producer.poll(0.1)

    threading.Thread(target=poll, daemon=True).start()
    for position in range(0, len(messages), BATCH):
        while position - acknowledged > WINDOW * BATCH:
            time.sleep(0.0005)
        for topic, key, value, headers, _event_id in messages[position : position + BATCH]:
            producer.produce(topic, value, key, on_delivery=count, headers=headers)
    done.wait()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    settings = KafkaSettings(BOOTSTRAP)
    transactional = TransactionalKafkaPublisher(replace(settings, transactional_id="bench"))
    runs = {
        "bare loop": bare,
        "KafkaPublisher": lambda each: asyncio.run(through(KafkaPublisher(settings), each)),
        "transactional": lambda each: asyncio.run(through(transactional, each)),
    }
    for name, run in runs.items():
        messages = make_messages(make_topic(), count, size)
        report(name, run, messages)


if __name__ == "__main__":
    main()
