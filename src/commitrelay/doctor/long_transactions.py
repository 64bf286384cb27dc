"""Has a transaction, or its snapshot, been open for too long?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient
from commitrelay.kinds import duration

SHOWN = 5


async def examine(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask("long_transactions", seconds=patient.long_seconds)
    return [_finding(row, patient) for row in rows[:SHOWN]]


def _finding(row: Mapping[str, Any], patient: Patient) -> Finding:
    query = row["query_seconds"]
    since = f", its last statement began {duration(round(query))} ago" if query is not None else ""
    return Finding(
        f"a transaction of {row['account']} ({row['application'] or 'unnamed'}, pid {row['pid']}, "
        f"{row['state']}) has been open for {duration(round(row['seconds']))}{since}: "
        f"{_HARM[patient.dialect]}",
        _remedy(row, patient.dialect),
    )


def _remedy(row: Mapping[str, Any], dialect: str) -> str:
    if row["state"] == "prepared":
        return f"COMMIT PREPARED or ROLLBACK PREPARED '{row['pid']}'"
    end = "SELECT pg_terminate_backend({})" if dialect == "postgres" else "KILL {}"
    return f"let it end, or {end.format(row['pid'])}; set a time-out for idle transactions"


_HARM = {
    "postgres": "vacuum keeps every row that it may still see, and events that it added wait",
    "mysql": "the server keeps every row version that it may still see, and its events wait",
}

CHECK = Check(
    "long-transactions", "no transaction has been open for long", examine, ("postgres", "mysql")
)
