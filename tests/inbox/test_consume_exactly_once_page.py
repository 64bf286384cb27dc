"""The examples of docs/how-to/consume-exactly-once.md do what the page says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from commitrelay import Event, Outbox
from tests.writing.databases import PostgresDatabase

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "consume-exactly-once.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)


@pytest.fixture
def account(postgres_outbox: PostgresDatabase) -> Iterator[PostgresDatabase]:
    postgres_outbox.run("CREATE TABLE account (id int, balance int)")
    postgres_outbox.run("INSERT INTO account VALUES (42, 100)")
    yield postgres_outbox
    postgres_outbox.run("DROP TABLE account")


def run(example: str, **given: object) -> None:
    namespace: dict[str, Any] = dict(given)
    exec(example, namespace)
    if "handle" in namespace:
        asyncio.run(namespace["handle"]())


def test_every_example_is_tried() -> None:
    assert len(EXAMPLES) == 4
    assert "RedisInbox" in EXAMPLES[3]


@pytest.mark.parametrize("example", EXAMPLES[:3], ids=["sync", "async", "one-database"])
def test_three_deliveries_charge_once(account: PostgresDatabase, example: str) -> None:
    with psycopg.connect(account.url) as connection:
        (event_id,) = Outbox().add(connection, Event("Order", 42, "OrderPaid", {}))
    for _delivery in range(3):
        run(example, dsn=account.url, event_id=event_id)
    assert account.query("SELECT balance FROM account") == [{"balance": 90}]


def test_three_deliveries_send_one_mail(redis_url: str) -> None:
    sent: list[str] = []

    async def send_mail() -> None:
        sent.append("mail")

    example = EXAMPLES[3].replace("redis://localhost:6379", redis_url)
    event_id = uuid4()
    for _delivery in range(3):
        run(example, event_id=event_id, send_mail=send_mail)
    assert sent == ["mail"]
