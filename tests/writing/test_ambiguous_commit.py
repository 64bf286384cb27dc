"""The answer to a COMMIT is lost: the application cannot know, tries again, and has one event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pymysql
import pytest

from commitrelay import Event, Outbox
from commitrelay.stores.mysql.store import MysqlStore
from tests.support import mariadb
from tests.support.cut import CommitCutter
from tests.writing.databases import PostgresDatabase

Connect = Callable[[str], Any]

SAME_EVENT = [
    pytest.param({"id": UUID(int=4711)}, id="id"),
    pytest.param({"idempotency_key": "order-4711-placed"}, id="idempotency-key"),
]


@pytest.mark.parametrize("same", SAME_EVENT)
def test_on_postgres_the_same_event_is_added_once(
    postgres_outbox: PostgresDatabase, same: dict[str, Any]
) -> None:
    def connect(url: str) -> Any:
        return psycopg.connect(url, sslmode="disable")

    _commit_unheard(connect, postgres_outbox.url, same, psycopg.OperationalError)
    assert len(postgres_outbox.events()) == 1, "the first attempt was committed"
    assert _try_again(connect, postgres_outbox.url, same) == 1
    assert len(postgres_outbox.events()) == len(postgres_outbox.queued()) == 1


@pytest.mark.parametrize("same", SAME_EVENT)
def test_on_mariadb_the_same_event_is_added_once(
    mariadb_database: str, same: dict[str, Any]
) -> None:
    async def initialise() -> None:
        store = MysqlStore(mariadb_database)
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    _commit_unheard(mariadb.connect, mariadb_database, same, pymysql.OperationalError)
    assert _rows_in_mariadb(mariadb_database) == (1, 1), "the first attempt was committed"
    assert _try_again(mariadb.connect, mariadb_database, same) == 1
    assert _rows_in_mariadb(mariadb_database) == (1, 1)


def _event(same: dict[str, Any]) -> Event:
    return Event("Order", 4711, "OrderPlaced", {"total": 7}, **same)


def _commit_unheard(
    connect: Connect, url: str, same: dict[str, Any], lost: type[Exception]
) -> None:
    with CommitCutter(url) as cutter:
        connection = connect(cutter.url)
        Outbox().add(connection, _event(same))
        with pytest.raises(lost):
            connection.commit()
        assert cutter.was_answered.is_set()
        connection.close()


def _try_again(connect: Connect, url: str, same: dict[str, Any]) -> int:
    """How many of the events were there already."""
    connection = connect(url)
    added = Outbox().add(connection, _event(same))
    connection.commit()
    connection.close()
    return added.duplicates


def _rows_in_mariadb(url: str) -> tuple[int, int]:
    connection = mariadb.connect(url)
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM outbox_event), (SELECT count(*) FROM outbox_queue)"
        )
        events, queued = cursor.fetchone()
    return events, queued
