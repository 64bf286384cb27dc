"""ConsumerOptions: how a consumer works. ConsumerStats: what it has done. Health: how it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from commitrelay.errors import ConfigError
from commitrelay.format.reading import FormatName
from commitrelay.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer works. The defaults are safe.

    ``on_failure`` None means dead_letter if there is a destination for it, else stop.
    """

    concurrency: int = 10  # events that are handled at the same time, of different keys
    window: int = 1000  # events in hand that are not handled yet: back-pressure begins there
    max_unacknowledged: int = 100_000  # handled events that wait for an earlier one
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_failure: Literal["dead_letter", "stop"] | None = None
    unhandled: Literal["skip", "fail"] = "skip"
    format: FormatName = "auto"
    wait_seconds: float = 0.5  # for a read that finds nothing
    ack_seconds: float = 0.02  # between acknowledgements, so that many go as one
    revoke_seconds: float = 10.0  # for handlers that run when their partition is taken away
    stop_seconds: float = 30.0  # for handlers that run when the consumer is stopped
    deaths_to_suspect: int = 2  # readers of a partition that died in a row: handle with care
    starts_to_set_aside: int = 3  # careful starts that never ended: the event kills its reader
    inbox_retention_seconds: float | None = 30 * 86400.0  # None: leave the purge to others
    report_seconds: float = 60.0  # between log lines about what was done
    until: Literal["stopped", "idle"] = "stopped"  # idle: ends when all there is was handled

    def __post_init__(self) -> None:
        for name in (
            "concurrency",
            "window",
            "max_unacknowledged",
            "wait_seconds",
            "stop_seconds",
            "revoke_seconds",
            "deaths_to_suspect",
            "starts_to_set_aside",
            "report_seconds",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0, not {getattr(self, name)}")

    @property
    def longest_delay_seconds(self) -> float:
        """Between the attempts at an event that stops its key."""
        return max((1.0, *self.retry.delays_seconds))


@dataclass(slots=True)
class ConsumerStats:
    """What a consumer has done since it started, and what it has in hand."""

    handled: int = 0
    duplicates: int = 0
    skipped: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    in_hand: int = 0
    lag: int | None = None  # as of the last report


@dataclass(frozen=True, slots=True)
class StoppedKey:
    """A key that stands still, and the event that it stands still for."""

    aggregate_type: str
    aggregate_id: str
    event_id: str
    event_type: str
    topic: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Health:
    """How a consumer is at this moment."""

    running: bool
    database_answers: bool
    last_error: str | None
    last_error_at: datetime | None
    stopped: Sequence[StoppedKey]
    oldest_in_hand_seconds: float

    @property
    def ready(self) -> bool:
        return self.running and self.database_answers
