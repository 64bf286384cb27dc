"""Trouble: what an error of a database driver means. No driver is imported: names and codes tell.

* The database did not answer: nobody's fault, wait and try again.
* The database took the transaction back because of another one: try again soon.
* Our tables are missing: nothing can be done before `commitrelay init`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from commitrelay.errors import SchemaMissing, StoreUnreachable

_SQLSTATE_CLASSES_LOST = ("08", "53", "57P")
_SQLSTATES_CONFLICT = ("40001", "40P01")
_SQLSTATE_NO_TABLE = "42P01"

_MYSQL_LOST = frozenset({1040, 1053, 1077, 1158, 1159, 1160, 1161, 1927, 3169, 4031})
_MYSQL_CLIENT = range(2000, 3000)
_MYSQL_CONFLICT = frozenset({1205, 1213, 1020})
_MYSQL_NO_TABLE = 1146

_SQLITE_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_SQLITE_LOST = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})

_LOST = {
    ("psycopg_pool", "PoolTimeout"),
    ("psycopg_pool", "TooManyRequests"),
    ("psycopg_pool", "PoolClosed"),
    ("asyncpg", "ConnectionDoesNotExistError"),
    ("sqlalchemy", "TimeoutError"),
}


def is_unreachable(error: BaseException) -> bool:
    """Whether the database did not answer, or had no room for us."""
    return any(_is_lost(each) for each in _chain(error))


def is_conflict(error: BaseException) -> bool:
    """Whether another transaction was in the way of this one."""
    return any(_is_taken_back(each) for each in _chain(error))


def is_schema_missing(error: BaseException) -> bool:
    return any(_lacks_table(each) for each in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what a wrapper such as SQLAlchemy's or Django's holds."""
    seen: list[BaseException | None] = [None]
    queue: list[BaseException | None] = [error]
    while queue:
        each = queue.pop(0)
        if each not in seen:
            seen.append(each)
            yield each  # type: ignore[misc]
            queue += [getattr(each, "orig", None), getattr(each, "__cause__", None)]


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, StoreUnreachable):
        return True
    driver, name = type(error).__module__.partition(".")[0], type(error).__name__
    if (driver, name) in _LOST or getattr(error, "connection_invalidated", False):
        return True
    if driver in ("pymysql", "MySQLdb", "asyncmy", "aiomysql"):
        code = _number(error)
        return (
            code in _MYSQL_LOST or code in _MYSQL_CLIENT or (name == "InterfaceError" and code == 0)
        )
    if isinstance(error, sqlite3.Error):
        return _sqlite_code(error) in _SQLITE_LOST
    state = _sqlstate(error)
    if state:
        return state.startswith(_SQLSTATE_CLASSES_LOST)
    return driver == "psycopg" and any(
        cls.__name__ == "OperationalError" for cls in type(error).__mro__
    )


def _is_taken_back(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        return _sqlite_code(error) in _SQLITE_BUSY
    return _sqlstate(error) in _SQLSTATES_CONFLICT or (
        type(error).__module__.partition(".")[0] in ("pymysql", "MySQLdb", "asyncmy", "aiomysql")
        and _number(error) in _MYSQL_CONFLICT
    )


def _lacks_table(error: BaseException) -> bool:
    if isinstance(error, SchemaMissing):
        return True
    if isinstance(error, sqlite3.Error):
        return "no such table" in str(error)
    return _sqlstate(error) == _SQLSTATE_NO_TABLE or (
        type(error).__module__.partition(".")[0] in ("pymysql", "MySQLdb", "asyncmy", "aiomysql")
        and _number(error) == _MYSQL_NO_TABLE
    )


def _sqlstate(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def _number(error: BaseException) -> int:
    code = error.args[0] if error.args else -1
    return code if isinstance(code, int) else -1


def _sqlite_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
