"""Does the broker of every lane answer?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient
from commitrelay.errors import CommitrelayError


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    for lane in patient.lanes:
        if lane.scheme not in NETWORKED:
            continue
        publisher = lane.publisher()
        try:
            await publisher.open()
        except CommitrelayError as error:
            findings.append(
                Finding(
                    f"lane {lane.name}: {error}",
                    "start it, or correct the publish URL; the relay waits meanwhile",
                )
            )
        finally:
            await publisher.close()
    return findings


NETWORKED = ("kafka", "amqp", "amqps", "nats", "redis", "rediss", "sqs", "sns")
CHECK = Check("broker", "brokers answer", examine, brokers=NETWORKED)
