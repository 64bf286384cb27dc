"""Transactions on PostgreSQL, by psycopg: one connection for each at a time, kept for the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from psycopg import AsyncConnection, BaseConnection, Connection, pq

from commitrelay.stores.idle import Idle
from commitrelay.stores.postgres.link import checked_url, with_defaults


class PostgresTransactions:
    one_at_a_time = False

    def __init__(self, url: str) -> None:
        self._conninfo = with_defaults(checked_url(url))
        self._idle: Idle[Connection[Any]] = Idle()
        self._idle_async: Idle[AsyncConnection[Any]] = Idle()

    @contextmanager
    def begin(self) -> Iterator[Connection[Any]]:
        connection = self._idle.take() or Connection.connect(self._conninfo)
        try:
            with connection.transaction():
                yield connection
        finally:
            if not (_is_clean(connection) and self._idle.give(connection)):
                for each in (connection, *self._idle.take_all()):
                    each.close()

    @asynccontextmanager
    async def begin_async(self) -> AsyncIterator[AsyncConnection[Any]]:
        connection = self._idle_async.take() or await AsyncConnection.connect(self._conninfo)
        try:
            async with connection.transaction():
                yield connection
        finally:
            if not (_is_clean(connection) and self._idle_async.give(connection)):
                for each in (connection, *self._idle_async.take_all()):
                    await each.close()

    async def close(self) -> None:
        self._idle.closed = self._idle_async.closed = True
        for connection in self._idle.take_all():
            connection.close()
        for waiting in self._idle_async.take_all():
            await waiting.close()


def from_url(url: str) -> PostgresTransactions:
    return PostgresTransactions(url)


def _is_clean(connection: BaseConnection[Any]) -> bool:
    return connection.info.transaction_status == pq.TransactionStatus.IDLE
