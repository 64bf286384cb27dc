"""Writing on MariaDB: through its drivers, SQLAlchemy and Django, with and without a trigger."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiomysql
import asyncmy
import pymysql
import pytest
from pymysql.constants import CLIENT
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from commitrelay import Event, NotInTransaction, Outbox
from commitrelay.log import LaneFilter
from commitrelay.stores.mysql.store import MysqlStore
from tests.support import mariadb
from tests.writing.databases import COLUMNS, initialise
from tests.writing.promises import Connect, Promises, closing_factory, event
from tests.writing.writers import (
    AsyncSqlalchemyWriter,
    AsyncWriter,
    DjangoWriter,
    SqlalchemyWriter,
    SyncWriter,
    Writer,
)


class MariadbDatabase:
    """An outbox and how to look at it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, sql: str) -> list[dict[str, Any]]:
        options = {"autocommit": True, "cursorclass": pymysql.cursors.DictCursor}
        with (
            closing(mariadb.connect(self.url, **options)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            return list(cursor.fetchall())

    def events(self) -> list[dict[str, Any]]:
        rows = self.query(f"SELECT {COLUMNS.replace('::text', '')} FROM outbox_event ORDER BY seq")
        for row in rows:
            if row["deliver_at"] is not None:
                row["deliver_at"] = row["deliver_at"].replace(tzinfo=UTC)
        return rows

    def queued(self) -> list[int]:
        return [row["seq"] for row in self.query("SELECT seq FROM outbox_queue ORDER BY seq")]

    def await_blocked(self) -> None:
        waiting = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        deadline = time.monotonic() + 30
        while not self.query(waiting):
            assert time.monotonic() < deadline, "no writer came to wait"
            time.sleep(0.15)  # InnoDB renews this table only if nobody has read it for 0.1 s

    @contextmanager
    def counting_inserts(self, writer: Any) -> Iterator[list[int]]:
        counted: list[int] = []
        with (
            closing(mariadb.connect(self.url, autocommit=True)) as watcher,
            watcher.cursor() as cursor,
        ):
            cursor.execute("SELECT get_lock('general_log', 60)")  # other tests use it too
            cursor.execute("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = ON")
            try:
                yield counted
            finally:
                cursor.execute("SET GLOBAL general_log = OFF")
            cursor.execute(
                "SELECT argument FROM mysql.general_log WHERE command_type = 'Query' "
                f"AND thread_id IN ({_threads(cursor)}) "
                "AND argument LIKE 'INSERT INTO%outbox\\_event%'"
            )
            counted += [str(text).count("OrderPaid") for (text,) in cursor.fetchall()]
            cursor.execute("TRUNCATE mysql.general_log")


def _threads(cursor: Any) -> str:
    """The other connections to the same database."""
    cursor.execute(
        "SELECT id FROM information_schema.processlist "
        "WHERE db = database() AND id <> connection_id()"
    )
    return ", ".join(str(number) for (number,) in cursor.fetchall())


@pytest.fixture(scope="module")
def shared_outbox(mariadb_url: str) -> Iterator[MariadbDatabase]:
    with mariadb.fresh_database(mariadb_url) as url:
        asyncio.run(initialise(MysqlStore(url)))
        yield MariadbDatabase(url)


@pytest.fixture
def outbox_database(shared_outbox: MariadbDatabase) -> MariadbDatabase:
    """An empty outbox: one database for all these tests, because to create one takes longer."""
    mariadb.run(shared_outbox.url, "DELETE FROM outbox_event", "DELETE FROM outbox_queue")
    return shared_outbox


def address(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
        "charset": "utf8mb4",
    }


# --- drivers -------------------------------------------------------------------------------


class CursorWriter(SyncWriter):
    """PyMySQL and mysqlclient execute on cursors only."""

    def execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)


class AsyncCursorWriter(AsyncWriter):
    """asyncmy and aiomysql alike."""

    def execute(self, sql: str) -> None:
        async def execute() -> None:
            async with self.connection.cursor() as cursor:
                await cursor.execute(sql)

        self.run(execute())

    def close(self) -> None:
        async def close() -> None:
            await self.connection.ensure_closed()

        self.run(close())
        self._runner.close()


def pymysql_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    return CursorWriter(outbox, mariadb.connect(url, autocommit=autocommit))


def pymysql_found_rows_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    """As SQLAlchemy and Django connect: rows that were found count as changed."""
    flags = {"client_flag": CLIENT.FOUND_ROWS, "autocommit": autocommit}
    return CursorWriter(outbox, mariadb.connect(url, **flags))


def mysqlclient_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    module = pytest.importorskip("MySQLdb", reason="mysqlclient is not installed here")
    name = urlsplit(url).path.strip("/")
    connection = module.connect(**address(url), database=name)
    connection.autocommit(autocommit)
    return CursorWriter(outbox, connection)


def async_writer(module: Any) -> Callable[[Outbox, str, bool], Writer]:
    def make(outbox: Outbox, url: str, autocommit: bool) -> Writer:
        async def connect() -> Any:
            name = urlsplit(url).path.strip("/")
            return await module.connect(**address(url), db=name, autocommit=autocommit)

        return AsyncCursorWriter(outbox, connect)

    return make


WRITERS = {
    "pymysql": pymysql_writer,
    "pymysql-found-rows": pymysql_found_rows_writer,
    "mysqlclient": mysqlclient_writer,
    "asyncmy": async_writer(asyncmy),
    "aiomysql": async_writer(aiomysql),
}


class TestDrivers(Promises):
    @pytest.fixture
    def database(self, outbox_database: MariadbDatabase) -> MariadbDatabase:
        return outbox_database

    @pytest.fixture(params=WRITERS)
    def connect(
        self, request: pytest.FixtureRequest, database: MariadbDatabase
    ) -> Iterator[Connect]:
        make = WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.url, mode))


