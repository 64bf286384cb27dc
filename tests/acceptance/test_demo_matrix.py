"""scripts/demo-matrix: a table, an exit code, and no silence about what was not run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli import ROOT, environment

SCRIPT = ROOT / "scripts" / "demo-matrix"
RIGHT = {
    "added": 9, "published": 9, "lost": 0, "duplicates": 0, "out_of_order": 0,
    "delivered_after_rollback": 0, "events_per_second": 3.0, "lag_ms_p50": 1, "lag_ms_p99": 2,
}  # fmt: skip


def matrix(
    *arguments: str, script: Path = SCRIPT, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), "--seconds", "0.5", *arguments],
        env={**environment(), "CI": "", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    loader = SourceFileLoader("demo_matrix", str(SCRIPT))
    spec = spec_from_loader("demo_matrix", loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo_matrix", module)
    loader.exec_module(module)
    return module


def test_it_prints_a_table() -> None:
    done = matrix("--databases", "sqlite", "--brokers", "file")
    assert done.returncode == 0, done.stdout + done.stderr
    heading, row, _, verdict = done.stdout.splitlines()
    cells = dict(zip(heading.split(), row.split(), strict=True))
    assert (cells["database"], cells["broker"]) == ("sqlite", "file")
    assert int(cells["added"]) == int(cells["published"]) > 0
    assert cells["lost"] == cells["duplicates"] == cells["out_of_order"] == "0"
    assert verdict == "1 right, 0 wrong, 0 skipped"


def test_a_server_that_does_not_answer_is_a_failure() -> None:
    url = "kafka://127.0.0.1:1"
    done = matrix("--databases", "sqlite", "--brokers", "kafka", COMMITRELAY_KAFKA_URL=url)
    assert done.returncode == 1
    assert "*** FAILED: commitrelay: " in done.stdout


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_server_that_is_not_here_is_skipped_loudly(tmp_path: Path, ci: str, code: int) -> None:
    """And in CI, where all are, it is a failure. In a clone of its own, no server was started."""
    shutil.copytree(SCRIPT.parent, tmp_path / "scripts")
    clone = tmp_path / "scripts" / "demo-matrix"
    done = matrix("--databases", "sqlite", "--brokers", "nats", script=clone, CI=ci)
    assert done.returncode == code, done.stdout + done.stderr
    assert "*** SKIPPED: " in done.stdout
    assert "0 right, 0 wrong, 1 skipped" in done.stdout


@pytest.mark.parametrize("name", ["lost", "duplicates", "out_of_order", "delivered_after_rollback"])
def test_whatever_must_be_zero_and_is_not_is_wrong(script: Any, name: str) -> None:
    assert script.Cell("sqlite", "file", RIGHT).ok
    cell = script.Cell("sqlite", "file", {**RIGHT, name: 1})
    assert not cell.ok
    assert f"*** {name}" in script.line(cell)


def test_a_demo_that_did_nothing_is_wrong(script: Any) -> None:
    assert not script.Cell("sqlite", "file", {**RIGHT, "added": 0}).ok
