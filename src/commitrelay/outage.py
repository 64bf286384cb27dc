"""Outage: something does not answer. Said once, waited for with growing pauses, said when over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

from commitrelay.retry import Backoff

logger = logging.getLogger("commitrelay.relay")


class Outage:
    """The state of one thing that may fail to answer, such as the database."""

    def __init__(
        self,
        what: str,
        *,
        clock: Callable[[], float],
        random: Random,
        first_seconds: float = 0.1,
        most_seconds: float = 5.0,
    ) -> None:
        self._what = what
        self._clock = clock
        self._backoff = Backoff(random, first_seconds=first_seconds, most_seconds=most_seconds)
        self._began: float | None = None

    def goes_on(self, reason: object) -> float:
        """It did not answer; the pause to make before the next attempt, in seconds."""
        if self._began is None:
            self._began = self._clock()
            logger.warning("%s unreachable, waiting for it: %s", self._what, reason)
        return self._backoff.seconds()

    def is_over(self) -> None:
        """It answered."""
        if self._began is None:
            return
        logger.warning("%s is back after %.1f s", self._what, self._clock() - self._began)
        self._began = None
        self._backoff.reset()
