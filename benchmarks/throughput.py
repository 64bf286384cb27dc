"""Runs the demo's workload at full speed and prints one line per pair of store and publisher.

PostgreSQL and Kafka run as instances of their own; PostgreSQL with fsync, as in production.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = "15"
SERVICES = [sys.executable, str(Path(__file__).parents[1] / "scripts" / "services")]
COMMITRELAY = str(Path(sys.executable).with_name("commitrelay"))


def services(*arguments: str) -> str:
    return subprocess.check_output([*SERVICES, *arguments], text=True).strip()


def measure(title: str, *options: str) -> None:
    command = [COMMITRELAY, "demo", "--seconds", SECONDS, "--json", *options]
    with tempfile.TemporaryDirectory() as directory:
        result = json.loads(subprocess.check_output(command, cwd=directory))
    print(f"{title:24} {result['events_per_second']:>10,.0f} events/s   lost {result['lost']}")


def main() -> None:
    measure("SQLite → file")
    try:
        services("up", "postgres@bench", "kafka@bench")
        database = services("url", "postgres@bench")
        measure("PostgreSQL → file", "--database", database)
        measure(
            "PostgreSQL → Kafka",
            "--database",
            database,
            "--publish",
            services("url", "kafka@bench"),
        )
    finally:
        services("down", "postgres@bench", "kafka@bench")


if __name__ == "__main__":
    main()
