"""PostgresPlace: the demo's orders in a PostgreSQL schema of their own."""

from __future__ import annotations

from typing import Any

from commitrelay.demo.place import script
from commitrelay.errors import MissingExtra, StoreUnreachable
from commitrelay.sql import Names
from commitrelay.urls import scrub


class PostgresPlace:
    title = "PostgreSQL"

    def __init__(self, url: str, names: Names) -> None:
        self.url = url
        self.names = names
        self._advance = self.names.fill(script("postgres/advance.sql"))

    def connect(self) -> Any:
        try:
            import psycopg  # noqa: PLC0415
        except ImportError:
            raise MissingExtra("postgres", "the demo on PostgreSQL") from None
        try:
            return psycopg.connect(self.url, connect_timeout=10)
        except psycopg.OperationalError as error:
            raise StoreUnreachable(f"cannot connect to PostgreSQL: {scrub(str(error))}") from None

    def advance(self, connection: Any, order: int, status: str) -> int:
        return int(connection.execute(self._advance, (status, order)).fetchone()[0])

    def prepare(self) -> None:
        self._run("postgres/schema.sql")

    def create_orders(self) -> None:
        self._run("postgres/create.sql")

    def remove(self) -> None:
        self._run("postgres/drop.sql")

    def _run(self, path: str) -> None:
        text = script(path).replace("{schema}", f'"{self.names.schema}"')
        connection = self.connect()
        try:
            with connection.transaction():
                connection.execute(self.names.fill(text))
        finally:
            connection.close()


def from_url(url: str, name: str) -> PostgresPlace:
    return PostgresPlace(url, Names(name, "outbox"))
