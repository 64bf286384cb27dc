"""An outbox on any database with a dead event at the head of a key, for operators to see to."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from commitrelay import Event, Outbox
from commitrelay.admin import initialise
from commitrelay.options import RelayOptions
from commitrelay.publishers.file import FilePublisher
from commitrelay.registry import database
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.sql import Names
from tests.acceptance.cli import as_json, commitrelay, succeed
from tests.support import mariadb

PLAIN_INSERT = (
    "INSERT INTO outbox_event (id, aggregate_type, aggregate_id, event_type, payload, headers) "
    "VALUES ('{id}', 'Order', '1', 'OrderPaid', '{{\"total\": 1}}', '{{\"x\": 1}}')"
)
BAD_ID = "01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10"


def connect(url: str) -> Any:
    if url.startswith("sqlite:///"):
        return closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20))
    return closing(psycopg.connect(url) if url.startswith("postgres") else mariadb.connect(url))


def add(url: str, *events: Event) -> list[str]:
    with connect(url) as connection:
        if url.startswith("mysql"):
            connection.begin()
        added = Outbox().add(connection, *events)
        connection.commit()
    return [str(event_id) for event_id in added]


def orders(key: int, *numbers: int) -> list[Event]:
    return [Event("Order", key, "OrderPaid", {"number": number}) for number in numbers]


class Stuck(NamedTuple):
    """Order 1 stands still behind a dead event with wrong headers; order 2 was delivered."""

    url: str
    topics: Path
    dead: str
    waiting: list[str]
    delivered: list[str]

    def run(self, *arguments: str, **options: Any) -> Any:
        """What a command answers as JSON."""
        return as_json(*arguments, "--database", self.url, **options)

    def text(self, *arguments: str, **options: Any) -> str:
        return succeed(*arguments, "--database", self.url, **options)

    def attempt(self, *arguments: str, **options: Any) -> Any:
        return commitrelay(*arguments, "--database", self.url, **options)

    def relay(self, *arguments: str) -> dict[str, int]:
        """Deliver what can be delivered; what fails is dead at once."""
        quick = ("--retry-delays", "1ms", "--log-level", "error")
        publish = ("--publish", self.topics.as_uri())
        totals: dict[str, int] = self.run("run", "--drain", *publish, *quick, *arguments)
        return totals

    def sent(self, key: str, topic: str = "order.events") -> list[str]:
        """The ids that were delivered of a key, in order."""
        path = self.topics / f"{topic}.jsonl"
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [line["id"] for line in lines if line["key"] == key]

    def status_of(self, event_id: str) -> str:
        return str(self.run("show", event_id)["deliveries"][0]["status"])


def add_refused(url: str, event_id: str, key: str) -> None:
    """An event with headers that no publisher takes."""
    row = PLAIN_INSERT.replace("'1'", f"'{key}'", 1).format(id=event_id)
    with connect(url) as connection:
        connection.cursor().execute(row)
        connection.commit()


def stuck_outbox(url: str, topics: Path) -> Stuck:
    asyncio.run(initialise(database(url, Names())))
    add_refused(url, BAD_ID, "1")
    waiting = add(url, *orders(1, 2, 3))
    delivered = add(url, *orders(2, 1, 2))
    asyncio.run(_relay(url, topics))
    return Stuck(url, topics, BAD_ID, waiting, delivered)


async def _relay(url: str, topics: Path) -> None:
    options = RelayOptions(until="drained", retry=RetryPolicy((0.001,), jitter=0))
    await Relay(database(url, Names()), FilePublisher(topics), options).run()
