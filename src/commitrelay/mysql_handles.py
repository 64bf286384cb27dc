"""MySQL's handles: connections of PyMySQL, mysqlclient, asyncmy and aiomysql, which are alike.

What is written on them is a conversation (see `mysql_add`): statements go out, errors go back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commitrelay.errors import NotInTransaction

_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS


def mysql_connection(connection: Any, statements: Callable[..., Any]) -> int:
    _require_transaction(connection)
    with connection.cursor() as cursor:
        return converse(cursor.execute, statements("mysql", "format"))


async def mysql_async_connection(connection: Any, statements: Callable[..., Any]) -> int:
    _require_transaction(connection)
    conversation = statements("mysql", "format")
    async with connection.cursor() as cursor:
        try:
            step = next(conversation)
            while True:
                try:
                    await cursor.execute(*step)
                except Exception as error:
                    step = conversation.throw(error)
                else:
                    step = next(conversation)
        except StopIteration as end:
            return int(end.value)


def converse(execute: Callable[..., object], conversation: Any) -> int:
    """Run what a conversation asks for, and tell it of errors; how many events are new."""
    try:
        step = next(conversation)
        while True:
            try:
                execute(*step)
            except Exception as error:
                step = conversation.throw(error)
            else:
                step = next(conversation)
    except StopIteration as end:
        return int(end.value)


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
