"""Statement: a query of `add.sql` for n rows, with the placeholders of one driver.

The file holds one row of named placeholders, as in ``VALUES (:id, :payload)``. Here it is
repeated for each event and the names become what the driver reads: ``%s``, ``?`` or ``$1``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count
from typing import Literal

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
