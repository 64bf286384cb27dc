"""Is every exchange or queue of RabbitMQ there, and does it route what it gets?

Whether an exchange routes a message is only known when it gets one, and doctor sends none: it looks
at what the broker returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient, PatientLane
from commitrelay.publisher import Message
from commitrelay.store import EventFilter

RETURNED = ("to no queue: bind one", "returned it (routing key")
SAMPLE = 200


@runtime_checkable
class KnowsPlaces(Protocol):
    async def missing_places(self, messages: Sequence[Message]) -> Sequence[str]: ...


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    for lane in patient.lanes:
        publisher = lane.publisher()
        if not isinstance(publisher, KnowsPlaces):
            continue
        missing = await publisher.missing_places(await patient.messages(lane))
        findings += [
            Finding(
                f"lane {lane.name}: {problem}",
                "create and bind it, correct the exchange, or use ?declare=quorum",
            )
            for problem in missing
        ]
        findings += await _returned(patient, lane)
    return findings


async def _returned(patient: Patient, lane: PatientLane) -> list[Finding]:
    errors: set[str] = set()
    for status in ("retrying", "dead"):
        where = EventFilter(status=status, lane=lane.name)
        for event in await patient.database.list_events(where, before_seq=None, limit=SAMPLE):
            errors |= {
                story.last_error
                for story in event.deliveries
                if story.lane == lane.name and story.last_error
            }
    return [
        Finding(
            f"lane {lane.name}: the broker returned events: {error}",
            "bind a queue for that routing key; `commitrelay retry` then sends what is dead",
        )
        for error in sorted(errors)
        if any(part in error for part in RETURNED)
    ]


CHECK = Check("exchanges", "exchanges exist and route", examine, brokers=("amqp", "amqps"))
