"""Runs the real `commitrelay` program, with no settings but those that a test gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "commitrelay")


def environment(**extra: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COMMITRELAY_") and name not in ("DATABASE_URL", "NO_COLOR")
    }
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "default", **extra}


def commitrelay(
    *arguments: str, cwd: Path | None = None, timeout: float = 60, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The finished program: returncode, stdout, stderr."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd or "/",
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def start(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen[str]:
    """The running program; its log is on stderr."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=cwd or "/",
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def succeed(*arguments: str, **options: Any) -> str:
    """Its output; fails the test unless it exits with 0 and complains of nothing."""
    done = commitrelay(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(*arguments: str, **options: Any) -> Any:
    return json.loads(succeed(*arguments, "--json", **options))


def the_error(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line on stderr; fails the test if there is more, or another exit code."""
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stderr.startswith("commitrelay: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.removeprefix("commitrelay: ").rstrip("\n")
