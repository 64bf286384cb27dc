"""Read: an event as a message tells it. Headers: those of a message, whatever their case."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, overload

from commitrelay.errors import InvalidEvent


class Read(NamedTuple):
    """What a message says about its event. A tuple, because there are many."""

    id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    payload: bytes
    content_type: str  # "" if the message does not say
    headers: dict[str, str]  # the user's own
    created_at: str | None
    idempotency_key: str | None


class Headers:
    """Looked up in lower case; of several with one name the first counts."""

    __slots__ = ("_by_name", "_pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = [*pairs]
        self._by_name: dict[str, str] = {}
        for name, value in self._pairs:
            self._by_name.setdefault(name.lower(), value)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @overload
    def get(self, name: str) -> str | None: ...
    @overload
    def get(self, name: str, default: str) -> str: ...
    def get(self, name: str, default: str | None = None) -> str | None:
        return self._by_name.get(name, default)

    def required(self, name: str) -> str:
        value = self._by_name.get(name)
        if not value:
            raise InvalidEvent(f"the message has no header {name}, so nobody can tell its event")
        return value

    def first_of(self, names: Iterable[str]) -> str | None:
        return next((self._by_name[name] for name in names if name in self._by_name), None)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Those that start with it, without it."""
        return {
            name[len(prefix) :]: value
            for name, value in self._by_name.items()
            if name.startswith(prefix)
        }

    def without(self, names: Collection[str]) -> dict[str, str]:
        """The others, by the names that they were given."""
        others: dict[str, str] = {}
        for name, value in self._pairs:
            if name.lower() not in names:
                others.setdefault(name, value)
        return others
