"""`commitrelay bench`: how fast it is here, beside a bare loop on the same drivers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitrelay import logs
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.output import print_json, table
from commitrelay.cli.signals import interrupting
from commitrelay.cli.style import BOLD, DIM, GREEN, YELLOW, Style
from commitrelay.kinds import Choice, Integer, Listing, Number, Text

if TYPE_CHECKING:
    from commitrelay.bench.sample import Sample

PARTS = ("drain", "latency", "sustained", "add", "idle")


def run(request: Request) -> int:
    from commitrelay.bench import pictures, suite  # noqa: PLC0415
    from commitrelay.bench.curve import checked  # noqa: PLC0415
    from commitrelay.bench.plan import Plan  # noqa: PLC0415

    options = request.options
    curves = checked(options["curve"])
    plan = Plan(
        database=options["database"],
        publish=options["publish"],
        parts=options["parts"] or (() if curves else PARTS),
        events=options["events"],
        keys=options["keys"],
        payload_bytes=options["payload"],
        rounds=options["rounds"],
        seconds=options["seconds"],
        events_per_second=options["rate"],
        writers=options["writers"],
        batch_size=options["batch_size"],
        window=options["window"],
        curves=curves,
        scale=options["scale"],
    )
    logs.set_up("warning", "auto")
    with _interruptible():
        report = suite.run(plan, _say)
    written = pictures.save(report, Path(options["plots"])) if options["plots"] else []
    if request.json:
        print_json(suite.as_json(report))
    else:
        print(text(report))
        for path in written:
            print(f"Plot: {path}")
    return OK


def text(report: Mapping[str, Any]) -> str:
    """The report for people."""
    machine = report["machine"]
    parts = [
        f"{report['database']} to {report['broker']}; {machine['processors']} processors "
        f"({machine['model']}), {machine['memory_gb']:g} GB, Python {machine['python']}",
        "Medians of the rounds; ± is how far they lie apart.",
    ]
    for name, rows in _tables(report):
        columns, *cells = rows
        parts.append(f"{Style()(name, BOLD)}\n{table(columns, cells)}")
    return "\n\n".join([*parts, _verdict(report)])


def _tables(report: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    if "drain" in report:
        yield "Draining a backlog", _drain(report["drain"])
    for part, title in (
        ("latency", "Commit to acknowledgement at a fixed rate"),
        ("sustained", "Writers and relay side by side"),
    ):
        if part in report:
            yield title, _lags(report[part])
    if "add" in report:
        yield "A transaction of one row", _add(report["add"])
    if "idle" in report:
        rate = report["idle"]["queries_per_second"]
        yield "Nothing to do", [("", "queries/s"), ("relay", _shown(rate, "{:.1f}"))]
    for name, curve in report.get("curves", {}).items():
        subjects = list(next(iter(curve["points"].values())))
        rows = [
            (label, *(_shown(point[who], "{:,.0f}") if who in point else "" for who in subjects))
            for label, point in curve["points"].items()
        ]
        yield f"Events/s by {name}", [(name, *subjects), *rows]


def _drain(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    users = next(iter(found.values()))["cpu_us_per_event"]
    columns = ["", "events/s", "of bare", *(f"{user} µs/event" for user in users), "peak MB"]
    has_wal = "wal_bytes_per_event" in next(iter(found.values()))
    rows = []
    for name, each in found.items():
        row = [
            name,
            _shown(each["events_per_second"], "{:,.0f}"),
            _shown(each["of_bare_loop"], "{:.2f}"),
            *(_shown(each["cpu_us_per_event"][user], "{:.1f}") for user in users),
            _shown(each["peak_memory_mb"], "{:.0f}"),
        ]
        if has_wal:
            wal = each["wal_bytes_per_event"]
            row.append(f"{wal['add'].median:,.0f} + {wal['deliver'].median:,.0f}")
        rows.append(tuple(row))
    return [(*columns, *(("WAL bytes/event",) if has_wal else ())), *rows]


def _lags(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rates = [name for name in next(iter(found.values())) if name.endswith("_per_second")]
    rows = [
        (
            name,
            *(_shown(each[rate], "{:,.0f}") for rate in rates),
            _shown(each["p50_ms"], "{:.2f}"),
            _shown(each["p99_ms"], "{:.2f}"),
        )
        for name, each in found.items()
    ]
    shown = [f"{rate.removesuffix('_per_second')}/s" for rate in rates]
    return [("", *shown, "p50 ms", "p99 ms"), *rows]


def _add(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    used = found["cpu_us_per_transaction"]
    rows = [
        (name, _shown(each, "{:.0f}"), _shown(used[name], "{:.0f}"))
        for name, each in found["us_per_transaction"].items()
    ]
    over = found["over_insert"]
    return [
        ("", "µs", "client's CPU µs"),
        *rows,
        ("Outbox.add over INSERT", f"{over.median:+.1%}", ""),
    ]


def _shown(sample: Sample, form: str) -> str:
    spread = "" if sample.spread is None else f" ±{sample.spread:.0%}"
    return form.format(sample.median) + spread


def _verdict(report: Mapping[str, Any]) -> str:
    style = Style()
    if report["conclusions"] is None:
        reasons = (f"  {reason}" for reason in report["noise"]["reasons"])
        return "\n".join([style("Too noisy to conclude anything:", BOLD, YELLOW), *reasons])
    said = (f"  {what}: {result}" for what, result in report["conclusions"].items())
    return "\n".join([style("Quiet enough to conclude:", BOLD, GREEN), *said])


def _say(line: str) -> None:
    print(Style(sys.stderr)(line, DIM), file=sys.stderr, flush=True)


def _interruptible() -> AbstractContextManager[None]:
    """The first Ctrl-C or SIGTERM cleans up, the third one gives that up."""
    signals = 0

    def handle() -> None:
        nonlocal signals
        signals += 1
        if signals == 2:
            _say("cleaning up; once more to leave tables and topics behind")
        else:
            raise KeyboardInterrupt

    return interrupting(handle)


COMMAND = Command(
    name="bench",
    summary="Measure how fast it is here, beside a bare loop.",
    description="""
        Measures on your own database and broker: a bare loop on the same drivers that promises
        nothing, and the relay with all its promises, in turns, several times. How fast a backlog
        is delivered, at what cost of processor, memory and write-ahead log; how long an event
        takes from commit to acknowledgement, at a fixed rate and under load; what Outbox.add
        costs; what an idle relay asks of the database.

        Every figure is a median with its spread. If other programs were busy meanwhile, or the
        rounds lie too far apart, it says so and concludes nothing. On SQLite and files by default.
        It works in tables and topics of its own, removes them at the end, also after Ctrl-C, and
        reads no settings.
    """,
    run=run,
    options=(
        Option(
            "--database",
            "Measure this database: postgresql://…, mysql://… or sqlite:///….",
            Text("URL"),
        ),
        Option(
            "--publish",
            "Publish there: kafka://…, amqp://…, nats://…, redis://… or file:///….",
            Text("URL"),
        ),
        Option(
            "--parts",
            "Measure only these: drain, latency, sustained, add, idle; default: all.",
            Listing(Choice(PARTS), "PART,…"),
            default=(),
            default_text="",
        ),
        Option("--rounds", "How often; conclusions need 3.", Integer(1, 1000), default=5),
        Option("--events", "The backlog to drain.", Integer(1, 100_000_000), default=100_000),
        Option("--keys", "Aggregates that they are of.", Integer(1, 100_000_000), default=10_000),
        Option("--payload", "Bytes of each event.", Integer(100, 1_000_000), default=1000),
        Option("--seconds", "Of each run at a rate.", Number(0.1, 86400.0, "N"), default=10.0),
        Option("--rate", "Events per second of latency.", Number(1, 1e6, "N"), default=200.0),
        Option("--writers", "Threads that write under load.", Integer(1, 64), default=4),
        Option("--batch-size", "As of the relay.", Integer(1, 100_000), default=1000),
        Option("--window", "As of the relay.", Integer(1, 1000), default=8),
        Option(
            "--curve",
            "Draw the drain rate by these instead: batch, window, keys, payload, relays, "
            "lanes, history, backlog, parked.",
            Listing(Text("NAME"), "NAME,…"),
            default=(),
            default_text="",
            group="Curves",
        ),
        Option(
            "--scale",
            "History, backlog and parked events go up to this share of 5, 2 and 1 million.",
            Number(0.0001, 10.0),
            default=1.0,
            group="Curves",
        ),
        Option("--plots", "Write plots as SVG into this directory.", Text("PATH"), group="Output"),
        JSON,
    ),
    examples=(
        ("a first look, on SQLite and files", "commitrelay bench"),
        (
            "on your servers, with plots",
            "commitrelay bench --database postgresql://localhost/test "
            "--publish kafka://localhost:9092 --plots bench",
        ),
        (
            "does a long history slow it down?",
            "commitrelay bench --curve history --scale 0.2 --database postgresql://localhost/test",
        ),
    ),
)
