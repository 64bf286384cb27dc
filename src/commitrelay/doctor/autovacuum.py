"""Does vacuum follow the queue, whose rows come and go all the time?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

WANTED = "autovacuum_vacuum_scale_factor=0"


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    table = patient.settings.names.qualified("queue")
    for row in await patient.ask("autovacuum"):
        options = set(row["options"])
        if not row["enabled"]:
            findings.append(
                Finding(
                    "autovacuum is off on this server: every table grows without end",
                    "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()",
                )
            )
        if options & {"autovacuum_enabled=false", "autovacuum_enabled=off"}:
            findings.append(
                Finding(
                    f"autovacuum is off for {table}: dead rows pile up and polls get slower",
                    f"ALTER TABLE {table} RESET (autovacuum_enabled)",
                )
            )
        if WANTED not in options:
            findings.append(
                Finding(
                    f"{table} has lost its autovacuum settings: vacuum waits for a share of the "
                    "table to be dead",
                    f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0, "
                    "autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0)",
                )
            )
    return findings


CHECK = Check("autovacuum", "vacuum follows the queue", examine, ("postgres",))
