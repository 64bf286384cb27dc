"""View: what one sees of the demo. A live picture with rich, a line a second without it."""

from __future__ import annotations

import logging
import sys
import textwrap
from collections import deque
from contextlib import suppress
from typing import Any, Protocol, Self

from commitrelay.demo.stage import Report, Snapshot
from commitrelay.urls import scrub

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 240
EXPLANATION = (
    "Each writer changes orders and adds an event for each in the same transaction; one in "
    "ten rolls back. The relay delivers what was committed, and the consumer checks every event: "
    "that it came, once, and after its predecessors."
)


class View(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...


class Silence:
    """For pipes: nothing but the result is printed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        pass


class Lines:
    """One line a second, for terminals without rich or without a cursor."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._next = 0.0
        self._last = (0.0, 0)

    def __enter__(self) -> Self:
        print(f"commitrelay demo: {self._title}. Ctrl-C stops it.")
        print(textwrap.fill(EXPLANATION, 79))
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.seconds < self._next or snapshot.phase == "done":
            return
        self._next = snapshot.seconds + 1
        rate = _rate(self._last, snapshot)
        self._last = (snapshot.seconds, snapshot.consumed)
        print(
            f"{clock(snapshot.seconds)}  {rate:>6,.0f} events/s  lag {snapshot.lag_ms_p50:>4.0f} ms"
            f"  backlog {snapshot.backlog:>5,}  received {snapshot.consumed:>9,}",
            flush=True,
        )


class Picture:
    """The live picture, drawn by rich."""

    def __init__(self, title: str, writers: int) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        self._title = title
        self._writers = writers
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._warnings = LastWarning()
        self._last = (0.0, 0)
        self._rates: deque[float] = deque(maxlen=HISTORY)
        self._lags: deque[float] = deque(maxlen=HISTORY)
        self._backlogs: deque[float] = deque(maxlen=HISTORY)
        self._lag = (0.0, 0.0)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self._warnings)
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()
        logging.getLogger().removeHandler(self._warnings)

    def show(self, snapshot: Snapshot) -> None:
        self._backlogs.append(snapshot.backlog)
        if snapshot.phase != "done":
            self._rates.append(_rate(self._last, snapshot))
            if snapshot.lag_ms_p50:
                self._lag = (snapshot.lag_ms_p50, snapshot.lag_ms_p99)
            self._lags.append(self._lag[0])
        self._last = (snapshot.seconds, snapshot.consumed)
        with suppress(BlockingIOError):  # a slow terminal misses a frame
            self._live.update(self._frame(snapshot), refresh=True)

    def _frame(self, now: Snapshot) -> Any:
        from rich.console import Group  # noqa: PLC0415
        from rich.padding import Padding  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        width = min(self._console.width, 100)
        parts: list[Any] = [
            self._heading(now, width),
            "",
            _flow(now, self._writers, width),
            "",
            *self._meters(width),
            "",
            _checks(now),
        ]
        if self._warnings.text:
            parts += ["", Text(self._warnings.text, "yellow", overflow="ellipsis", no_wrap=True)]
        if now.phase != "done":
            parts += ["", *(Text(line, "dim") for line in textwrap.wrap(EXPLANATION, width - 4))]
        return Padding(Group(*parts), (1, 2, 1, 2), expand=False)

    def _heading(self, now: Snapshot, width: int) -> Any:
        from rich.text import Text  # noqa: PLC0415

        left = Text.assemble(("commitrelay demo", "bold"), ("  " + self._title, "dim"))
        hints = {"running": "Ctrl-C stops", "draining": "draining…", "done": "done"}
        right = f"{hints[now.phase]}  {clock(now.seconds)}"
        left.append(" " * max(2, width - 4 - left.cell_len - len(right)))
        left.append(right, "cyan" if now.phase != "done" else "green")
        return left

    def _meters(self, width: int) -> list[Any]:
        room = max(10, width - 4 - 12 - 28)
        recent = list(self._rates)[-4:]
        rate = sum(recent) / len(recent) if recent else 0.0
        backlog = int(self._backlogs[-1]) if self._backlogs else 0
        p50, p99 = self._lag
        return [
            _meter("throughput", self._rates, f"{rate:,.0f} events/s", "green", room),
            _meter("lag", self._lags, f"{p50:,.0f} ms, p99 {p99:,.0f} ms", "cyan", room),
            _meter("backlog", self._backlogs, f"{backlog:,} events", "yellow", room),
        ]


