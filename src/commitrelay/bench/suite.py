"""Suite: all parts of a plan, measured one after the other, and what may be concluded."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commitrelay import __version__
from commitrelay.bench import add_cost, curve, drain, idle, latency
from commitrelay.bench.drain import Say
from commitrelay.bench.noise import Noise
from commitrelay.bench.plan import PARTS, Plan
from commitrelay.bench.sample import Sample
from commitrelay.bench.site import BARE, Site

MEASURES = {
    "drain": drain.measure,
    "latency": latency.measure,
    "sustained": latency.measure_sustained,
    "add": add_cost.measure,
    "idle": idle.measure,
}
assert MEASURES.keys() == set(PARTS)


def run(plan: Plan, say: Say) -> dict[str, Any]:
    """The report, of plain values and `Sample`s."""
    with Site(plan) as site:
        report: dict[str, Any] = about(site)
        for part in plan.parts:
            report[part] = MEASURES[part](site, say)
        if plan.curves:
            report["curves"] = curve.measure(site, plan.curves, plan.scale, say)
    return {**report, **conclusions(report)}


def about(site: Site) -> dict[str, Any]:
    return {
        "commitrelay": __version__,
        "database": site.ground.version,
        "broker": site.broker,
        "machine": machine(),
        "plan": {
            name: getattr(site.plan, name)
            for name in site.plan.__slots__
            if name not in ("database", "publish")
        },
    }


def machine() -> dict[str, Any]:
    """What it was measured on."""
    return {
        "processors": os.cpu_count(),
        "model": _model(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def conclusions(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the run shows; nothing if it was too noisy."""
    noise = Noise()
    said: dict[str, str] = {}
    for name, found in report.get("drain", {}).items():
        noise.foreign_cores += found["foreign_cores"].values
        if name != BARE:
            share: Sample = found["of_bare_loop"]
            noise.watch(f"drain, {name}, share of the bare loop", share)
            said[f"drain, {name}"] = f"{share.median:.2f} of the bare loop"
    for name, found in report.get("latency", {}).items():
        noise.foreign_cores += found["foreign_cores"].values
        noise.watch(f"latency, {name}, p50", found["p50_ms"])
        said[f"latency, {name}"] = f"{found['p50_ms'].median:.2f} ms (p50)"
    for name, found in report.get("curves", {}).items():
        noise.foreign_cores += found["foreign_cores"].values
        for label, point in found["points"].items():
            for who, sample in point.items():
                noise.watch(f"{name} {label}, {who}", sample)
    if "add" in report:
        extra: Sample = report["add"]["over_insert"]
        whole = Sample.of(
            [1 + value for value in extra.values]
        )  # a share of nearly 0 has no spread
        noise.watch("add, over an INSERT", whole)
        said["add"] = f"{extra.median:+.1%} over an INSERT by hand"
    reasons = noise.reasons()
    return {
        "noise": {"verdict": noise.verdict, "reasons": reasons},
        "conclusions": None if reasons else said,
    }


def as_json(value: Any) -> Any:
    """The report as JSON has it."""
    if isinstance(value, Sample):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, (list, tuple)) else value


def _model() -> str:
    cpus = Path("/proc/cpuinfo")
    for line in cpus.read_text().splitlines() if cpus.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
