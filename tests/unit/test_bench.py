"""What the benchmark concludes from its figures, and how it draws them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from commitrelay.bench import pictures, usage
from commitrelay.bench.job import Job, Result
from commitrelay.bench.noise import Noise
from commitrelay.bench.plot import Line, Plot, number, ticks
from commitrelay.bench.sample import Sample, percentile, ratio
from commitrelay.bench.suite import as_json, conclusions

STEADY = Sample.of([10.0, 10.5, 11.0])
SPREAD = Sample.of([10.0, 20.0, 30.0])


@pytest.mark.parametrize(
    ("values", "steady"),
    [([10, 10.5, 11], True), ([10, 10.5], False), ([10, 11, 20], False), ([10], False)],
)
def test_a_figure_is_steady_if_enough_rounds_agree(values: Sequence[float], steady: bool) -> None:
    assert Sample.of(values).is_steady is steady


def test_medians_spread_and_ratios_by_round() -> None:
    assert SPREAD.median == 20
    assert SPREAD.spread == 1.0
    assert Sample.of([5]).spread is None
    assert Sample.of([9, 10, 11, 10, 99]).spread == pytest.approx(0.1)  # one bad round of five
    assert ratio(Sample.of([10, 40]), Sample.of([20, 40])).values == (0.5, 1.0)
    assert percentile([5, 1, 4, 2, 3], 0.5) == 3
    assert percentile([], 0.5) == 0
    assert STEADY.to_json() == {
        "median": 10.5, "spread": 0.095, "steady": True, "values": [10.0, 10.5, 11.0],
    }  # fmt: skip


def drained(share: Sample, foreign: float = 0.0) -> dict[str, object]:
    of_others = {"foreign_cores": Sample.of([foreign] * 3)}
    return {
        "drain": {
            "bare loop": {"of_bare_loop": Sample.of([1, 1, 1]), **of_others},
            "strict": {"of_bare_loop": share, **of_others},
        }
    }


def test_a_quiet_run_concludes() -> None:
    found = conclusions(drained(Sample.of([0.70, 0.72, 0.71])))
    assert found["noise"] == {"verdict": "quiet", "reasons": []}
    assert found["conclusions"] == {"drain, strict": "0.71 of the bare loop"}


@pytest.mark.parametrize(
    ("share", "foreign", "reason"),
    [
        (Sample.of([0.5, 0.7, 0.9]), 0.0, "varies by 57%"),
        (Sample.of([0.7, 0.7]), 0.0, "2 round(s), at least 3"),
        (Sample.of([0.7, 0.7, 0.7]), 0.5, "other processes used 0.50 of"),
    ],
)
def test_a_noisy_run_concludes_nothing(share: Sample, foreign: float, reason: str) -> None:
    found = conclusions(drained(share, foreign))
    assert found["conclusions"] is None
    assert found["noise"]["verdict"] == "too noisy to conclude"
    assert any(reason in each for each in found["noise"]["reasons"]), found


def test_a_part_that_was_not_measured_is_no_noise() -> None:
    assert Noise().verdict == "quiet"


def test_jobs_and_results_travel() -> None:
    job = Job("relay", "sqlite:///x", None, "outbox", lanes=("a", "b"))
    assert Job.from_json(job.to_json()) == job
    result = Result(events=10, began_at=1.0, ended_at=3.0, timeline=[(1.0, 5)])
    assert Result.from_json(result.to_json()) == result
    assert result.events_per_second == 5


def test_plots_are_well_formed_and_escaped() -> None:
    lines = [
        Line("a <b> & c", [(1, 5), (10, 7)], [(4, 6), (6, 9)]),
        Line("nothing", []),
        Line("one", [(3, 3)]),
    ]
    for log_x in (False, True):
        root = ElementTree.fromstring(Plot("T", "x", "y", lines, log_x=log_x).svg())
        texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"T", "x", "y", "a <b> & c", "one"} <= set(texts)
    ElementTree.fromstring(Plot("empty", "x", "y", []).svg())


def test_ticks_and_numbers_are_round() -> None:
    assert ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert [number(each) for each in (0, 950, 1500, 2_000_000)] == ["0", "950", "1.5k", "2M"]


def test_rates_and_distributions() -> None:
    timeline = [(-0.1, 0), (0.0, 0), (0.1, 50), (0.3, 300), (0.5, 300), (0.6, 600)]
    assert pictures.rates(timeline) == [(0.15, 1000.0), (pytest.approx(0.45), pytest.approx(1000))]
    assert pictures.distribution([3.0, 1.0]) == [(1.0, 50.0), (3.0, 100.0)]


def test_json_has_plain_values() -> None:
    assert as_json({"a": [STEADY], "b": (1, "x", None)}) == {
        "a": [STEADY.to_json()],
        "b": [1, "x", None],
    }


@pytest.mark.skipif(not usage.is_known(), reason="only Linux tells")
def test_the_cpu_time_of_a_process_and_its_children() -> None:
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    before = usage.cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert usage.cpu_seconds(os.getpid()) - before >= 0.25
    assert usage.busy_seconds() > 0
    assert usage.cpu_seconds(None) == 0


@pytest.mark.skipif(not usage.is_known(), reason="only Linux tells")
def test_a_server_is_found_by_its_port() -> None:
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        deadline = time.monotonic() + 10
        while usage.server_pid(f"redis://127.0.0.1:{port}") is None:
            assert time.monotonic() < deadline
        server.kill()
    assert usage.server_pid("redis://example.invalid:1") is None
