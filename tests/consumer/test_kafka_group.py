"""A consumer group on Kafka, in real processes: order per key, whoever comes and goes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commitrelay import open_publisher
from commitrelay.publisher import DELIVERED, Message
from tests.acceptance.cli import start
from tests.consumer import services
from tests.support import kafka

PARTITIONS = 12
KEYS = [f"key-{number}" for number in range(36)]
SECONDS = 90

HANDLERS = """
import os, time
from pathlib import Path
from commitrelay import Consumer, ConsumerOptions, Received

consumer = Consumer("billing", options=ConsumerOptions(revoke_seconds=20))

@consumer.on("Counted")
def handle(connection, event: Received) -> None:
    while event.aggregate_id == "slow" and not Path("may-go").exists():
        time.sleep(0.02)
    connection.execute(
        "INSERT INTO handled (event_key, number, reader) VALUES (%s, %s, %s)",
        (event.aggregate_id, event.payload["number"], os.environ["READER"]))
    time.sleep(0.002)
"""

TABLE = """
CREATE TABLE handled (place bigserial, event_key text, number integer, reader text,
                      UNIQUE (event_key, number))
"""


class Feeder:
    """Publishes the next event of every key, again and again, until told to stop."""

    def __init__(self, url: str, topic: str) -> None:
        self.rounds = 0
        self._url = url
        self._topic = topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    def stop(self) -> int:
        """How many events each key has."""
        self._ending.set()
        self._thread.join()
        return self.rounds

    async def _run(self) -> None:
        publisher = open_publisher(self._url)
        await publisher.open()
        while not self._ending.wait(0.15):
            messages = [counted(self._topic, key, self.rounds) for key in KEYS]
            assert all(each is DELIVERED for each in await publisher.publish(messages))
            self.rounds += 1
        await publisher.close()


def counted(topic: str, key: str, number: int) -> Message:
    event_id = str(uuid.uuid4())
    headers = [
        ("event-id", event_id),
        ("event-type", "Counted"),
        ("aggregate-type", "Order"),
        ("aggregate-id", key),
        ("content-type", "application/json"),
        ("created-at", "2026-11-15T20:33:45.123456Z"),
    ]
    return Message(topic, key, json.dumps({"number": number}).encode(), headers, event_id)


class Group:
    """Consumers of one group, and what they have done."""

    def __init__(self, directory: Path, database: str, kafka_url: str, topic: str) -> None:
        self.database = database
        self.url = kafka_url
        self.topic = topic
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[str]] = {}
        (directory / "handlers.py").write_text(HANDLERS)
        services.initialise(database)
        services.execute(database, TABLE)

    def start(self, name: str) -> None:
        self._processes[name] = start(
            "consume",
            cwd=self._directory,
            COMMITRELAY_DATABASE=self.database,
            COMMITRELAY_FROM=f"{self.url}?topic={self.topic}&session.timeout.ms=6000",
            COMMITRELAY_MODULE="handlers",
            READER=name,
        )

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait(30)

    def stop(self, name: str) -> None:
        """Gracefully."""
        self._processes[name].send_signal(signal.SIGTERM)
        _output, complaints = self._processes[name].communicate(timeout=SECONDS)
        assert self._processes[name].returncode == 0, complaints

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def by_reader(self) -> dict[str, int]:
        found = self._query("SELECT reader, count(*) FROM handled GROUP BY reader")
        return {reader: int(count) for reader, count in found}

    def by_key(self) -> dict[str, list[int]]:
        """The numbers of each key in the order in which they were handled."""
        found: dict[str, list[int]] = {}
        for key, number in self._query("SELECT event_key, number FROM handled ORDER BY place"):
            found.setdefault(key, []).append(number)
        return found

    def wait_until(self, is_so: Callable[[dict[str, int]], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_so(self.by_reader()):
            assert time.monotonic() < deadline, f"{what}: {self.by_reader()}"
            time.sleep(0.1)

    def wait_for_more(self, *readers: str) -> None:
        """Until each of these has handled something that it has not yet."""
        before = self.by_reader()
        self.wait_until(
            lambda now: all(now.get(each, 0) > before.get(each, 0) for each in readers),
            f"all of {readers} handle events",
        )

    def _query(self, text: str) -> list[Any]:
        return services.query(self.database, text)


@pytest.fixture
def group(
    tmp_path: Path, postgres_database: str, real_kafka: str, kafka_topic: kafka.Topics
) -> Iterator[Group]:
    made = Group(
        tmp_path, postgres_database, f"kafka://{real_kafka}", kafka_topic(partitions=PARTITIONS)
    )
    yield made
    made.end()


def test_order_per_key_holds_through_every_rebalance(group: Group) -> None:
    feeder = Feeder(group.url, group.topic)
    try:
        group.start("first")
        group.start("second")
        group.wait_for_more("first", "second")
        group.start("third")
        group.wait_for_more("first", "second", "third")
        group.kill("first")
        rounds = feeder.rounds
        # What the killed one had in hand comes to the others when its session has ended.
        group.wait_until(
            lambda _now: all(len(of_key) > rounds for of_key in group.by_key().values()),
            "every key goes on without the first",
        )
        group.stop("second")
        group.wait_for_more("third")
    finally:
        count = feeder.stop()
    group.wait_until(lambda now: sum(now.values()) >= count * len(KEYS), "all is handled")
    assert group.by_key() == {key: list(range(count)) for key in KEYS}


def test_a_slow_key_does_not_hold_up_the_others(group: Group, tmp_path: Path) -> None:
    """Not even those of its own partition."""

    async def publish() -> None:
        publisher = open_publisher(group.url)
        await publisher.open()
        for number in range(20):
            messages = [counted(group.topic, key, number) for key in ("slow", *KEYS)]
            assert all(each is DELIVERED for each in await publisher.publish(messages))
        await publisher.close()

    asyncio.run(publish())
    for name in ("first", "second", "third"):
        group.start(name)
    group.wait_until(lambda now: sum(now.values()) >= 20 * len(KEYS), "all but the slow key")
    assert "slow" not in group.by_key()
    (tmp_path / "may-go").touch()
    group.wait_until(lambda now: sum(now.values()) == 20 * (len(KEYS) + 1), "the slow key as well")
    assert group.by_key() == {key: list(range(20)) for key in ("slow", *KEYS)}
