"""Handles: the connections and sessions that an event can be written on, one function for each.

A function gets the caller's handle and a conversation to have on it. It refuses a handle that
would commit on its own, runs the statements in the caller's transaction, and returns what the
conversation does. It never begins, commits or rolls back by itself. To support one more
driver, write such a function and name its class in `SYNC` or `ASYNC` at the end of this file.

No driver is imported here: a handle is known by the names of its classes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any

from commitrelay.conversation import Conversation, converse, converse_async, count_of
from commitrelay.errors import InvalidHandle, NotInTransaction
from commitrelay.mysql_handles import autocommits, mysql_async_connection, mysql_connection
from commitrelay.statement import Dialect, Style

Talk = Callable[[Dialect, Style], Conversation[Any]]
"""What to run, in the words of a dialect and the placeholders of a driver."""

Run = Callable[[Any, Talk], Any]
RunAsync = Callable[[Any, Talk], Awaitable[Any]]

_IDLE = 0  # libpq's PQTRANS_IDLE: connected, and no transaction is open
_LEGACY_TRANSACTION_CONTROL = -1  # sqlite3's word for "isolation_level decides", Python 3.12+


# --- psycopg -------------------------------------------------------------------------------


def psycopg_connection(connection: Any, talk: Talk) -> Any:
    if connection.pgconn.pipeline_status:
        # Answers come late in a pipeline: a nested one begins and ends with all of them received.
        with connection.pipeline():
            _require_psycopg_transaction(connection)
    else:
        _require_psycopg_transaction(connection)
    conversation = talk("postgres", _psycopg_style(connection.cursor_factory))
    return converse(partial(_psycopg_ask, connection), conversation)


async def psycopg_async_connection(connection: Any, talk: Talk) -> Any:
    if connection.pgconn.pipeline_status:
        async with connection.pipeline():
            _require_psycopg_transaction(connection)
    else:
        _require_psycopg_transaction(connection)
    conversation = talk("postgres", _psycopg_style(connection.cursor_factory))
    return await converse_async(partial(_psycopg_ask_async, connection), conversation)


def _psycopg_ask(connection: Any, text: str, values: tuple[Any, ...]) -> int:
    if not connection.pgconn.pipeline_status:
        return int(connection.execute(text, values).rowcount)
    with connection.pipeline():
        cursor = connection.execute(text, values)
    return int(cursor.rowcount)


async def _psycopg_ask_async(connection: Any, text: str, values: tuple[Any, ...]) -> int:
    if not connection.pgconn.pipeline_status:
        return int((await connection.execute(text, values)).rowcount)
    async with connection.pipeline():
        cursor = await connection.execute(text, values)
    return int(cursor.rowcount)


@lru_cache(maxsize=16)
def _psycopg_style(cursor_factory: Any) -> Style:
    classes = getattr(cursor_factory, "__mro__", ())
    raw = any(cls.__name__ == "RawCursorMixin" for cls in classes)
    return "numeric_dollar" if raw else "format"


def _require_psycopg_transaction(connection: Any) -> None:
    if connection.autocommit and connection.pgconn.transaction_status == _IDLE:
        raise NotInTransaction.because(
            "this psycopg connection has autocommit=True and no open transaction",
            "do both inside `with connection.transaction():`",
        )


# --- asyncpg -------------------------------------------------------------------------------


async def asyncpg_connection(connection: Any, talk: Talk) -> Any:
    if not connection.is_in_transaction():
        raise NotInTransaction.because(
            "this asyncpg connection is outside of a transaction, where it commits each statement",
            "do both inside `async with connection.transaction():`",
        )
    conversation = talk("postgres", "numeric_dollar")
    return await converse_async(partial(_asyncpg_ask, connection), conversation)


async def _asyncpg_ask(connection: Any, text: str, values: tuple[Any, ...]) -> int:
    tag = await connection.execute(text, *values)
    return int(tag.rpartition(" ")[2])  # such as INSERT 0 3


# --- sqlite3 and aiosqlite -----------------------------------------------------------------


def sqlite3_connection(connection: Any, talk: Talk) -> Any:
    if not connection.in_transaction and _sqlite_autocommits(connection):
        raise _sqlite_not_in_transaction()
    return converse(partial(_sqlite3_ask, connection), talk("sqlite", "qmark"))


async def aiosqlite_connection(connection: Any, talk: Talk) -> Any:
    if not connection.in_transaction and (
        # sqlite3 tells its mode in the connection's own thread only, which is aiosqlite's.
        await connection._execute(_sqlite_autocommits, connection._conn)
    ):
        raise _sqlite_not_in_transaction()
    return await converse_async(partial(_aiosqlite_ask, connection), talk("sqlite", "qmark"))


def _sqlite3_ask(connection: Any, text: str, values: tuple[Any, ...]) -> int:
    return count_of(connection.execute(text, values))


async def _aiosqlite_ask(connection: Any, text: str, values: tuple[Any, ...]) -> int:
    cursor = await connection.execute(text, values)
    return len(await cursor.fetchall()) if cursor.description else int(cursor.rowcount)


def _sqlite_autocommits(connection: Any) -> bool:
    """Whether an INSERT now would be committed at once, with no transaction open."""
    mode = getattr(connection, "autocommit", _LEGACY_TRANSACTION_CONTROL)
    if mode == _LEGACY_TRANSACTION_CONTROL:
        return connection.isolation_level is None
    return bool(mode)


def _sqlite_not_in_transaction() -> NotInTransaction:
    return NotInTransaction.because(
        "this sqlite3 connection is in autocommit mode and no transaction is open",
        "execute BEGIN IMMEDIATE first, or connect without isolation_level=None or autocommit=True",
    )


# --- SQLAlchemy ----------------------------------------------------------------------------

_SQLALCHEMY_DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_SQLALCHEMY_STYLES: dict[str, Style] = {
    "pyformat": "format",
    "format": "format",
    "qmark": "qmark",
    "numeric_dollar": "numeric_dollar",
}


def sqlalchemy_connection(connection: Any, talk: Talk) -> Any:
    _require_sqlalchemy_transaction(connection)
    return _sqlalchemy_converse(connection, talk)


def sqlalchemy_session(session: Any, talk: Talk) -> Any:
    connection = session.connection()
    _require_sqlalchemy_transaction(connection)
    session.flush()  # the aggregate first: its row lock makes seq order commit order
    return _sqlalchemy_converse(connection, talk)


def sqlalchemy_scoped_session(scoped: Any, talk: Talk) -> Any:
    return sqlalchemy_session(scoped(), talk)


async def sqlalchemy_async_connection(connection: Any, talk: Talk) -> Any:
    return await connection.run_sync(sqlalchemy_connection, talk)


async def sqlalchemy_async_session(session: Any, talk: Talk) -> Any:
    return await session.run_sync(sqlalchemy_session, talk)


async def sqlalchemy_async_scoped_session(scoped: Any, talk: Talk) -> Any:
    return await sqlalchemy_async_session(scoped(), talk)


def _sqlalchemy_converse(connection: Any, talk: Talk) -> Any:
    style = _SQLALCHEMY_STYLES[connection.dialect.paramstyle]
    conversation = talk(_SQLALCHEMY_DIALECTS[connection.dialect.name], style)
    return converse(partial(_sqlalchemy_ask, connection), conversation)


def _sqlalchemy_ask(connection: Any, text: str, values: tuple[Any, ...]) -> int:
    result = connection.exec_driver_sql(text, values)
    return len(result.fetchall()) if result.returns_rows else int(result.rowcount)


def _require_sqlalchemy_transaction(connection: Any) -> None:
    dialect = connection.dialect.name
    if dialect not in _SQLALCHEMY_DIALECTS:
        raise InvalidHandle(
            f"this SQLAlchemy connection leads to {dialect}, where an outbox cannot live: "
            f"use {' or '.join(_SQLALCHEMY_DIALECTS)}"
        )
    if _SQLALCHEMY_AUTOCOMMITS[_SQLALCHEMY_DIALECTS[dialect]](connection):
        raise NotInTransaction.because(
            "this SQLAlchemy connection has isolation_level AUTOCOMMIT",
            "use an engine or connection without it, or a session that is bound to one",
        )


def _postgres_autocommits(connection: Any) -> bool:
    proxy = connection.connection
    if not proxy.dbapi_connection.autocommit:
        return False
    driver = proxy.driver_connection
    if hasattr(driver, "is_in_transaction"):  # asyncpg
        return not driver.is_in_transaction()
    return not hasattr(driver, "info") or bool(driver.info.transaction_status == _IDLE)


def _sqlalchemy_sqlite_autocommits(connection: Any) -> bool:
    proxy = connection.connection
    driver = proxy.driver_connection
    if driver.in_transaction or not _sqlite_autocommits(proxy.dbapi_connection):
        return False
    if connection.in_transaction():
        return True
    # SQLAlchemy's own recipe for SQLite turns the driver's BEGIN off and emits one when a
    # transaction begins, which the first statement would do: only then can we tell.
    transaction = connection.begin()
    if driver.in_transaction:
        return False
    transaction.rollback()
    return True


def _sqlalchemy_mysql_autocommits(connection: Any) -> bool:
    return autocommits(connection.connection.driver_connection)


_SQLALCHEMY_AUTOCOMMITS: dict[Dialect, Callable[[Any], bool]] = {
    "postgres": _postgres_autocommits,
    "mysql": _sqlalchemy_mysql_autocommits,
    "sqlite": _sqlalchemy_sqlite_autocommits,
}


# --- Django --------------------------------------------------------------------------------

_DJANGO_DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgres",
    "mysql": "mysql",
    "sqlite": "sqlite",
}


def django_connection(connection: Any, talk: Talk) -> Any:
    dialect = _DJANGO_DIALECTS.get(connection.vendor)
    if dialect is None:
        raise InvalidHandle(
            f"this Django connection leads to {connection.vendor}, where an outbox cannot live: "
            f"pass connections[…] of a database on {' or '.join(_DJANGO_DIALECTS)}"
        )
    if connection.get_autocommit():
        raise NotInTransaction.because(
            "this Django connection is outside of atomic(), where it commits each statement",
            "do both inside `with transaction.atomic():`",
        )
    with connection.cursor() as cursor:
        return converse(partial(_django_ask, cursor), talk(dialect, "format"))


def _django_ask(cursor: Any, text: str, values: tuple[Any, ...]) -> int:
    cursor.execute(text, values)
    return count_of(cursor)


# --- which function for which handle -------------------------------------------------------

SYNC: dict[tuple[str, str], Run] = {
    ("psycopg", "Connection"): psycopg_connection,
    ("pymysql", "Connection"): mysql_connection,
    ("MySQLdb", "Connection"): mysql_connection,
    ("sqlite3", "Connection"): sqlite3_connection,
    ("sqlalchemy", "Connection"): sqlalchemy_connection,
    ("sqlalchemy", "Session"): sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): sqlalchemy_scoped_session,
    ("django", "BaseDatabaseWrapper"): django_connection,
    ("django", "ConnectionProxy"): django_connection,
}
ASYNC: dict[tuple[str, str], RunAsync] = {
    ("psycopg", "AsyncConnection"): psycopg_async_connection,
    ("asyncpg", "Connection"): asyncpg_connection,
    ("asyncpg", "PoolConnectionProxy"): asyncpg_connection,
    ("asyncmy", "Connection"): mysql_async_connection,
    ("aiomysql", "Connection"): mysql_async_connection,
    ("sqlalchemy", "AsyncConnection"): sqlalchemy_async_connection,
    ("sqlalchemy", "AsyncSession"): sqlalchemy_async_session,
    ("sqlalchemy", "async_scoped_session"): sqlalchemy_async_scoped_session,
    ("aiosqlite", "Connection"): aiosqlite_connection,
}

_SYNC_HANDLES = (
    "a psycopg, PyMySQL, mysqlclient or sqlite3 Connection, a SQLAlchemy Session or Connection, "
    "or django.db.connection"
)
_ASYNC_HANDLES = (
    "a psycopg AsyncConnection, an asyncpg, asyncmy, aiomysql or aiosqlite Connection, or a "
    "SQLAlchemy AsyncSession or AsyncConnection"
)
_ASYNC_FORMS = {
    "add": "`await outbox.add_async(…)`",
    "begin": "`await outbox.begin_async(…)`",
    "complete": "`await outbox.complete_async(…)`",
    "once": "`async with inbox.once(…)`",
}
_SYNC_FORMS = {
    "add_async": "`outbox.add(…)`",
    "begin_async": "`outbox.begin(…)`",
    "complete_async": "`outbox.complete(…)`",
    "once": "`with inbox.once(…)`",
}
_WRITTEN = {
    "begin": "the completion",
    "begin_async": "the completion",
    "complete": "the completion",
    "complete_async": "the completion",
    "once": "the mark",
}
_NEARLY = {
    "engine": "open a connection or session on it and pass that",
    "sessionmaker": "open a session with it and pass that",
    "pool": "take a connection from it and pass that",
    "cursor": "pass the connection that it belongs to",
    "transaction": "pass the connection that it runs on",
}


def run_on(handle: object, talk: Talk, *, called: str = "add") -> Any:
    """Have the conversation on this handle, for the method that was called."""
    classes = type(handle).__mro__
    run = _find_sync(classes)
    if run is not None:
        try:
            return run(handle, talk)
        except NotInTransaction as error:
            raise error.about(_WRITTEN.get(called, "the event")) from None
    if _find_async(classes) is not None:
        raise InvalidHandle(
            f"{called}() cannot wait for {_described(type(handle))}, "
            f"which is asynchronous: use {_ASYNC_FORMS[called]} with it"
        )
    raise _unknown(called, type(handle), _SYNC_HANDLES)


async def run_on_async(handle: object, talk: Talk, *, called: str = "add_async") -> Any:
    """As `run_on`, on an asynchronous handle."""
    classes = type(handle).__mro__
    run = _find_async(classes)
    if run is not None:
        try:
            return await run(handle, talk)
        except NotInTransaction as error:
            raise error.about(_WRITTEN.get(called, "the event")) from None
    if _find_sync(classes) is not None:
        raise InvalidHandle(
            f"{called}() would block the event loop on {_described(type(handle))}, "
            f"which is synchronous: use {_SYNC_FORMS[called]} with it"
        )
    raise _unknown(called, type(handle), _ASYNC_HANDLES)


@lru_cache(maxsize=256)
def _find_sync(classes: tuple[type, ...]) -> Run | None:
    return next((SYNC[name] for name in map(_name, classes) if name in SYNC), None)


@lru_cache(maxsize=256)
def _find_async(classes: tuple[type, ...]) -> RunAsync | None:
    return next((ASYNC[name] for name in map(_name, classes) if name in ASYNC), None)


def _name(cls: type) -> tuple[str, str]:
    return cls.__module__.partition(".")[0], cls.__name__


def _described(cls: type) -> str:
    return "{}'s {}".format(*_name(cls))


def _unknown(method: str, cls: type, known: str) -> InvalidHandle:
    what = cls.__name__ if cls.__module__ == "builtins" else _described(cls)
    name = cls.__name__.lower()
    hint = next((text for part, text in _NEARLY.items() if part in name), None)
    remedy = hint or f"pass what your own transaction runs on: {known}"
    return InvalidHandle(f"{method}() cannot write on {what}: {remedy}")