# --- SQLAlchemy ----------------------------------------------------------------------------


def sqlalchemy_url(url: str, driver: str) -> str:
    return f"{url.replace('mysql://', f'{driver}://')}?charset=utf8mb4"


def session_writer(driver: str) -> Callable[[Outbox, str, bool], Writer]:
    def make(outbox: Outbox, url: str, autocommit: bool) -> Writer:
        if "mysqldb" in driver:
            pytest.importorskip("MySQLdb", reason="mysqlclient is not installed here")
        engine = create_engine(sqlalchemy_url(url, driver), **isolation(autocommit))
        return SqlalchemyWriter(outbox, Session(engine), engine.dispose)

    return make


def connection_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    engine = create_engine(sqlalchemy_url(url, "mariadb+pymysql"), **isolation(autocommit))
    return SqlalchemyWriter(outbox, engine.connect(), engine.dispose)


def async_session_writer(driver: str) -> Callable[[Outbox, str, bool], Writer]:
    def make(outbox: Outbox, url: str, autocommit: bool) -> Writer:
        engine = create_async_engine(sqlalchemy_url(url, driver), **isolation(autocommit))

        async def connect() -> Any:
            return AsyncSession(engine)

        return AsyncSqlalchemyWriter(outbox, connect, engine.dispose)

    return make


def isolation(autocommit: bool) -> dict[str, Any]:
    return {"isolation_level": "AUTOCOMMIT"} if autocommit else {}


SQLALCHEMY_WRITERS = {
    "session-pymysql": session_writer("mysql+pymysql"),
    "session-mysqlclient": session_writer("mysql+mysqldb"),
    "connection-mariadb-pymysql": connection_writer,
    "async-session-asyncmy": async_session_writer("mysql+asyncmy"),
    "async-session-aiomysql": async_session_writer("mysql+aiomysql"),
}


class TestSqlalchemy(Promises):
    @pytest.fixture
    def database(self, outbox_database: MariadbDatabase) -> MariadbDatabase:
        return outbox_database

    @pytest.fixture(params=SQLALCHEMY_WRITERS)
    def connect(
        self, request: pytest.FixtureRequest, database: MariadbDatabase
    ) -> Iterator[Connect]:
        make = SQLALCHEMY_WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.url, mode))


# --- Django --------------------------------------------------------------------------------


class TestDjango(Promises):
    @pytest.fixture
    def database(self, outbox_database: MariadbDatabase) -> MariadbDatabase:
        return outbox_database

    @pytest.fixture
    def connect(self, database: MariadbDatabase) -> Iterator[Connect]:
        pytest.importorskip("MySQLdb", reason="mysqlclient is not installed here")
        from tests.writing.test_add_django import (  # noqa: PLC0415
            ALIASES,
            configure,
            forget_connections,
        )

        configure(database)
        aliases = iter(ALIASES)
        yield from closing_factory(
            lambda outbox, mode: DjangoWriter(outbox, next(aliases), autocommit=mode)
        )
        forget_connections()


