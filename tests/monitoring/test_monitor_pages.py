"""The pages on monitoring name every metric, path, alert and header, as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commitrelay import alerts, dead_letters
from commitrelay.metrics import Metric
from commitrelay.telemetry import Telemetry

ROOT = Path(__file__).resolve().parents[2]
METRICS = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
MONITOR = (ROOT / "docs/how-to/monitor.md").read_text("utf-8")


@pytest.mark.parametrize("metric", Telemetry().metrics, ids=lambda metric: metric.name)
def test_every_metric(metric: Metric) -> None:
    labels = ", ".join(metric.labels)
    assert f"| `{metric.name}` | {metric.kind} | {labels} |" in METRICS


def test_every_alert() -> None:
    sources = Path(alerts.__file__).parent.glob("*.py")
    text = "\n".join(source.read_text("utf-8") for source in sources)
    raised = set(re.findall(r'(?:Finding|_of_lane)\(\s*"([a-z_]+)"', text))
    assert len(raised) == 7
    assert raised == set(re.findall(r"^\| `([a-z_]+)` \|", MONITOR, re.MULTILINE))


def test_every_header_of_a_dead_letter() -> None:
    for name in ("ERROR", "ATTEMPTS", "LANE", "RELAY", "HISTORY"):
        assert f"`{getattr(dead_letters, name)}`" in MONITOR
