"""SQLite: can we write, or does somebody hold the lock?"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient

WAIT_SECONDS = 1.0


async def examine(patient: Patient) -> Sequence[Finding]:
    path = patient.url.removeprefix("sqlite:///")
    if await asyncio.to_thread(_can_write, path):
        return []
    return [
        Finding(
            f"a process has held the write lock of {path} for more than {WAIT_SECONDS:g} s: "
            "writers and relays wait, and give up",
            "commit sooner: no transaction may be open while something slow is done",
        )
    ]


def _can_write(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


CHECK = Check("busy", "the write lock is free", examine, ("sqlite",))
