"""Place: the database that an order service works on, with tables of its own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from commitrelay.registry import dialect_of
from commitrelay.sql import Names


class Place(Protocol):
    """One database, and the names of this run's tables in it."""

    url: str
    names: Names
    title: str

    def connect(self) -> Any:
        """A connection for one writer: any that `Outbox.add` takes."""

    def advance(self, connection: Any, order: int, status: str) -> int:
        """Change an order, which locks it until commit; its new version."""

    def prepare(self) -> None:
        """Before the outbox is created."""

    def create_orders(self) -> None: ...

    def remove(self) -> None:
        """Drop whatever this run has created."""


def place_of(url: str, name: str) -> Place:
    """The place for a database URL; `name` keeps it apart from other runs and other tables.

    It is made by `from_url(url, name)` of the module `<dialect>_place` beside this one.
    """
    module = import_module(f"commitrelay.demo.{dialect_of(url)}_place")
    return cast(Place, module.from_url(url, name))


def script(path: str) -> str:
    """The text of a file in one of the folders beside this one."""
    return Path(__file__).parent.joinpath(path).read_text("utf-8")
