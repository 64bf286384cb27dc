"""Does a replication slot keep the server from removing its write-ahead log?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

MAX_BYTES = 1024**3


async def examine(patient: Patient) -> Sequence[Finding]:
    return [
        _lost(row["name"]) if row["status"] == "lost" else _keeps(row)
        for row in await patient.ask("replication_slots")
        if not row["active"] or row["bytes"] >= MAX_BYTES or row["status"] in ("unreserved", "lost")
    ]


def _keeps(row: Mapping[str, Any]) -> Finding:
    state = "is read slowly" if row["active"] else "has no reader"
    return Finding(
        f"replication slot {row['name']} {state} and keeps "
        f"{row['bytes'] / 2**20:,.0f} MiB of WAL: the disk fills up",
        f"start its reader again, or SELECT pg_drop_replication_slot('{row['name']}'); "
        "max_slot_wal_keep_size is the limit for the future",
    )


def _lost(name: str) -> Finding:
    return Finding(
        f"replication slot {name} is lost: the server has removed WAL that its reader had not read",
        f"SELECT pg_drop_replication_slot('{name}'), and set its reader up anew",
    )


CHECK = Check("replication-slots", "no slot keeps WAL for nobody", examine, ("postgres",))
