"""Does a pooler hand the connection on between transactions?

Two connections that are open at the same time have different server processes, and each keeps its
own: anything else is a pooler in transaction or statement mode.
"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

LOOKS = 5


async def examine(patient: Patient) -> Sequence[Finding]:
    settings = patient.settings.options.get("store", {})
    copes = settings.get("notify") == "off" and settings.get("prepare_threshold") == "off"
    first: set[int] = set()
    second: set[int] = set()
    async with patient.another() as other:
        for _ in range(LOOKS):
            first |= {row["pid"] for row in await patient.ask("session")}
            second |= {row["pid"] for row in await other.facts("session", {})}
    if copes or (len(first) == len(second) == 1 and first != second):
        return []
    return [
        Finding(
            "the connection goes through a pooler that hands sessions on between transactions: "
            "prepared statements, session settings, LISTEN and advisory locks get lost",
            "connect to PostgreSQL directly or to a pool in session mode, or put notify = off and "
            "prepare_threshold = off into [store]",
        )
    ]


CHECK = Check("pooler", "connections keep their sessions", examine, dialects=("postgres",))
