"""Can the server write READ COMMITTED transactions to its binary log?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient


async def examine(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask("binlog")
    values = {row["variable_name"].lower(): str(row["value"]).upper() for row in rows}
    if values.get("log_bin") not in ("ON", "1") or values.get("binlog_format") != "STATEMENT":
        return []
    return [
        Finding(
            "the binary log is written by statement: the server refuses what a relay writes "
            "at READ COMMITTED",
            "SET GLOBAL binlog_format = 'ROW' (or MIXED), also in the server's file",
        )
    ]


CHECK = Check("binlog", "the binary log takes what relays write", examine, ("mysql",))
