"""Statement: a query of `add.sql` or `inbox.sql` with the placeholders of one driver.

The file has named placeholders, as in ``VALUES (:id, :payload)``. Here they become what the driver
reads: ``%s``, ``?`` or ``$1``. The row of an INSERT is repeated for each event.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import Literal

from commitrelay.conversation import Step, Value
from commitrelay.sql import Names, queries

Dialect = Literal["postgres", "mysql", "sqlite"]
Style = Literal["format", "qmark", "numeric_dollar"]

MAX_CACHED_ROWS = 100
"""Longer statements are built anew each time, so that the cache stays small."""

_ROW = re.compile(r"(?<=VALUES )\([^()]*\)")
_PLACEHOLDER = re.compile(r"(?<!:):[a-z_]+")


def statement(query: str, rows: int, dialect: Dialect, style: Style, names: Names) -> str | None:
    """The text to send for that many rows, or None if the dialect needs no such query."""
    build = _cached if rows <= MAX_CACHED_ROWS else _build
    return build(query, rows, dialect, style, names)


def _build(query: str, rows: int, dialect: Dialect, style: Style, names: Names) -> str | None:
    text = queries(dialect, names).get(query)
    if text is None:
        return None
    repeated = _ROW.sub(lambda row: ", ".join([row[0]] * rows), text)
    if style == "numeric_dollar":
        number = count(1)
        return _PLACEHOLDER.sub(lambda _name: f"${next(number)}", repeated)
    return _PLACEHOLDER.sub("?" if style == "qmark" else "%s", repeated)


_cached = lru_cache(maxsize=256)(_build)


def step(
    query: str, values: Mapping[str, Value], dialect: Dialect, style: Style, names: Names
) -> Step:
    """The text to send, and the values in the order of its placeholders."""
    text = _cached(query, 1, dialect, style, names)
    assert text is not None
    return text, tuple(values[name] for name in _placeholders(query, dialect, names))


@lru_cache(maxsize=256)
def _placeholders(query: str, dialect: Dialect, names: Names) -> tuple[str, ...]:
    found = _PLACEHOLDER.findall(queries(dialect, names)[query])
    return tuple(name.removeprefix(":") for name in found)
