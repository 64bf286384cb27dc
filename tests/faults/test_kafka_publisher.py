"""What can go wrong between us and Kafka, on the real broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import (
    DELIVERED,
    NOT_SENT,
    Message,
    Outcome,
    Publisher,
    Refused,
    Unreachable,
)
from commitrelay.publishers.kafka import KafkaPublisher, KafkaSettings, TransactionalKafkaPublisher
from commitrelay.publishers.kafka.topics import MISSING_SECONDS
from commitrelay.testing.publisher_suite import ids, message
from tests.support import kafka
from tests.support.kafka_reader import consume, consume_partitions


def with_publisher(
    publisher: Publisher, case: Callable[[Publisher], Awaitable[None]], seconds: float = 60
) -> None:
    async def main() -> None:
        await publisher.open()
        try:
            async with asyncio.timeout(seconds):
                await case(publisher)
        finally:
            await publisher.close()

    asyncio.run(main())


def all_delivered(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome is DELIVERED for outcome in outcomes)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.05)


def set_topic_config(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10)


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(10)


# --- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [KafkaPublisher, TransactionalKafkaPublisher])
def test_a_topic_with_a_low_limit_refuses_no_batch_of_small_messages(
    real_kafka: str,
    kafka_topic: kafka.Topics,
    kind: type[KafkaPublisher] | type[TransactionalKafkaPublisher],
) -> None:
    topic = kafka_topic(partitions=1, config={"max.message.bytes": "20000"})
    messages = [message(topic, f"k{number}", number, b"x" * 1000) for number in range(300)]

    async def case(publisher: Publisher) -> None:
        assert all_delivered(await publisher.publish(messages))

    with_publisher(kind(KafkaSettings(real_kafka, transactional_id=uuid.uuid4().hex)), case)
    assert len(consume(real_kafka, topic)) == 300


def test_a_limit_that_was_lowered_meanwhile_refuses_the_guilty_one_only(
    real_kafka: str, kafka_topic: kafka.Topics
) -> None:
    topic = kafka_topic(partitions=1)
    messages = [message(topic, f"k{number}", number) for number in range(100)]
    messages[50] = message(topic, "k50", 50, b"x" * 30_000)

    async def case(publisher: Publisher) -> None:
        assert all_delivered(await publisher.publish([message(topic, "first", 0)]))
        await asyncio.to_thread(set_topic_config, real_kafka, topic, "max.message.bytes", "20000")

        async def refused() -> bool:
            outcomes = await publisher.publish(messages)
            others = [outcome for number, outcome in enumerate(outcomes) if number != 50]
            assert all_delivered(others)
            return isinstance(outcomes[50], Refused)

        await until(refused)

    with_publisher(KafkaPublisher(KafkaSettings(real_kafka)), case)


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_that_appears_is_found_soon(real_kafka: str) -> None:
    topic = f"test-later-{uuid.uuid4().hex}"

    async def case(publisher: Publisher) -> None:
        [outcome] = await publisher.publish([message(topic, "k", 1)])
        assert isinstance(outcome, Refused)
        assert f"topic {topic} does not exist: create it or use" in outcome.reason
        await asyncio.to_thread(create_topic, real_kafka, topic)

        async def delivered() -> bool:
            return all_delivered(await publisher.publish([message(topic, "k", 1)]))

        await until(delivered, MISSING_SECONDS + 5)

    with_publisher(KafkaPublisher(KafkaSettings(real_kafka)), case)
    delete_topic(real_kafka, topic)


def test_topics_are_created_on_request(real_kafka: str) -> None:
    topic = f"test-created-{uuid.uuid4().hex}"
    settings = KafkaSettings.from_url(
        f"kafka://{real_kafka}?create_topics=true&partitions=5&replication=1", {}
    )

    async def case(publisher: Publisher) -> None:
        assert all_delivered(await publisher.publish([message(topic, "k", 1)]))

    with_publisher(KafkaPublisher(settings), case)
    admin = AdminClient({"bootstrap.servers": real_kafka})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    delete_topic(real_kafka, topic)


def test_a_topic_that_is_deleted_is_refused_in_the_end(real_kafka: str) -> None:
    topic = f"test-deleted-{uuid.uuid4().hex}"
    create_topic(real_kafka, topic)

    async def case(publisher: Publisher) -> None:
        assert all_delivered(await publisher.publish([message(topic, "k", 1)]))
        await asyncio.to_thread(delete_topic, real_kafka, topic)

        async def refused() -> bool:
            [outcome] = await publisher.publish([message(topic, "k", 2)])
            return isinstance(outcome, Refused)

        await until(refused)

    settings = KafkaSettings(real_kafka, delivery_timeout_seconds=4)
    with_publisher(KafkaPublisher(settings), case)


def test_a_look_up_does_not_let_a_later_call_overtake(
    real_kafka: str, kafka_topic: kafka.Topics
) -> None:
    known, new = kafka_topic(partitions=1), kafka_topic(partitions=1)

    async def case(publisher: Publisher) -> None:
        await publisher.publish([message(known, "warm", 0)])
        calls = [
            [message(new, "k", 1), message(known, "k", 1)],  # has to wait for the look-up
            [message(known, "k", 2)],
            [message(known, "k", 3)],
        ]
        results = await asyncio.gather(*(publisher.publish(call) for call in calls))
        assert all(all_delivered(outcomes) for outcomes in results)

    with_publisher(KafkaPublisher(KafkaSettings(real_kafka)), case)
    assert ids(consume(real_kafka, known), "k") == ["k-1", "k-2", "k-3"]


# --- queues, keys, fatal errors -----------------------------------------------------------------


def test_a_full_queue_is_waited_for_in_order(real_kafka: str, kafka_topic: kafka.Topics) -> None:
    topic = kafka_topic(partitions=1)
    settings = KafkaSettings(real_kafka, {"queue.buffering.max.messages": "100"})

    async def case(publisher: Publisher) -> None:
        calls = [[message(topic, "k", start + n) for n in range(1000)] for start in (0, 1000)]
        for outcomes in await asyncio.gather(*(publisher.publish(call) for call in calls)):
            assert all_delivered(outcomes)

    with_publisher(KafkaPublisher(settings), case)
    assert ids(consume(real_kafka, topic)) == [f"k-{number}" for number in range(2000)]


def test_keys_go_where_javas_producer_puts_them(real_kafka: str, kafka_topic: kafka.Topics) -> None:
    """murmur2 of Apache Kafka's own tests (UtilsTest.testMurmur2), modulo the partitions."""
    murmur2 = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    topic = kafka_topic(partitions=7)

    async def case(publisher: Publisher) -> None:
        assert all_delivered(await publisher.publish([message(topic, k, 1) for k in murmur2]))

    with_publisher(KafkaPublisher(KafkaSettings(real_kafka)), case)
    partitions = {
        each.key: partition
        for partition, received in consume_partitions(real_kafka, topic).items()
        for each in received
    }
    assert partitions == {key: (value & 0x7FFFFFFF) % 7 for key, value in murmur2.items()}


