"""SQLite: is the file in WAL mode, and is its write-ahead log moved into it?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

WAL_MODE = b"\x02\x02"
MODE_AT = slice(18, 20)
MAX_PAGES = 10_000


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    if patient.file_header and patient.file_header[MODE_AT] != WAL_MODE:
        findings.append(
            Finding(
                "the file was not in WAL mode: some program has switched it, and readers and "
                "writers held each other up",
                "it is in WAL mode again now; find who says PRAGMA journal_mode, and end that",
            )
        )
    (row,) = await patient.ask("checkpoint")
    waiting = row["log"] - row["checkpointed"]
    if waiting > MAX_PAGES:
        findings.append(
            Finding(
                f"{waiting:,} pages of the write-ahead log cannot be moved into the file: "
                "somebody has been reading from an old snapshot, and the log grows",
                "end the read transaction that some process keeps open (lsof tells which have "
                "the file open)",
            )
        )
    return findings


CHECK = Check("wal", "WAL mode, and its log can be emptied", examine, ("sqlite",))
