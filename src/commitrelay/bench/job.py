"""Job: what one process of the benchmark does. Result: what it reports. Both travel as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

Role = Literal["bare", "relay", "write"]


@dataclass(frozen=True, slots=True)
class Job:
    role: Role
    database: str
    schema: str | None
    prefix: str
    publish: str = ""
    topic: str = ""
    order: Literal["strict", "relaxed"] = "strict"
    strategy: Literal["partitioned", "leader"] = "partitioned"
    publisher_options: dict[str, str] = field(default_factory=dict)
    lanes: tuple[str, ...] = ("default",)
    batch_size: int = 1000
    window: int = 8
    poll_seconds: float = 0.1
    deliveries: int | None = None  # stop after so many; None: when told to
    notes_every_event: bool = False  # when each was committed or acknowledged, not one in 16
    counts_statements: bool = False
    # for writers
    writers: int = 1
    events_per_second: float = 0.0  # 0: as many as they can
    events_per_transaction: int = 1
    keys: int = 10_000
    payload_bytes: int = 1000

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "lanes": tuple(values["lanes"])})


@dataclass(slots=True)
class Result:
    """Times are of the machine's monotonic clock, which all processes share."""

    events: int = 0
    began_at: float = 0.0  # the first event was handed to the broker, or the first one written
    ended_at: float = 0.0  # the last one was settled, or committed
    cpu_seconds: float = 0.0  # of the process from then to then
    whole_cpu_seconds: float = 0.0  # since it was told to start
    peak_memory_bytes: int = 0
    timeline: list[tuple[float, int]] = field(default_factory=list)  # when, how many events
    statement_line: list[tuple[float, int]] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)  # event id → committed, acknowledged

    @property
    def seconds(self) -> float:
        return self.ended_at - self.began_at

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values: dict[str, Any] = json.loads(text)
        for line in ("timeline", "statement_line"):
            values[line] = [(at, count) for at, count in values[line]]
        return cls(**values)
