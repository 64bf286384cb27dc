"""Does librdkafka's idempotent producer stop at a failure? Decision record 0001 quotes this.

    make services && eval "$(scripts/services env)"
    .venv/bin/python benchmarks/kafka_strict_order.py [TRIALS]

Each trial sends numbered messages of one key to a topic with one partition, one of them larger
than the topic's max.message.bytes, and reads the topic back: has a later message *overtaken* the
refused one? "cold" refuses the producer's very first message to the partition, "warm" the tenth,
after nine acknowledged ones. The last part lets messages time out on a broker that is frozen.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = urlsplit(os.environ["COMMITRELAY_KAFKA_URL"]).netloc
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})
SMALL, LARGE = b"s" * 100, b"l" * 20_000


class Quiet:
    def log(self, *_arguments: object) -> None:
        """librdkafka's own words are of no use here."""


def make_topic() -> str:
    name = f"strict-{uuid.uuid4().hex[:12]}"
    topic = NewTopic(name, 1, 1, config={"max.message.bytes": "10000"})
    ADMIN.create_topics([topic])[name].result(10)
    return name


def make_producer(**settings: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "enable.idempotence": True,
            "message.max.bytes": 10_000_000,
            "message.timeout.ms": 10_000,
            "error_cb": lambda _error: None,
            "logger": Quiet(),
            **settings,
        }
    )


def read_back(topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    numbers = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        numbers.append(int(message.key().split(b"/")[1]))
    consumer.close()
    return numbers


def serve(producer: Producer, seconds: float = 0) -> None:
    try:
        producer.poll(seconds)
    except KafkaException as error:
        assert error.args[0].fatal()


def drain(producer: Producer, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while len(producer) and time.monotonic() < deadline:
        serve(producer, 0.1)


def refusal(*, gapless: bool, in_flight: int, warm: bool, linger_ms: float, purge: bool) -> str:
    """One message is too large; is anything behind it delivered?"""
    topic = make_topic()
    producer = make_producer(
        **{
            "enable.gapless.guarantee": gapless,
            "max.in.flight.requests.per.connection": in_flight,
            "linger.ms": linger_ms,
        }
    )

    def on_delivery(error: KafkaError | None, _message: KafkaMessage) -> None:
        if error is not None and purge:
            producer.purge(in_queue=True, in_flight=False, blocking=False)

    producer.list_topics(topic, timeout=10)
    refused = 0
    if warm:
        for number in range(9):
            producer.produce(topic, SMALL, f"k/{number}")
        drain(producer)
        refused = 9
    for number in range(refused, refused + 300):
        value = LARGE if number == refused else SMALL
        try:
            producer.produce(topic, value, f"k/{number}", on_delivery=on_delivery)
        except KafkaException:
            break  # the producer has stopped
        if number % 5 == 0:
            serve(producer)
            time.sleep(0.0003)
    drain(producer)
    return "OVERTAKEN" if any(n > refused for n in read_back(topic)) else "stopped"


def timeout(*, gapless: bool, broker_pid: int) -> str:
    """Messages of one key time out, one after the other, while the broker comes back."""
    topic = make_topic()
    producer = make_producer(
        **{"enable.gapless.guarantee": gapless, "message.timeout.ms": 2000, "linger.ms": 0}
    )
    failed: list[int] = []

    def on_delivery(error: KafkaError | None, message: KafkaMessage) -> None:
        if error is not None:
            failed.append(int(message.key().split(b"/")[1]))

    producer.produce(topic, SMALL, "k/0", on_delivery=on_delivery)
    drain(producer)
    os.kill(broker_pid, signal.SIGSTOP)
    try:
        for number in range(1, 80):
            try:
                producer.produce(topic, SMALL, f"k/{number}", on_delivery=on_delivery)
            except KafkaException:
                break
            serve(producer, 0.05)
    finally:
        os.kill(broker_pid, signal.SIGCONT)
    drain(producer)
    delivered = read_back(topic)
    first_failed = min((number for number in failed if number not in delivered), default=None)
    if first_failed is None:
        return "nothing lost"
    return "OVERTAKEN" if any(number > first_failed for number in delivered) else "stopped"


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"librdkafka {__import__('confluent_kafka').libversion()[0]}, {trials} trials each")
    print("| gapless | purge at failure | in flight | state | linger ms | results |")
    print("|---|---|---|---|---|---|")
    modes = [(False, False), (False, True), (True, False), (True, True)]
    for (gapless, purge), in_flight, warm, linger_ms in itertools.product(
        modes, (5, 1), (False, True), (0, 5)
    ):
        results = Counter(
            refusal(
                gapless=gapless, in_flight=in_flight, warm=warm, linger_ms=linger_ms, purge=purge
            )
            for _ in range(trials)
        )
        state = "warm" if warm else "cold"
        print(f"| {gapless} | {purge} | {in_flight} | {state} | {linger_ms} | {dict(results)} |")
        sys.stdout.flush()
    if pid := os.environ.get("BROKER_PID"):
        for gapless in (False, True):
            results = Counter(
                timeout(gapless=gapless, broker_pid=int(pid)) for _ in range(max(1, trials // 4))
            )
            print(f"time-outs on a frozen broker, gapless={gapless}: {dict(results)}")
    elif Path("/proc").exists():
        print("(set BROKER_PID to a broker of your own to see what time-outs do)")


if __name__ == "__main__":
    main()
