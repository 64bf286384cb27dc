"""Does the queue take much more room than what is in it?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

MIN_DEAD = 50_000
ROW_BYTES = 150
MIN_BYTES = 64 * 1024 * 1024
MIN_FREE_SHARE = 0.5


async def examine(patient: Patient) -> Sequence[Finding]:
    if patient.dialect == "sqlite":
        return await _file(patient)
    findings = []
    table = patient.settings.names.qualified("queue")
    for row in await patient.ask("bloat"):
        dead, live = row["dead"], row["live"]
        if dead > max(MIN_DEAD, 2 * live):
            findings.append(
                Finding(
                    f"{table} holds {dead:,} dead rows beside {live:,} live ones: "
                    "every poll steps over them",
                    f"VACUUM {table}; if they stay, end the transaction that still sees them "
                    "(check long-transactions)",
                )
            )
        elif row["bytes"] > max(MIN_BYTES, 10 * ROW_BYTES * (live + dead)):
            findings.append(
                Finding(
                    f"{table} takes {row['bytes'] // 2**20:,} MiB for {live:,} rows",
                    f"VACUUM FULL {table} while no relay runs: it blocks writers meanwhile",
                )
            )
    return findings


async def _file(patient: Patient) -> Sequence[Finding]:
    (row,) = await patient.ask("pages")
    free, size = row["freelist_count"] * row["page_size"], row["page_count"] * row["page_size"]
    if free < MIN_BYTES or free < MIN_FREE_SHARE * size:
        return []
    return [
        Finding(
            f"{free // 2**20:,} of the file's {size // 2**20:,} MiB are empty",
            "run VACUUM when nobody writes, or leave it: new events use the room",
        )
    ]


CHECK = Check(
    "bloat", "the queue takes no more room than it needs", examine, ("postgres", "sqlite")
)
