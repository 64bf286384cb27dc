"""Link: one connection to PostgreSQL, opened when needed and again after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, conninfo, pq

from commitrelay.errors import (
    ConfigError,
    SchemaMissing,
    StoreError,
    StoreUnreachable,
)
from commitrelay.urls import redact, scrub

ANSWER_SECONDS = 30.0
"""A call that takes longer is given up: the database is taken to be out of reach."""

_CONNECTION_DEFAULTS = {
    "application_name": "commitrelay",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}

# A plan is made once and kept, whether the queue is empty or a million rows long at that moment,
# so the choices that only suit a short queue are taken away. A frozen relay must not hold its
# lease's row lock for ever: hence the time-out of idle transactions.
SESSION_SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "plan_cache_mode": "force_generic_plan",
    "idle_in_transaction_session_timeout": "10s",
    "DateStyle": "ISO",
}


READING_SETTINGS = {"jit": "off"}
"""For what operators read: to compile a query takes longer than to answer it."""


class Link:
    """One lazily opened connection in autocommit mode.

    `tuned` sets the session up for the relay's few, ever repeated statements. It stays off for
    what operators read, and where a pooler hands sessions on (`prepare_threshold` None).
    `settings` are set instead.
    """

    def __init__(
        self,
        url: str,
        *,
        tuned: bool = False,
        prepare_threshold: int | None = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        relays = SESSION_SETTINGS if tuned and prepare_threshold is not None else {}
        self._settings = relays if settings is None else settings
        self._prepare_threshold = prepare_threshold
        self._connection: AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def use(self, *, leave_open: bool = False) -> AsyncIterator[AsyncConnection[Any]]:
        """The connection, to one caller at a time; errors are translated.

        A caller that means to leave a transaction open says so; it is dropped otherwise.
        """
        async with self._lock:
            done = False
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    yield await self._connected()
                done = True
            except psycopg.Error as error:
                raise self._translated(error) from None
            except TimeoutError:
                await self.close()
                raise StoreUnreachable(
                    f"{redact(self._url)} did not answer within {ANSWER_SECONDS:g} s"
                ) from None
            finally:
                if not (done and leave_open):
                    await self._drop_unless_idle()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> AsyncConnection[Any]:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._connection = await AsyncConnection.connect(
            with_defaults(self._url), autocommit=True, prepare_threshold=self._prepare_threshold
        )
        await self._tune(self._connection)
        return self._connection

    async def _tune(self, connection: AsyncConnection[Any]) -> None:
        for name, value in self._settings.items():
            await connection.execute(
                "SELECT set_config(%s, %s, false)", (name, value), prepare=False
            )

    async def _drop_unless_idle(self) -> None:
        """A cancelled call may leave a transaction or half an answer behind: start afresh."""
        connection = self._connection
        if connection is None:
            return
        if connection.info.transaction_status != pq.TransactionStatus.IDLE:
            await self.close()

    def _translated(self, error: psycopg.Error) -> Exception:
        text = scrub(" ".join(str(error).split())) or type(error).__name__
        where = redact(self._url)
        if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction)):
            return SchemaMissing(
                f"{where} lacks a part of the outbox ({text}): "
                f"run commitrelay init --database {where}"
            )
        if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            return StoreUnreachable(f"cannot reach {where}: {text}")
        return StoreError(f"{where} refused a statement: {text}")


def checked_url(url: str) -> str:
    """The URL, if libpq understands it; a driver's suffix such as +psycopg is left out."""
    scheme, separator, rest = url.partition("://")
    plain = f"{scheme.partition('+')[0]}{separator}{rest}"
    try:
        conninfo.conninfo_to_dict(plain)
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"{redact(url)!r} is not a PostgreSQL URL: {scrub(' '.join(str(error).split()))}"
        ) from None
    return plain


def with_defaults(url: str) -> str:
    given = conninfo.conninfo_to_dict(url)
    missing: Mapping[str, Any] = {
        name: value for name, value in _CONNECTION_DEFAULTS.items() if name not in given
    }
    return conninfo.make_conninfo(url, **missing)