# --- what is special here ------------------------------------------------------------------


def test_a_begin_of_ones_own_is_a_transaction(outbox_database: MariadbDatabase) -> None:
    with closing(mariadb.connect(outbox_database.url, autocommit=True)) as connection:
        for ending in (connection.rollback, connection.commit):
            connection.begin()
            Outbox().add(connection, event())
            ending()
        with pytest.raises(NotInTransaction, match="begin"):
            Outbox().add(connection, event())
    assert len(outbox_database.events()) == len(outbox_database.queued()) == 1


def test_duplicates_among_many_are_counted_exactly(outbox_database: MariadbDatabase) -> None:
    events = [event(number, id=uuid4()) for number in range(40)]
    with closing(mariadb.connect(outbox_database.url)) as connection:
        assert Outbox().add(connection, *events[5:9], events[30]).new == 5
        connection.commit()
        added = Outbox().add(connection, *events)
        assert (added.new, added.duplicates) == (35, 5)
        connection.commit()
    assert len(outbox_database.events()) == len(outbox_database.queued()) == 40


def test_keys_that_differ_in_a_trailing_space_or_in_case_are_two(
    outbox_database: MariadbDatabase,
) -> None:
    keys = ("pay-7", "pay-7 ", "PAY-7", "pay-7\t")
    with closing(mariadb.connect(outbox_database.url)) as connection:
        added = Outbox().add(connection, *(event(idempotency_key=key) for key in keys))
        assert added.new == len(keys)
        connection.commit()
    assert [row["idempotency_key"] for row in outbox_database.events()] == list(keys)


def test_what_does_not_fit_is_an_error_and_not_cut_off(outbox_database: MariadbDatabase) -> None:
    with closing(mariadb.connect(outbox_database.url)) as connection:
        with connection.cursor() as cursor, pytest.raises(pymysql.err.DataError):
            cursor.execute(
                "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
                "VALUES (%s, '1', 'OrderPaid', '')",
                ("x" * 256,),
            )
        connection.rollback()
    assert outbox_database.events() == []


def test_serialised_writers_of_a_key_wait_for_each_other(outbox_database: MariadbDatabase) -> None:
    outbox = Outbox(serialize_keys=True)
    brief = {"init_command": "SET SESSION innodb_lock_wait_timeout = 1"}
    with (
        closing(mariadb.connect(outbox_database.url)) as first,
        closing(mariadb.connect(outbox_database.url, **brief)) as second,
    ):
        outbox.add(first, event(1))
        with pytest.raises(pymysql.err.OperationalError, match="1205"):
            outbox.add(second, event(2))
        outbox.add(second, Event("Order", "another", "OrderPaid", {}))
        first.commit()
        outbox.add(second, event(3))
        second.commit()


# --- without a trigger ---------------------------------------------------------------------


@pytest.fixture
def poor_url(mariadb_url: str, mariadb_database: str) -> Iterator[str]:
    """An account with all rights on its database, which may create no trigger all the same."""
    user = f"poor_{uuid4().hex[:12]}"
    name = urlsplit(mariadb_database).path.strip("/")
    mariadb.run(
        mariadb_url,
        f"CREATE USER {user}@'%' IDENTIFIED BY 'canary'",
        f"CREATE USER {user}@localhost IDENTIFIED BY 'canary'",
        f"GRANT ALL ON {name}.* TO {user}@'%'",
        f"GRANT ALL ON {name}.* TO {user}@localhost",
        f"GRANT PROCESS ON *.* TO {user}@localhost",  # to see who waits
        f"GRANT PROCESS ON *.* TO {user}@'%'",
    )
    parts = urlsplit(mariadb_database)
    yield parts._replace(netloc=f"{user}:canary@{parts.hostname}:{parts.port}").geturl()
    mariadb.run(mariadb_url, f"DROP USER {user}@'%', {user}@localhost")


@pytest.fixture
def without_trigger(poor_url: str, caplog: pytest.LogCaptureFixture) -> Iterator[MariadbDatabase]:
    with caplog.at_level(logging.WARNING):
        asyncio.run(initialise(MysqlStore(poor_url)))
    (warning,) = (
        record.getMessage() for record in caplog.records if record.name.startswith("commitrelay")
    )
    assert "may not create a trigger" in warning
    assert "canary" not in warning
    yield MariadbDatabase(poor_url)


