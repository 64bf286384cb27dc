"""How long from the end of a transaction to the broker's answer, with a direct pass and without?

    make services && eval "$(scripts/services env)"
    .venv/bin/python benchmarks/direct_pass.py [kafka|file] [EVENTS_PER_SECOND] [ROUNDS] [on|off]

Rounds of relay only and of a direct pass beside the relay take turns, each on a fresh outbox in
PostgreSQL, each with one writer at a fixed rate. The relay is a process of its own with the default
options; with `off` nobody wakes it up, and it polls, as on SQLite or behind a pooler. What is
measured begins before the claim and the COMMIT are sent, so both are included.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic

from commitrelay import (
    DirectPass,
    Event,
    Outbox,
    Plain,
    Relay,
    Route,
    open_publisher,
    open_store,
)
from commitrelay.publisher import DELIVERED, Message, Outcome

SECONDS_PER_ROUND = 5.0
KEYS = 1000


class TimedPublisher:
    """Notes when each message was acknowledged, by the machine's one monotonic clock."""

    def __init__(self, url: str) -> None:
        self._inner = open_publisher(url)
        self.acknowledged: dict[str, float] = {}
        self.__dict__["capabilities"] = self._inner.capabilities
        self.delivery_timeout_seconds = self._inner.delivery_timeout_seconds
        self.open, self.close = self._inner.open, self._inner.close
        self.recover = self._inner.recover

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes = await self._inner.publish(messages)
        now = time.monotonic()
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome is DELIVERED:
                self.acknowledged[message.event_id] = now
        return outcomes


def relay_process(database: str, broker: str, topic: str, notify: str, results: Connection) -> None:
    publisher = TimedPublisher(broker)

    async def run() -> None:
        store = open_store(database, notify=notify)
        relay = Relay(store, publisher, compose=Plain(Route(topic)))  # type: ignore[arg-type]
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
        await relay.run()

    asyncio.run(run())
    results.send(publisher.acknowledged)


def write(database: str, outbox: Outbox, rate: float) -> tuple[dict[str, float], list[float]]:
    """When each event's transaction was about to end, and how long the whole of it took."""
    ended: dict[str, float] = {}
    took: list[float] = []
    with psycopg.connect(database, autocommit=True) as connection:
        starts_at = time.monotonic()
        for number in range(int(rate * SECONDS_PER_ROUND)):
            time.sleep(max(0.0, starts_at + number / rate - time.monotonic()))
            event = Event("Order", number % KEYS, "Counted", {"number": number})
            began = time.monotonic()
            with outbox.transaction(connection):
                outbox.add(connection, event)
                ended[str(event.id)] = time.monotonic()
            took.append(time.monotonic() - began)
    return ended, took


def one_round(
    database: str, broker: str, topic: str, rate: float, *, notify: str, direct: bool
) -> tuple[list[float], list[float], float]:
    asyncio.run(initialise(database))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    relay = multiprocessing.get_context("spawn").Process(
        target=relay_process, args=(database, broker, topic, notify, sender)
    )
    relay.start()
    wait_for(database, "SELECT count(*) FROM outbox_lease WHERE buckets <> '{}'", 1)
    publisher = TimedPublisher(broker)
    outbox, passed = Outbox(), 0
    if direct:
        with DirectPass(
            open_store(database),
            publisher,  # type: ignore[arg-type]
            compose=Plain(Route(topic)),
        ) as direct_pass:
            assert direct_pass.start(30)
            ended, took = write(database, Outbox(direct=direct_pass), rate)
        passed = direct_pass.stats.passed
    else:
        ended, took = write(database, outbox, rate)
    wait_for(database, "SELECT count(*) FROM outbox_queue", 0)
    relay.terminate()
    acknowledged = {**receiver.recv(), **publisher.acknowledged}
    relay.join()
    delays = [acknowledged[event_id] - at for event_id, at in ended.items()]
    return delays, took, passed / len(ended)


async def initialise(database: str) -> None:
    store = open_store(database)
    await store.initialise()
    await store.close()


def wait_for(database: str, query: str, wanted: int) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        while connection.execute(query).fetchone() != (wanted,):  # type: ignore[call-overload]
            time.sleep(0.05)


def told(name: str, seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"{name} p50 {statistics.median(ordered) * 1000:6.2f} ms  p99 {p99 * 1000:7.2f} ms"


def main() -> None:
    given = dict(enumerate(sys.argv))
    kind, rate, rounds = given.get(1, "kafka"), float(given.get(2, 100)), int(given.get(3, 3))
    notify = given.get(4, "on")
    server = os.environ["COMMITRELAY_POSTGRES_URL"]
    delays: dict[str, list[float]] = {"relay only": [], "direct pass": []}
    took: dict[str, list[float]] = {"relay only": [], "direct pass": []}
    shares: list[float] = []
    for _ in range(rounds):
        for name in delays:
            with fresh(server) as database, tempfile.TemporaryDirectory() as directory:
                topic = f"bench-{uuid.uuid4().hex[:12]}"
                broker = broker_url(kind, topic, directory)
                result = one_round(
                    database, broker, topic, rate, notify=notify, direct=name == "direct pass"
                )
            delays[name] += result[0]
            took[name] += result[1]
            shares += [result[2]] if name == "direct pass" else []
    print(
        f"PostgreSQL → {kind}, {rate:g} events a second, {rounds} rounds of each, notify {notify}"
    )
    for name, seconds in delays.items():
        print(f"{name:12} {told('to the answer', seconds)}   {told('request', took[name])}")
    print(f"passed directly: {statistics.mean(shares):.1%}")


def broker_url(kind: str, topic: str, directory: str) -> str:
    if kind == "file":
        return f"file://{directory}"
    bootstrap = urlsplit(os.environ["COMMITRELAY_KAFKA_URL"]).netloc
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(10)
    return f"kafka://{bootstrap}"


class fresh:  # noqa: N801
    """A database for one round."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._name = f"bench_{uuid.uuid4().hex[:12]}"

    def __enter__(self) -> str:
        self._run(f"CREATE DATABASE {self._name}")
        return urlsplit(self._server)._replace(path=f"/{self._name}").geturl()

    def __exit__(self, *_: Any) -> None:
        self._run(f"DROP DATABASE {self._name} WITH (FORCE)")

    def _run(self, text: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(text)  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
