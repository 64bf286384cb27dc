"""RelayOptions: how a relay delivers. RelayStats: what it has done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from commitrelay.errors import ConfigError
from commitrelay.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """How a relay delivers. The defaults are safe and fast."""

    lane: str = "default"
    strategy: Literal["partitioned", "leader", "competing"] = "partitioned"
    order: Literal["strict", "relaxed"] = "strict"
    on_dead: Literal["block", "skip"] = "block"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    batch_size: int = 1000
    window: int = 8  # batches at the broker at a time
    poll_seconds: float = 0.1
    lease_seconds: float = 30.0
    until: Literal["stopped", "once", "drained"] = "stopped"
    retention_seconds: float | None = 7 * 86400.0  # None: published events are kept for ever
    inbox_retention_seconds: float | None = 30 * 86400.0  # None: marks are kept for ever

    def __post_init__(self) -> None:
        for name in ("batch_size", "window", "poll_seconds", "lease_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0, not {getattr(self, name)}")
        check_retentions(self.retention_seconds, self.inbox_retention_seconds)


def check_retentions(events: float | None, marks: float | None) -> None:
    """An event must not be delivered again when its mark is gone."""
    if events is not None and marks is not None and marks <= events:
        raise ConfigError(
            f"inbox_retention ({marks / 86400:g} days) is not longer than retention "
            f"({events / 86400:g} days): an event that is replayed would be handled twice; "
            "make it longer"
        )


@dataclass(slots=True)
class RelayStats:
    """What a relay has done since it started."""

    published: int = 0
    refused: int = 0
    retried: int = 0
    dead: int = 0
    unreachable: int = 0
    lease_lost: int = 0
    in_flight: int = 0
