"""Transactions on MySQL and MariaDB, by PyMySQL and asyncmy, in READ COMMITTED.

Under the default of these servers, REPEATABLE READ, locks on gaps make events wait for each other
that have nothing in common.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from commitrelay.errors import MissingExtra
from commitrelay.stores.idle import Idle
from commitrelay.stores.mysql.address import address

try:
    import asyncmy
    import pymysql
except ImportError:
    raise MissingExtra("mysql", "a consumer with a MySQL database") from None

ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"


class MysqlTransactions:
    one_at_a_time = False

    def __init__(self, url: str) -> None:
        self._address = {**address(url), "charset": "utf8mb4", "init_command": ISOLATION}
        self._idle: Idle[Any] = Idle()
        self._idle_async: Idle[Any] = Idle()

    @contextmanager
    def begin(self) -> Iterator[Any]:
        connection = self._idle.take() or self._connect()
        done = False
        try:
            connection.begin()
            yield connection
            connection.commit()
            done = True
        finally:
            done = done or _rolled_back(connection)
            if not (done and self._idle.give(connection)):
                for each in (connection, *self._idle.take_all()):
                    _close(each)

    @asynccontextmanager
    async def begin_async(self) -> AsyncIterator[Any]:
        connection = self._idle_async.take() or await asyncmy.connect(**self._address)
        done = False
        try:
            await connection.begin()
            yield connection
            await connection.commit()
            done = True
        finally:
            done = done or await _rolled_back_async(connection)
            if not (done and self._idle_async.give(connection)):
                for each in (connection, *self._idle_async.take_all()):
                    each.close()

    async def close(self) -> None:
        self._idle.closed = self._idle_async.closed = True
        for connection in self._idle.take_all():
            _close(connection)
        for connection in self._idle_async.take_all():
            await connection.ensure_closed()

    def _connect(self) -> Any:
        names = {"db": "database"}
        return pymysql.connect(**{names.get(key, key): of for key, of in self._address.items()})


def from_url(url: str) -> MysqlTransactions:
    return MysqlTransactions(url)


def _rolled_back(connection: Any) -> bool:
    """Whether the connection can be used again."""
    try:
        connection.rollback()
    except Exception:
        return False
    return True


async def _rolled_back_async(connection: Any) -> bool:
    try:
        await connection.rollback()
    except Exception:
        return False
    return True


def _close(connection: Any) -> None:
    with suppress(pymysql.Error):  # closed already
        connection.close()
