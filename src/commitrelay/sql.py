"""The SQL of a dialect, read from its files: named queries with the table names filled in.

A query in ``stores/<dialect>/queries.sql`` (or ``add.sql``, ``consume.sql``) starts with its name
and a sentence::

    -- claim_pending: deliverable events of the leased buckets, in seq order.
    SELECT … FROM @queue JOIN @event …

``@event``, ``@queue``, … stand for the quoted, schema-qualified names of one outbox.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from commitrelay.errors import ConfigError

QUERY_FILES = (
    *("queries.sql", "add.sql", "inbox.sql", "consume.sql"),
    *("log.sql", "partitions.sql", "doctor.sql", "vitals.sql", "operations.sql"),
)
"""What is run by the relay, the application, its consumers, and those who look after it all."""

_STORES = Path(__file__).with_name("stores")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_HEADING = re.compile(r"^-- (?P<name>[a-z][a-z0-9_]*): ", re.MULTILINE)
_QUOTES = {"mysql": "`"}
_TABLE = re.compile(r"(?P<sign>@@?)(?P<noun>[a-z][a-z_]*)")


@dataclass(frozen=True)
class Names:
    """Where an outbox lives: its schema (None: the connection's default) and table prefix."""

    schema: str | None = None
    prefix: str = "outbox"

    def __post_init__(self) -> None:
        for label, value in (("schema", self.schema), ("table prefix", self.prefix)):
            if value is not None and not _IDENTIFIER.fullmatch(value):
                raise ConfigError(
                    f"{label} {value!r} is not a plain SQL name: use letters, digits and _, "
                    "at most 40, not starting with a digit"
                )

    def bare(self, noun: str) -> str:
        """The unqualified, unquoted name: `outbox_event`; the view is the prefix itself."""
        return self.prefix if noun == "view" else f"{self.prefix}_{noun}"

    def qualified(self, noun: str) -> str:
        """The quoted name to put into a statement."""
        name = f'"{self.bare(noun)}"'
        return name if self.schema is None else f'"{self.schema}".{name}'

    def fill(self, text: str, dialect: str = "") -> str:
        """Replace every `@noun` of `text`; `@@noun` stays unqualified, as names of indexes must."""
        quote = _QUOTES.get(dialect, '"')
        return _TABLE.sub(lambda match: self._filled(match).replace('"', quote), text)

    def _filled(self, match: re.Match[str]) -> str:
        noun = match["noun"]
        return self.qualified(noun) if match["sign"] == "@" else f'"{self.bare(noun)}"'

    @cached_property
    def key(self) -> str:
        """One string that tells this outbox from others in the same database."""
        return f"{self.schema or ''}.{self.prefix}"


def read(dialect: str, path: str) -> str:
    """The text of a file that ships with a dialect's store."""
    return _STORES.joinpath(dialect, path).read_text("utf-8")


@lru_cache(maxsize=32)
def queries(dialect: str, names: Names) -> dict[str, str]:
    """All named queries of a dialect for one outbox."""
    existing = (name for name in QUERY_FILES if _STORES.joinpath(dialect, name).is_file())
    text = "\n".join(read(dialect, name) for name in existing)
    headings = list(_HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    result: dict[str, str] = {}
    for heading, end in zip(headings, ends, strict=True):
        _sentence, _, body = text[heading.start() : end].partition("\n")
        body = "\n".join(line for line in body.splitlines() if not line.startswith("--"))
        result[heading["name"]] = names.fill(body, dialect).strip().rstrip(";")
    return result
