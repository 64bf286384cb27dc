"""Is every index and trigger of the schema there, and at work?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient
from commitrelay.sql import read

# CREATE … INDEX or TRIGGER with its name, or a KEY within a table of MySQL.
_PART = re.compile(
    r"^(?:CREATE (?:OR REPLACE )?(?:UNIQUE )?(?P<kind>INDEX|TRIGGER)(?: IF NOT EXISTS)?"
    r"|\s+(?:UNIQUE )?KEY)\s+(?:[\"`]\w+[\"`]\.)?[\"`](?P<name>\w+)[\"`]",
    re.MULTILINE,
)


async def examine(patient: Patient) -> Sequence[Finding]:
    there = {row["name"]: bool(row["works"]) for row in await patient.ask("parts")}
    by_writer = patient.dialect == "mysql" and await patient.ask("enqueuing")
    findings = []
    for name, kind in _expected(patient).items():
        if there.get(name) or (kind == "trigger" and by_writer):
            continue
        state = "does not work" if name in there else "is missing"
        findings.append(Finding(f"{kind} {name} {state}: {_HARM[kind]}", _remedy(kind, state)))
    return findings


def _expected(patient: Patient) -> dict[str, str]:
    schema = patient.settings.names.fill(read(patient.dialect, "schema.sql"), patient.dialect)
    return {part["name"]: (part["kind"] or "index").lower() for part in _PART.finditer(schema)}


def _remedy(kind: str, state: str) -> str:
    if kind == "trigger" and state == "does not work":
        return "ALTER TABLE … ENABLE TRIGGER; then enqueue by `commitrelay replay` what came since"
    again = "take its statement from `commitrelay sql` and run it"
    if kind == "trigger":
        return f"{again}; then enqueue by `commitrelay replay` what was added since"
    return f"{'drop it, ' if state == 'does not work' else ''}{again}"


_HARM = {
    "index": "what looks there reads the whole table",
    "trigger": "events are added but never delivered",
}

CHECK = Check("parts", "indexes and triggers are there and work", examine)
