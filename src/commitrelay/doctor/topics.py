"""Is every Kafka topic there that recent events go to?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient


@runtime_checkable
class KnowsTopics(Protocol):
    async def missing_topics(self, topics: Collection[str]) -> Sequence[str]: ...


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    for lane in patient.lanes:
        publisher = lane.publisher()
        if not isinstance(publisher, KnowsTopics):
            continue
        topics = {message.topic for message in await patient.messages(lane)}
        missing = await publisher.missing_topics(topics)
        findings += [
            Finding(
                f"lane {lane.name}: topic {topic} does not exist: its events are refused, "
                "retried, and die",
                "create it, correct topic or [routes], or use ?create_topics=true",
            )
            for topic in missing
        ]
    return findings


CHECK = Check("topics", "the topics of recent events exist", examine, brokers=("kafka",))
