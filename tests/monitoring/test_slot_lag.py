"""The alert of a replication slot that nobody reads, on a server with real ones."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.acceptance.cli import start, succeed

CREATE = {
    "physical": "SELECT pg_create_physical_replication_slot('forgotten', true)",
    "logical": "SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')",
}
WRITE_THREE_MEGABYTES = "SELECT pg_logical_emit_message(false, 'test', repeat('x', 3000000))"


@contextmanager
def relay(url: str, topics: Path) -> Iterator[subprocess.Popen[str]]:
    process = start(
        "run",
        COMMITRELAY_DATABASE=url,
        COMMITRELAY_PUBLISH=f"file://{topics}",
        COMMITRELAY_ALERT_SLOT_LAG="2MB",
        COMMITRELAY_ALERT_INTERVAL="100ms",
        COMMITRELAY_METRICS_LISTEN="none",
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def next_alert(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line about an alert; the test's own time limit ends the waiting."""
    assert process.stderr is not None
    for text in process.stderr:
        line: dict[str, Any] = json.loads(text)
        if "alert" in line:
            return line
    raise AssertionError("the relay has ended")


def test_a_slot_without_a_reader_is_told_until_it_is_dropped(
    dedicated_server: Any, tmp_path: Path
) -> None:
    url = dedicated_server("postgres").url
    succeed("init", "--database", url)
    with psycopg.connect(url, autocommit=True) as connection, relay(url, tmp_path) as process:
        for create in CREATE.values():
            connection.execute(create.encode())
            connection.execute(WRITE_THREE_MEGABYTES)
            raised = next_alert(process)
            assert (raised["alert"], raised["status"]) == ("slot_lag", "raised")
            assert "for the replication slot forgotten, limit 2" in raised["message"]
            connection.execute("SELECT pg_drop_replication_slot('forgotten')")
            cleared = next_alert(process)
            assert (cleared["alert"], cleared["status"]) == ("slot_lag", "cleared")
            assert cleared["incident"] == raised["incident"]
