"""MySQL's handles: connections of PyMySQL, mysqlclient, asyncmy and aiomysql, which are alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from commitrelay.conversation import Conversation, converse, converse_async, count_of
from commitrelay.errors import NotInTransaction

_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS


def mysql_connection(connection: Any, talk: Callable[..., Conversation[Any]]) -> Any:
    _require_transaction(connection)
    with connection.cursor() as cursor:
        return converse(partial(_ask, cursor), talk("mysql", "format"))


async def mysql_async_connection(connection: Any, talk: Callable[..., Conversation[Any]]) -> Any:
    _require_transaction(connection)
    async with connection.cursor() as cursor:
        return await converse_async(partial(_ask_async, cursor), talk("mysql", "format"))


def _ask(cursor: Any, text: str, values: tuple[Any, ...]) -> int:
    cursor.execute(text, values)
    return count_of(cursor)


async def _ask_async(cursor: Any, text: str, values: tuple[Any, ...]) -> int:
    await cursor.execute(text, values)
    return len(await cursor.fetchall()) if cursor.description else int(cursor.rowcount)


def autocommits(connection: Any) -> bool:
    """Whether an INSERT now would be committed at once. mysqlclient does not tell of a BEGIN."""
    asked = getattr(connection, "get_autocommit", None)
    if not (asked() if asked else connection.autocommit):
        return False
    if hasattr(connection, "get_transaction_status"):  # asyncmy and aiomysql
        return not connection.get_transaction_status()
    return not getattr(connection, "server_status", 0) & _IN_TRANSACTION


def _require_transaction(connection: Any) -> None:
    if autocommits(connection):
        raise NotInTransaction.because(
            "this MySQL connection has autocommit on and no open transaction",
            "connect with autocommit=False, or call connection.begin() first",
        )
