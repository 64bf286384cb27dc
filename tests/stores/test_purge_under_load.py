"""A purge holds no writer up, and removes nothing that has to be sent.

The full size is a benchmark: `python benchmarks/purge_under_load.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from commitrelay import Event, Outbox
from commitrelay.purge import Purge
from commitrelay.sql import Names, queries
from commitrelay.stores.mysql.link import bound
from commitrelay.stores.mysql.log import DELETE_STEPS
from commitrelay.testing import opened
from tests.support import mariadb
from tests.support.stores import MariadbHarness, PostgresHarness

WRITERS = 4
OLD = 2000
EACH = 50


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_purge_under_load_removes_what_is_settled_and_nothing_else(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{kind}_database")
    harness: Any = PostgresHarness(url) if kind == "postgres" else MariadbHarness(url)
    harness.names = Names()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            connection = psycopg.connect(url) if kind == "postgres" else mariadb.connect(url)
            for _ in range(EACH):
                Outbox().add(connection, Event("Order", f"w{number}", "OrderPaid", {}))
                connection.commit()
            connection.close()
        except BaseException as error:
            failures.append(error)

    async def case() -> None:
        async with opened(harness) as scene:
            seqs = scene.add(*(str(number) for number in range(OLD)))
            unsent = seqs[::10]
            await scene.deliver(*(seq for seq in seqs if seq not in set(unsent)))
            scene.harness.pass_time(0.2)
            threads = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
            for thread in threads:
                thread.start()
            purge = Purge(scene.store, retention_seconds=0.1, pause_seconds=0.001, page=100)
            done = await purge.run()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert not failures
            assert done.deleted == OLD - len(unsent)
            left = {seq for (seq,) in scene.query("SELECT seq FROM @event")}
            queued = {seq for (seq,) in scene.query("SELECT seq FROM @queue")}
            assert left == queued
            assert set(unsent) < left
            assert len(left) == len(unsent) + WRITERS * EACH

    asyncio.run(case())


@contextmanager
def deleting_on_postgres(url: str, seqs: list[int]) -> Iterator[None]:
    """In the middle of a purge's transaction."""
    sql = queries("postgres", Names())
    with psycopg.connect(url) as connection:
        for step in ("lock_log", "delete_settled"):
            connection.execute(sql[step].encode(), {"seqs": seqs})
        yield
        connection.rollback()


@contextmanager
def deleting_on_mariadb(url: str, seqs: list[int]) -> Iterator[None]:
    connection = mariadb.connect(url)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("BEGIN")
        for step in DELETE_STEPS:
            cursor.execute(bound(connection, queries("mysql", Names())[step], {"seqs": seqs}))
    yield
    connection.rollback()
    connection.close()


def add_on_postgres(url: str) -> None:
    with psycopg.connect(url, options="-c lock_timeout=1s") as connection:
        Outbox().add(connection, Event("Order", "new", "OrderPaid", {}))


def add_on_mariadb(url: str) -> None:
    modes = "SET SESSION innodb_lock_wait_timeout = 1"
    connection = mariadb.connect(url, init_command=modes)
    Outbox().add(connection, Event("Order", "new", "OrderPaid", {}))
    connection.commit()
    connection.close()


CASES: dict[str, tuple[Callable[..., Any], Callable[[str], None]]] = {
    "postgres": (deleting_on_postgres, add_on_postgres),
    "mariadb": (deleting_on_mariadb, add_on_mariadb),
}


@pytest.mark.parametrize("kind", CASES)
def test_writers_do_not_wait_for_a_delete_that_hangs(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Also the events right below the new ones may be deleted: no gap is locked."""
    url = request.getfixturevalue(f"{kind}_database")
    harness: Any = PostgresHarness(url) if kind == "postgres" else MariadbHarness(url)
    harness.names = Names()
    deleting, add = CASES[kind]

    async def case() -> None:
        async with opened(harness) as scene:
            seqs = scene.add("a", "b", "c")
            await scene.deliver(*seqs)
            with deleting(url, seqs):
                for _ in range(3):
                    add(url)
            assert scene.added() == 6

    asyncio.run(case())
