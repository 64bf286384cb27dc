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

from commitrelay.publisher import DELIVERED, Message, Publisher
from commitrelay.publishers.kafka import KafkaPublisher, KafkaSettings, TransactionalKafkaPublisher

BOOTSTRAP = urlsplit(os.environ["COMMITRELAY_KAFKA_URL"]).netloc
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})
BATCH, WINDOW, KEYS = 1000, 8, 10_000


def make_topic() -> str:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    ADMIN.create_topics([NewTopic(name, 8, 1)])[name].result(10)
    return name


def make_messages(topic: str, count: int, size: int) -> list[Message]:
    value = b"x" * size
    return [
        Message(
            topic,
            str(number % KEYS),
            value,
            [
                ("event-id", str(uuid.UUID(int=number))),
                ("event-type", "OrderPaid"),
                ("aggregate-type", "Order"),
                ("aggregate-id", str(number % KEYS)),
                ("content-type", "application/json"),
                ("created-at", "2026-11-15T20:33:45.123456Z"),
            ],
            str(number),
        )
        for number in range(count)
    ]


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


async def through(publisher: Publisher, messages: list[Message]) -> None:
    await publisher.open()
    places = asyncio.Semaphore(publisher.capabilities.max_in_flight or WINDOW)

    async def publish(batch: list[Message]) -> None:
        outcomes = await publisher.publish(batch)
        assert all(outcome is DELIVERED for outcome in outcomes), set(map(repr, outcomes))
        places.release()

    async with asyncio.TaskGroup() as tasks:
        for position in range(0, len(messages), BATCH):
            await places.acquire()
            tasks.create_task(publish(messages[position : position + BATCH]))
    await publisher.close()


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
        started, cpu = time.perf_counter(), time.process_time()
        run(messages)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        print(f"{name:15} {count / seconds:10,.0f}/s  {cpu / count * 1e6:5.1f} µs CPU an event")


if __name__ == "__main__":
    main()
