"""Does JetStream remember an event for as long as it may be sent again?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient, PatientLane
from commitrelay.kinds import duration
from commitrelay.publisher import Message


@runtime_checkable
class KnowsStreams(Protocol):
    delivery_timeout_seconds: float

    async def duplicate_windows(self, messages: Sequence[Message]) -> Mapping[str, float]: ...


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    for lane in patient.lanes:
        publisher = lane.publisher()
        if not isinstance(publisher, KnowsStreams):
            continue
        span = _span(lane, publisher.delivery_timeout_seconds)
        windows = await publisher.duplicate_windows(await patient.messages(lane))
        findings += [
            Finding(
                f"lane {lane.name}: stream {stream} forgets message ids after {duration(window)}, "
                f"but an event may be sent again up to {duration(span)} later: "
                "it would be stored twice",
                f"nats stream edit {stream} --dupe-window={duration(span)}, "
                "or shorter retry_delays",
            )
            for stream, window in windows.items()
            if window < span
        ]
    return findings


def _span(lane: PatientLane, timeout_seconds: float) -> float:
    """From the first attempt at an event to the end of the last: waits, deliveries, a lease."""
    chosen = lane.settings
    waits = sum(chosen.retry_delays) * (1 + chosen.retry_jitter)
    return round(waits + timeout_seconds * (len(chosen.retry_delays) + 1) + chosen.lease)


CHECK = Check("duplicate-window", "JetStream remembers ids long enough", examine, brokers=("nats",))