class LastWarning(logging.Handler):
    """Keeps the last warning for the picture, which a line on stderr would tear."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = scrub(record.getMessage()).replace("\n", " ")


def summary(report: Report) -> str:
    """The result in words, for people."""
    lines = [
        f"{report.added:,} events committed, {report.consumed:,} received in "
        f"{report.seconds:.1f} s: {report.events_per_second:,.0f} events/s.",
        f"Lag {report.lag_ms_p50:.0f} ms (p99 {report.lag_ms_p99:.0f} ms). "
        f"{report.rolled_back:,} events rolled back, {report.delivered_after_rollback:,} of them "
        "delivered.",
    ]
    verdict = (
        "Everything that was committed was delivered, once and in order."
        if report.ok
        else f"WRONG: lost {report.lost:,}, duplicates {report.duplicates:,}, "
        f"out of order {report.out_of_order:,}."
    )
    return "\n".join([*lines, verdict])


def choose(title: str, writers: int, *, quiet: bool) -> View:
    """The best view that this terminal can show."""
    if quiet:
        return Silence()
    try:
        from rich.console import Console  # noqa: PLC0415
    except ImportError:
        return Lines(title)
    if Console().is_dumb_terminal or not sys.stdout.isatty():
        return Lines(title)
    return Picture(title, writers)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def sparkline(values: list[float], room: int) -> str:
    """The last `room` values as bars, the largest of them full."""
    shown = values[-room:]
    top = max(shown, default=0.0) or 1.0
    bars = [BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] for value in shown]
    return "".join(bars).rjust(room)


def _meter(label: str, values: deque[float], value: str, colour: str, room: int) -> Any:
    from rich.text import Text  # noqa: PLC0415

    return Text.assemble(
        f"{label:<12}", (sparkline(list(values), room), colour), ("   " + value, "bold")
    )


def _flow(now: Snapshot, writers: int, width: int) -> Any:
    from rich.table import Table  # noqa: PLC0415

    stations = (
        (f"{writers} writers", now.added, "committed"),
        ("outbox", now.backlog, "waiting"),
        ("relay", now.published, "published"),
        ("consumer", now.consumed, "received"),
    )
    grid = Table.grid(expand=False, padding=0)
    cells: list[tuple[str, str, str]] = []
    for number, (name, count, verb) in enumerate(stations):
        grid.add_column(justify="center", width=(width - 4 - 15) // 4)
        cells.append((f"[dim]{name}[/]", f"[bold cyan]{count:,}[/]", f"[dim]{verb}[/]"))
        if number < len(stations) - 1:
            grid.add_column(justify="center", width=5)
            cells.append(("", "[dim]──▶[/]", ""))
    for row in zip(*cells, strict=True):
        grid.add_row(*row)
    return grid


def _checks(now: Snapshot) -> Any:
    from rich.text import Text  # noqa: PLC0415

    text = Text()
    results = {"duplicates": now.duplicates, "out of order": now.out_of_order}
    if now.phase == "done":
        results = {"lost": now.backlog, **results}
    for label, value in results.items():
        if value == 0:
            text.append("✔ ", "green").append(f"{label} 0   ")
        else:
            text.append(f"✘ {label} {value:,}   ", "bold red")
    text.append(f"{now.rolled_back:,} rolled back", "dim")
    return text if now.phase == "done" else text.append("   lost: see the end", "dim")


def _rate(last: tuple[float, int], now: Snapshot) -> float:
    seconds = now.seconds - last[0]
    return (now.consumed - last[1]) / seconds if seconds > 0.01 else 0.0
