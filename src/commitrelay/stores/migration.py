"""The numbered migrations that ship with a dialect's store: forward only, applied in order."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from commitrelay.sql import read


class Migration(NamedTuple):
    number: int
    name: str  # the file's name without its ending: 0001_initial
    sql: str  # with @noun in place of the table names


@lru_cache(maxsize=8)
def migrations(dialect: str) -> tuple[Migration, ...]:
    """All migrations of a dialect, lowest number first."""
    folder = files("commitrelay.stores").joinpath(dialect, "migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(
        Migration(int(name[:4]), name.removesuffix(".sql"), read(dialect, f"migrations/{name}"))
        for name in names
    )


def latest(dialect: str) -> int:
    """The number of the schema that this version of commitrelay works with."""
    return migrations(dialect)[-1].number
