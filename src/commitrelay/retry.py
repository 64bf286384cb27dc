"""When a refused event is tried again, and when it is dead. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from commitrelay.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The first attempt is immediate; each delay buys one more. Out of delays: dead."""

    delays_seconds: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)
    jitter: float = 0.2  # a delay grows by up to this fraction, so that retries spread out

    def __post_init__(self) -> None:
        if any(delay < 0 for delay in self.delays_seconds):
            raise ConfigError(f"retry delays must not be negative: {self.delays_seconds}")
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"retry jitter must be between 0 and 1, not {self.jitter}")

    @property
    def max_attempts(self) -> int:
        return len(self.delays_seconds) + 1

    def delay_seconds(
        self, failed_attempts: int, random: Random, *, at_least_seconds: float = 0.0
    ) -> float | None:
        """How long to wait after so many failed attempts; None: no more attempts, dead."""
        if failed_attempts >= self.max_attempts:
            return None
        delay = max(self.delays_seconds[failed_attempts - 1], at_least_seconds)
        return delay * (1 + self.jitter * random.random())


class Backoff:
    """Growing pauses between attempts to reach something that does not answer."""

    def __init__(self, random: Random, *, first_seconds: float, most_seconds: float) -> None:
        self._random = random
        self._first = first_seconds
        self._most = most_seconds
        self._next = first_seconds

    def seconds(self) -> float:
        """The pause to make now; the next one is twice as long, up to the limit."""
        pause = self._next
        self._next = min(self._most, pause * 2)
        return pause * (0.8 + 0.4 * self._random.random())

    def reset(self) -> None:
        self._next = self._first