class TestWithoutTrigger(Promises):
    """`add` writes both rows, and everything else is as ever."""

    @pytest.fixture
    def database(self, without_trigger: MariadbDatabase) -> MariadbDatabase:
        return without_trigger

    @pytest.fixture(params=["pymysql", "asyncmy"])
    def connect(
        self, request: pytest.FixtureRequest, database: MariadbDatabase
    ) -> Iterator[Connect]:
        make = WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.url, mode))

    def test_several_events_are_one_statement(self) -> None:  # type: ignore[override]
        pytest.skip("there is one more for the queue, and the first finds out that it is needed")


def test_a_plain_insert_without_a_trigger_is_refused_aloud(
    without_trigger: MariadbDatabase,
) -> None:
    with (
        closing(mariadb.connect(without_trigger.url)) as connection,
        connection.cursor() as cursor,
        pytest.raises(pymysql.err.MySQLError, match="has_no_trigger_use_outbox_add"),
    ):
        cursor.execute(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
            "VALUES ('Order', '1', 'OrderPaid', '')"
        )


def test_both_ways_fill_the_queue_with_the_same(
    without_trigger: MariadbDatabase, outbox_database: MariadbDatabase
) -> None:
    columns = "SELECT lane, `key`, bucket, state, due_at FROM outbox_queue ORDER BY seq"
    events = [Event("Order", f"ü-{number}", "OrderPaid", {}) for number in range(20)]
    found = []
    for database in (without_trigger, outbox_database):
        with closing(mariadb.connect(database.url)) as connection:
            Outbox().add(connection, *events)
            connection.commit()
        found.append(database.query(columns))
    assert found[0] == found[1]
    assert len(found[0]) == 20


def test_a_changed_filter_of_a_lane_is_followed_without_a_trigger(
    without_trigger: MariadbDatabase,
) -> None:
    async def take(new: LaneFilter, seen: LaneFilter) -> None:
        store = MysqlStore(without_trigger.url)
        assert await store.set_filter("default", seen=seen, new=new)
        await store.close()

    outbox, steps = Outbox(), (LaneFilter(), LaneFilter(["Cart"]), LaneFilter(["Order"]))
    with closing(mariadb.connect(without_trigger.url)) as connection:
        outbox.add(connection, event(1))
        connection.commit()
        for seen, new in pairwise(steps):
            asyncio.run(take(new, seen))
            outbox.add(connection, event(2))
            connection.commit()
    assert len(without_trigger.events()) == 3
    queue = without_trigger.query("SELECT seq FROM outbox_queue ORDER BY seq")
    log = without_trigger.query("SELECT seq FROM outbox_event ORDER BY seq")
    assert queue == [log[0], log[2]]


def test_an_account_that_may_brings_the_trigger_later(
    without_trigger: MariadbDatabase, mariadb_database: str
) -> None:
    outbox = Outbox()
    with closing(mariadb.connect(without_trigger.url)) as connection:
        outbox.add(connection, event(1))
        connection.commit()
        asyncio.run(initialise(MysqlStore(mariadb_database)))
        outbox.add(connection, event(2))
        connection.commit()
    assert len(without_trigger.queued()) == len(without_trigger.events()) == 2


def test_an_account_with_insert_on_the_log_is_enough(
    mariadb_url: str, outbox_database: MariadbDatabase
) -> None:
    user = f"producer_{uuid4().hex[:12]}"
    name = urlsplit(outbox_database.url).path.strip("/")
    mariadb.run(
        mariadb_url,
        f"CREATE USER {user}@'%'",
        f"CREATE USER {user}@localhost",
        f"GRANT INSERT ON {name}.outbox_event TO {user}@'%'",
        f"GRANT INSERT ON {name}.outbox_event TO {user}@localhost",
    )
    parts = urlsplit(outbox_database.url)
    url = parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()
    try:
        with closing(mariadb.connect(url)) as connection:
            assert Outbox().add(connection, event(1), event(2, idempotency_key="k")).new == 2
            assert Outbox().add(connection, event(3, idempotency_key="k")).duplicates == 1
            connection.commit()
    finally:
        mariadb.run(mariadb_url, f"DROP USER {user}@'%', {user}@localhost")
    assert len(outbox_database.queued()) == 2
