"""Kafka for tests: the real one, or librdkafka's mock where there is none."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def bootstrap(url: str) -> str:
    """`kafka://host:port` as librdkafka spells it."""
    return urlsplit(url).netloc


@contextmanager
def mock_cluster() -> Iterator[str]:
    """A broker inside this process. It creates topics by itself and knows no transactions."""
    host = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = host.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    host.flush(1)


class Topics:
    """Makes topics that no other test uses, and removes them with `delete_all`."""

    def __init__(self, bootstrap: str, *, is_mock: bool) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._is_mock = is_mock
        self._created: list[str] = []

    def __call__(
        self, name: str = "topic", *, partitions: int = 3, config: dict[str, str] | None = None
    ) -> str:
        """A fresh topic, its name ending in `name`; `config` holds topic settings."""
        topic = f"test-{uuid.uuid4().hex[:12]}-{name}"
        if self._is_mock:
            self._admin.list_topics(topic, timeout=10)  # being asked for is what creates it there
        else:
            new = NewTopic(topic, partitions, 1, config=config or {})
            self._admin.create_topics([new])[topic].result(30)
            self._await_leaders(topic, partitions)
        self._created.append(topic)
        return topic

    def delete_all(self) -> None:
        if self._created and not self._is_mock:
            for deletion in self._admin.delete_topics(self._created).values():
                deletion.result(30)

    def _await_leaders(self, topic: str, partitions: int) -> None:
        """A topic is created before the brokers have learnt of it."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
            if len(found) == partitions and all(part.leader >= 0 for part in found.values()):
                return
            time.sleep(0.01)
        raise TimeoutError(f"{topic} has no leader after 30 s")
