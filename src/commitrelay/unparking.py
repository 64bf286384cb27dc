"""Unparking: when a relay looks whether events that were parked may go on."""

from __future__ import annotations

from collections.abc import Callable

UNPARK_LIMIT = 5000
"""Events that one look lets go on; if there were as many, the next look is at once."""

FIRST_SECONDS = 0.01
MOST_SECONDS = 1.0
"""After parking something, a relay soon looks whether its key is free; then ever less often."""


class Unparking:
    """Looks are close together while something happens, and take a fifth of the time at most."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due_at = 0.0
        self._pause_seconds = FIRST_SECONDS
        self._look_seconds = 0.0  # that the last look took

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._due_at

    def looked(self, since: float, freed: int) -> None:
        """A look that began at `since` has let so many events go on."""
        self._look_seconds = self._clock() - since
        pause = self._first_pause() if freed else self._pause_seconds
        self._due_at = since if freed == UNPARK_LIMIT else since + pause
        self._pause_seconds = min(2 * pause, MOST_SECONDS)

    def parked(self) -> None:
        """Something was parked: what holds it back may be gone in a moment."""
        self._pause_seconds = self._first_pause()
        self._due_at = min(self._due_at, self._clock() + self._pause_seconds)

    def freed(self) -> None:
        """An event that may have held others back is delivered."""
        self._due_at = 0.0

    def _first_pause(self) -> float:
        return min(max(FIRST_SECONDS, 4 * self._look_seconds), MOST_SECONDS)
