"""MysqlPlace: the demo's orders in MySQL or MariaDB, under a table prefix of their own."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from commitrelay.demo.place import script
from commitrelay.errors import MissingExtra, StoreUnreachable
from commitrelay.sql import Names
from commitrelay.urls import scrub

DEFAULT_PORT = 3306


class MysqlPlace:
    title = "MySQL"

    def __init__(self, url: str, names: Names) -> None:
        self.url = url
        self.names = names
        self._advance = self._fill(script("mysql/advance.sql"))

    def connect(self) -> Any:
        try:
            import pymysql  # noqa: PLC0415
        except ImportError:
            raise MissingExtra("mysql", "the demo on MySQL") from None
        parts = urlsplit(self.url)
        try:
            return pymysql.connect(
                host=parts.hostname or "127.0.0.1",
                port=parts.port or DEFAULT_PORT,
                user=unquote(parts.username or "root"),
                password=unquote(parts.password or ""),
                database=unquote(parts.path.strip("/")) or None,
                charset="utf8mb4",
                connect_timeout=10,
                init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            )
        except pymysql.err.OperationalError as error:
            text = scrub(str(error.args[-1]))
            raise StoreUnreachable(f"cannot connect to MySQL: {text}") from None

    def advance(self, connection: Any, order: int, status: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(self._advance, (status, order))
            return int(cursor.lastrowid)  # the statement has put the version there

    def prepare(self) -> None:
        self.connect().close()

    def create_orders(self) -> None:
        self._run("mysql/create.sql")

    def remove(self) -> None:
        self._run("mysql/drop.sql")

    def _run(self, path: str) -> None:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in filter(str.strip, self._fill(script(path)).split(";")):
                    cursor.execute(statement)
            connection.commit()
        finally:
            connection.close()

    def _fill(self, text: str) -> str:
        return self.names.fill(text).replace('"', "`")


def from_url(url: str, name: str) -> MysqlPlace:
    return MysqlPlace(url, Names(None, name))