def test_a_fatal_producer_is_rebuilt_by_recover(real_kafka: str, kafka_topic: kafka.Topics) -> None:
    topic = kafka_topic(partitions=1, config={"max.message.bytes": "20000"})
    settings = KafkaSettings(real_kafka, {"enable.gapless.guarantee": "true"})

    async def case(publisher: Publisher) -> None:
        [outcome] = await publisher.publish([message(topic, "k", 1, b"x" * 30_000)])
        assert not isinstance(outcome, type(DELIVERED))
        [outcome] = await publisher.publish([message(topic, "k", 2)])
        assert isinstance(outcome, Unreachable)
        assert "the producer has failed" in outcome.reason
        await publisher.recover()
        assert all_delivered(await publisher.publish([message(topic, "k", 2)]))

    with_publisher(KafkaPublisher(settings), case)


# --- transactions ---------------------------------------------------------------------------------


def test_a_former_owner_is_shut_out_until_it_has_the_lease_again(
    real_kafka: str, kafka_topic: kafka.Topics
) -> None:
    topic = kafka_topic(partitions=1)
    settings = KafkaSettings(real_kafka, transactional_id=uuid.uuid4().hex)

    async def case() -> None:
        zombie, successor = (TransactionalKafkaPublisher(settings) for _ in range(2))
        await zombie.open()
        await zombie.recover()
        await successor.open()  # a standby disturbs nobody
        assert all_delivered(await zombie.publish([message(topic, "k", 1)]))
        await successor.recover()
        [outcome] = await zombie.publish([message(topic, "k", 2)])
        assert isinstance(outcome, Unreachable), outcome
        assert await zombie.publish([message(topic, "k", 2)]) == [NOT_SENT]
        assert all_delivered(await successor.publish([message(topic, "k", 3)]))
        assert ids(await asyncio.to_thread(consume, real_kafka, topic)) == ["k-1", "k-3"]
        await zombie.recover()  # which the relay calls when it has the lease
        assert all_delivered(await zombie.publish([message(topic, "j", 1)]))
        await zombie.close()
        await successor.close()

    asyncio.run(case())


