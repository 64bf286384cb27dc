"""Ground: the database that is measured, with an outbox of its own, filled and emptied at will."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commitrelay import registry
from commitrelay.admin import initialise
from commitrelay.demo.place import place_of
from commitrelay.errors import StoreError
from commitrelay.outbox import Outbox
from commitrelay.sql import Names
from commitrelay.urls import scrub

ENVELOPE_BYTES = 34
"""What a payload holds beside its filling."""


class Ground:
    """One database, and this run's tables in it."""

    def __init__(self, url: str, name: str) -> None:
        self.place = place_of(url, name)
        self.dialect = registry.dialect_of(url)
        self.names = self.place.names
        self.url = self.place.url
        self.outbox = Outbox(schema=self.names.schema, prefix=self.names.prefix)

    def prepare(self) -> None:
        """Connect, and make room for the outbox."""
        self.place.prepare()

    def create(self) -> None:
        asyncio.run(initialise(registry.database(self.url, self.names)))
        self.place.create_orders()

    def remove(self) -> None:
        self.place.remove()

    @property
    def version(self) -> str:
        return str(self.run("version")[0][0])

    def fill(
        self, events: int, *, keys: int, payload_bytes: int, aggregate_type: str = "Order"
    ) -> None:
        """Add a backlog, in one transaction."""
        filling = secrets.token_hex(payload_bytes)[: max(0, payload_bytes - ENVELOPE_BYTES)]
        if events:
            self.run(
                "fill", events=events, keys=keys, filling=filling, aggregate_type=aggregate_type
            )

    def clear(self) -> None:
        """As after `create`."""
        self.run("clear")

    @property
    def is_drained(self) -> bool:
        return not self.run("pending")[0][0]

    def publish(self) -> None:
        """Turn all that is pending into history."""
        self.run("publish")

    def park(self) -> None:
        """Let the first event be dead, and all others wait behind it."""
        self.run("park")

    def add_lanes(self, names: list[str]) -> None:
        async def add() -> None:
            store = registry.database(self.url, self.names)
            await store.open()
            try:
                for name in names:
                    await store.add_lane(name)
            finally:
                await store.close()

        asyncio.run(add())

    def calm(self) -> None:
        """Let the database do now what it would do in the middle of a measurement."""
        with contextlib.suppress(StoreError):  # a checkpoint needs rights that not everybody has
            self.run("calm")

    def wal_bytes(self) -> int | None:
        """How much write-ahead log there has been; None where the database does not tell."""
        return int(self.run("wal")[0][0]) if has_script(self.dialect, "wal") else None

    def run(self, script: str, **values: Any) -> list[Any]:
        """The statements of a script, one by one; the rows of the last."""
        rows: list[Any] = []
        with self._connection() as connection:
            cursor = connection.cursor()
            try:
                for statement in statements(self.dialect, self.names, script):
                    cursor.execute(statement, values)
                    rows = list(cursor.fetchall()) if cursor.description else []
            except Exception as error:
                text = scrub(" ".join(str(error).split()))
                raise StoreError(f"{script} failed on {self.place.title}: {text}") from error
        return rows

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        connection = self.place.connect()
        match self.dialect:
            case "postgres":
                connection.autocommit = True
            case "mysql":
                connection.autocommit(True)
            case _:
                connection.isolation_level = None
        try:
            yield connection
        finally:
            connection.close()


def has_script(dialect: str, name: str) -> bool:
    return Path(__file__).with_name(dialect).joinpath(f"{name}.sql").exists()


def script(dialect: str, names: Names, name: str) -> str:
    """The text of a file in one of the folders beside this one, with the tables' names."""
    text = Path(__file__).with_name(dialect).joinpath(f"{name}.sql").read_text("utf-8")
    return names.fill(text, dialect).strip()


def statements(dialect: str, names: Names, name: str) -> list[str]:
    parts = script(dialect, names, name).split(";\n")
    return [part.removesuffix(";") for part in parts if part.strip()]
