"""Writers: one small shape over every handle, so that all of them face the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, TypeVar

import asyncpg
import psycopg

from commitrelay import Added, Event, Outbox

T = TypeVar("T")
Trace = Callable[[str], object]


class Writer(Protocol):
    """A caller with a connection: what it does around `add`."""

    outbox: Outbox

    def add(self, *events: Event) -> Added: ...

    def execute(self, sql: str) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def savepoint(self) -> None: ...

    def rollback_to_savepoint(self) -> None: ...

    def trace(self, callback: Trace | None) -> None:
        """Let SQLite tell every statement that it runs on this connection."""

    def close(self) -> None: ...


class SqlSavepoints:
    def savepoint(self) -> None:
        self.execute("SAVEPOINT here")  # type: ignore[attr-defined]

    def rollback_to_savepoint(self) -> None:
        self.execute("ROLLBACK TO SAVEPOINT here")  # type: ignore[attr-defined]


class SyncWriter(SqlSavepoints):
    """psycopg and sqlite3 connections, which are alike."""

    def __init__(self, outbox: Outbox, connection: Any) -> None:
        self.outbox = outbox
        self.connection = connection

    def add(self, *events: Event) -> Added:
        return self.outbox.add(self.connection, *events)

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def trace(self, callback: Trace | None) -> None:
        self.connection.set_trace_callback(callback)

    def close(self) -> None:
        self.connection.close()


class AsyncWriter(SqlSavepoints):
    """psycopg's AsyncConnection and aiosqlite's, each on an event loop of its own."""

    def __init__(self, outbox: Outbox, connect: Callable[[], Awaitable[Any]]) -> None:
        self.outbox = outbox
        self._runner = asyncio.Runner()
        self.connection = self.run(connect())

    def run(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self._runner.run(wait())

    def add(self, *events: Event) -> Added:
        return self.run(self.outbox.add_async(self.connection, *events))

    def execute(self, sql: str) -> None:
        self.run(self.connection.execute(sql))

    def commit(self) -> None:
        self.run(self.connection.commit())

    def rollback(self) -> None:
        self.run(self.connection.rollback())

    def trace(self, callback: Trace | None) -> None:
        self.run(self.connection.set_trace_callback(callback))

    def close(self) -> None:
        self.run(self.connection.close())
        self._runner.close()


class AsyncpgWriter(AsyncWriter):
    """asyncpg has no implicit transaction: this caller opens one, unless told not to."""

    def __init__(
        self, outbox: Outbox, connect: Callable[[], Awaitable[Any]], *, autocommit: bool
    ) -> None:
        super().__init__(outbox, connect)
        self._transaction: Any = None
        if not autocommit:
            self._transaction = self.connection.transaction()
            self.run(self._transaction.start())

    def commit(self) -> None:
        self.run(self._transaction.commit())

    def rollback(self) -> None:
        self.run(self._transaction.rollback())


class AsyncpgPoolWriter(AsyncpgWriter):
    """A connection taken from a pool is a proxy."""

    def __init__(self, outbox: Outbox, url: str, *, autocommit: bool) -> None:
        async def connect() -> Any:
            self._pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
            return await self._pool.acquire()

        super().__init__(outbox, connect, autocommit=autocommit)

    def close(self) -> None:
        async def close() -> None:
            await self._pool.release(self.connection)
            await self._pool.close()

        self.run(close())
        self._runner.close()


class SqlalchemyWriter:
    """A Session, scoped_session or Connection; `close` ends the engine too."""

    def __init__(self, outbox: Outbox, handle: Any, close: Callable[[], None]) -> None:
        self.outbox = outbox
        self.handle = handle
        self._close = close
        self._nested: Any = None

    def add(self, *events: Event) -> Added:
        return self.outbox.add(self.handle, *events)

    def execute(self, sql: str) -> None:
        from sqlalchemy import text  # noqa: PLC0415

        self.handle.execute(text(sql))

    def commit(self) -> None:
        self.handle.commit()

    def rollback(self) -> None:
        self.handle.rollback()

    def savepoint(self) -> None:
        self._nested = self.handle.begin_nested()

    def rollback_to_savepoint(self) -> None:
        self._nested.rollback()

    def trace(self, callback: Trace | None) -> None:
        connection = self.handle.connection
        proxy = connection().connection if callable(connection) else connection
        proxy.driver_connection.set_trace_callback(callback)

    def close(self) -> None:
        self.handle.close()
        self._close()


class AsyncSqlalchemyWriter(AsyncWriter):
    """An AsyncSession, async_scoped_session or AsyncConnection."""

    def __init__(
        self,
        outbox: Outbox,
        connect: Callable[[], Awaitable[Any]],
        dispose: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(outbox, connect)
        self._dispose = dispose
        self._nested: Any = None

    def execute(self, sql: str) -> None:
        from sqlalchemy import text  # noqa: PLC0415

        self.run(self.connection.execute(text(sql)))

    def savepoint(self) -> None:
        async def begin() -> Any:
            return await self.connection.begin_nested()

        self._nested = self.run(begin())

    def rollback_to_savepoint(self) -> None:
        self.run(self._nested.rollback())

    def trace(self, callback: Trace | None) -> None:
        async def trace() -> None:
            handle = self.connection
            is_connection = hasattr(handle, "get_raw_connection")
            connection = handle if is_connection else await handle.connection()
            proxy = await connection.get_raw_connection()
            await proxy.driver_connection.set_trace_callback(callback)

        self.run(trace())

    def close(self) -> None:
        self.run(self.connection.close())
        self.run(self._dispose())
        self._runner.close()


class DjangoWriter:
    """One alias of `django.db.connections`, inside `atomic()` unless told not to be."""

    def __init__(self, outbox: Outbox, alias: str, *, autocommit: bool) -> None:
        from django.db import connections  # noqa: PLC0415

        self.outbox = outbox
        self._alias = alias
        self.connection = connections[alias]
        self.connection.inc_thread_sharing()
        self._transaction = ExitStack()
        if not autocommit:
            self._transaction.enter_context(self._atomic())
        self._nested = ExitStack()

    def _atomic(self) -> AbstractContextManager[None]:
        from django.db import transaction  # noqa: PLC0415

        atomic: AbstractContextManager[None] = transaction.atomic(using=self._alias)
        return atomic

    def add(self, *events: Event) -> Added:
        return self.outbox.add(self.connection, *events)

    def execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    def commit(self) -> None:
        self._transaction.close()

    def rollback(self) -> None:
        self.connection.set_rollback(True)
        self._transaction.close()

    def savepoint(self) -> None:
        self._nested.enter_context(self._atomic())

    def rollback_to_savepoint(self) -> None:
        self.connection.set_rollback(True)
        self._nested.close()

    def trace(self, callback: Trace | None) -> None:
        self.connection.connection.set_trace_callback(callback)

    def close(self) -> None:
        self.connection.close()
        self.connection.dec_thread_sharing()


def psycopg_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    return SyncWriter(outbox, psycopg.connect(url, autocommit=autocommit))


def psycopg_async_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    return AsyncWriter(outbox, lambda: psycopg.AsyncConnection.connect(url, autocommit=autocommit))


def asyncpg_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    return AsyncpgWriter(outbox, lambda: asyncpg.connect(url), autocommit=autocommit)


def asyncpg_pool_writer(outbox: Outbox, url: str, autocommit: bool) -> Writer:
    return AsyncpgPoolWriter(outbox, url, autocommit=autocommit)
