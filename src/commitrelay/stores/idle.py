"""Idle: connections between two uses. The last one given back is the first one taken."""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")


class Idle(Generic[C]):
    """As many as were ever in use at the same time; safe from several threads."""

    def __init__(self) -> None:
        self._connections: list[C] = []
        self.closed = False

    def take(self) -> C | None:
        try:
            return self._connections.pop()
        except IndexError:
            return None

    def give(self, connection: C) -> bool:
        """Keep it for later; False if it is to be closed instead."""
        if not self.closed:
            self._connections.append(connection)
        return not self.closed

    def take_all(self) -> list[C]:
        """All that there are, to be closed: their server may have gone away."""
        taken, self._connections = self._connections, []
        return taken
