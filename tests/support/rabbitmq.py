"""RabbitMQ for tests: queues to publish to, read back with a client that is not ours."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from commitrelay.testing.publisher_suite import Received

BROKERS_HEADERS = ("x-stream-offset", "x-delivery-count")
"""What RabbitMQ adds when it hands a message out."""

SERVICES = Path(__file__).resolve().parents[2] / ".services"


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    parameters = pika.URLParameters(f"{url.rstrip('/')}/%2F")
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        connection.close()


class Queues:
    """Makes exchanges that no other test uses, each with one queue of the same name behind it."""

    def __init__(self, url: str, kind: str = "classic") -> None:
        self.url = url
        self._kind = kind
        self._made: list[str] = []

    def __call__(self, arguments: Mapping[str, Any] | None = None, *, bound: bool = True) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        with channel(self.url) as made:
            made.exchange_declare(name, "topic", durable=True)
            made.queue_declare(
                name, durable=True, arguments={"x-queue-type": self._kind, **(arguments or {})}
            )
        if bound:
            self.bind(name)
        self._made.append(name)
        return name

    def bind(self, name: str) -> None:
        with channel(self.url) as made:
            made.queue_bind(name, name, "#")

    def bind_all(self) -> None:
        """As applications do whenever they connect: a killed broker may have lost a binding."""
        for name in self._made:
            self.bind(name)

    def unbind(self, name: str) -> None:
        with channel(self.url) as made:
            made.queue_unbind(name, name, "#")

    def length(self, name: str) -> int:
        with channel(self.url) as made:
            return int(made.queue_declare(name, passive=True).method.message_count)

    def read(self, name: str) -> list[Received]:
        """Everything that is in the queue, taken out of it (but for streams)."""
        return [received for received, _properties in self.read_with_properties(name)]

    def read_with_properties(self, name: str) -> list[tuple[Received, pika.BasicProperties]]:
        with channel(self.url) as reading:
            if self._kind == "stream":
                return list(_stream(reading, name))
            return list(_queue(reading, name))

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + 30
        for name in self._made:
            while True:
                try:
                    self.length(name)
                    break
                except ChannelClosedByBroker:  # "home node of durable queue is down"
                    assert time.monotonic() < deadline, f"{name} does not come up"
                    time.sleep(0.05)

    def delete_all(self) -> None:
        with channel(self.url) as made:
            for name in self._made:
                made.queue_delete(name)
                made.exchange_delete(name)


def _queue(reading: BlockingChannel, name: str) -> Iterator[tuple[Received, pika.BasicProperties]]:
    while True:
        method, properties, body = reading.basic_get(name, auto_ack=True)
        if method is None:
            return
        yield _received(method.routing_key, properties, body), properties


def _stream(reading: BlockingChannel, name: str) -> Iterator[tuple[Received, pika.BasicProperties]]:
    reading.basic_qos(prefetch_count=1000)
    first = {"x-stream-offset": "first"}
    for method, properties, body in reading.consume(name, inactivity_timeout=1, arguments=first):
        if method is None:
            return
        reading.basic_ack(method.delivery_tag)
        yield _received(method.routing_key, properties, body), properties


def _received(key: str, properties: pika.BasicProperties, body: bytes) -> Received:
    headers = {name: v for name, v in properties.headers.items() if name not in BROKERS_HEADERS}
    return Received(key, body, headers)


def home_of(server: str) -> Path:
    """Where scripts/services keeps the files of a server."""
    return Path(json.loads((SERVICES / server / "state.json").read_text())["home"])


def control(server: str, *arguments: str) -> str:
    """rabbitmqctl, on that server."""
    command = [str(home_of(server) / "rabbitmqctl"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tls_port(server: str) -> int:
    port: int = json.loads((SERVICES / server / "state.json").read_text())["ports"]["tls_port"]
    return port


def authority(server: str) -> Path:
    """The certificate that signed the server's."""
    found = home_of(server) / "data" / "tls" / "ca.pem"
    found.stat()
    return found
