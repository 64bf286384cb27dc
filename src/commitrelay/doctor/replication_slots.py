"""Does a replication slot keep the server from removing its write-ahead log?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

MAX_BYTES = 1024**3


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    for row in await patient.ask("replication_slots"):
        lost = row["status"] in ("unreserved", "lost")
        if row["active"] and row["bytes"] < MAX_BYTES and not lost:
            continue
        state = "is read slowly" if row["active"] else "has no reader"
        findings.append(
            Finding(
                f"replication slot {row['name']} {state} and keeps "
                f"{row['bytes'] / 2**20:,.0f} MiB of WAL: the disk fills up",
                f"start its reader again, or SELECT pg_drop_replication_slot('{row['name']}'); "
                "max_slot_wal_keep_size is the limit for the future",
            )
        )
    return findings


CHECK = Check("replication-slots", "no slot keeps WAL for nobody", examine, ("postgres",))
