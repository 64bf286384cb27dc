"""Examination: all checks that make sense on a patient, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commitrelay.doctor import (
    autovacuum,
    binlog,
    bloat,
    broker,
    busy,
    clock,
    duplicate_window,
    encryption,
    exchanges,
    isolation,
    lease,
    long_transactions,
    parts,
    pooler,
    relays,
    replication_slots,
    topics,
    wal,
)
from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient
from commitrelay.errors import CommitrelayError

CHECKS: tuple[Check, ...] = tuple(
    module.CHECK
    for module in (
        *(parts, isolation, pooler, autovacuum, bloat, long_transactions, clock),
        *(replication_slots, binlog, wal, busy, encryption),
        *(relays, lease, broker, topics, exchanges, duplicate_window),
    )
)


@dataclass(frozen=True, slots=True)
class Report:
    """What one check has found; `unknown` says why it could not look."""

    check: Check
    findings: Sequence[Finding]
    unknown: str | None = None


async def examine(patient: Patient, checks: Sequence[Check] = CHECKS) -> list[Report]:
    """Every check that applies. The patient's database is opened and closed."""
    await patient.database.open()
    try:
        return [await _report(check, patient) for check in checks if check.applies(patient)]
    finally:
        await patient.database.close()


async def _report(check: Check, patient: Patient) -> Report:
    try:
        return Report(check, await check.examine(patient))
    except CommitrelayError as error:
        return Report(check, (), str(error))
