"""Which isolation level do transactions get that ask for none?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

REMEDIES = {
    "postgres": "ALTER DATABASE … SET default_transaction_isolation = 'read committed'",
    "mysql": "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED, also in the server's file",
}
STRICT = {"postgres": ("repeatable read", "serializable"), "mysql": ("SERIALIZABLE",)}


async def examine(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask("isolation")
    levels = {str(row.get("level") or row.get("value")) for row in rows}
    bad = sorted(levels.intersection(STRICT[patient.dialect]))
    return [
        Finding(
            f"transactions run at {level} by default: writers and relays fail each other with "
            "serialisation errors or wait for each other's locks",
            f"{REMEDIES[patient.dialect]}, and ask for more where you need it",
        )
        for level in bad
    ]


CHECK = Check("isolation", "the default isolation level suits", examine, ("postgres", "mysql"))
