"""Tally: counts the statements that this process sends to its database, at the driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any


class Tally:
    """Started before the first connection is made."""

    def __init__(self) -> None:
        self.statements = 0

    def start(self, dialect: str) -> None:
        match dialect:
            case "postgres":
                psycopg: Any = import_module("psycopg")
                psycopg.AsyncCursor.execute = self._counted(psycopg.AsyncCursor.execute)
            case "mysql":
                self._cursors()
            case _:
                self._trace()

    def _counted(self, execute: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            # Several statements in one message are written with a line each.
            text = query.decode() if isinstance(query, bytes) else str(query)
            self.statements += text.count(";\n") + 1
            return await execute(cursor, query, *arguments, **options)

        return counted

    def _cursors(self) -> None:
        asyncmy: Any = import_module("asyncmy")
        plain: Any = import_module("asyncmy.cursors").Cursor
        cursor = type("CountedCursor", (plain,), {"execute": self._counted(plain.execute)})
        asyncmy.connect = partial(asyncmy.connect, cursor_cls=cursor)

    def _trace(self) -> None:
        original = sqlite3.connect

        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = original(*arguments, **options)
            connection.set_trace_callback(self._note)
            return connection

        sqlite3.connect = connect  # type: ignore[assignment]

    def _note(self, _statement: str) -> None:
        self.statements += 1