def test_a_transaction_that_its_owner_left_open_is_aborted_by_its_successor(
    real_kafka: str, kafka_topic: kafka.Topics
) -> None:
    topic, identity = kafka_topic(partitions=1), uuid.uuid4().hex
    script = f"""
import os
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": {real_kafka!r},
                     "transactional.id": "{identity}"}})
producer.init_transactions(20)
producer.begin_transaction()
producer.produce({topic!r}, b"never committed", "k", headers=[("event-id", "k-0")])
producer.flush(20)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    settings = KafkaSettings(real_kafka, transactional_id=identity)
    publisher = TransactionalKafkaPublisher(settings)

    async def case(publisher: Publisher) -> None:
        assert all_delivered(await publisher.publish([message(topic, "k", 1)]))

    with_publisher(publisher, case)
    assert ids(consume(real_kafka, topic)) == ["k-1"]


# --- nobody there -------------------------------------------------------------------------------


def test_an_absent_broker_is_said_once_and_nothing_goes_to_stderr() -> None:
    script = """
import asyncio
from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.kafka import KafkaPublisher, KafkaSettings, TransactionalKafkaPublisher

async def main():
    for kind in (KafkaPublisher, TransactionalKafkaPublisher):
        publisher = kind(KafkaSettings("127.0.0.1:1", delivery_timeout_seconds=3))
        try:
            await publisher.open()
        except BrokerUnreachable as error:
            print(error)
        await publisher.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("Kafka at 127.0.0.1:1 does not answer") for line in lines)


def test_why_a_broker_does_not_answer_is_told(real_kafka: str) -> None:
    settings = KafkaSettings.from_url(
        f"kafka://{real_kafka}?security.protocol=SSL&delivery_timeout_seconds=3", {}
    )
    with pytest.raises(BrokerUnreachable, match=r"does not answer: ssl://.*SSL"):
        asyncio.run(KafkaPublisher(settings).open())


def test_messages_that_are_alike_fail_together() -> None:
    """librdkafka does not say which of two equal messages failed: neither may be lost."""
    from confluent_kafka import KafkaError  # noqa: PLC0415

    from commitrelay.publishers.kafka.producer import Errors  # noqa: PLC0415

    errors = Errors()
    twin = Message("t", "k", b"same", [("event-id", "1")], "1")
    errors.note_own(KafkaError(KafkaError._MSG_TIMED_OUT), twin)
    batch = [twin, message("t", "k", 2), twin._replace(event_id="3")]
    assert [position for position, _ in errors.of(batch)] == [0, 2]
