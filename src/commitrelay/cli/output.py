"""Output: JSON for machines, tables for people."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any

from commitrelay.cli.style import BOLD, GREEN, RED, YELLOW, Style

_NUMBER = re.compile(r"–|[\d,]+\+?|[\d.]+m?s|\d+[mhd]\d+[smh]|[\d,.]+/s")
STATUS_COLOURS = {
    "published": GREEN,
    "retrying": YELLOW,
    "parked": YELLOW,
    "dead": RED,
    "skipped": RED,
}


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, default=as_json))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns; numbers to the right. On a terminal the last two columns give way."""
    cells = [[plain(cell) for cell in row] for row in rows]
    numeric = [
        bool(cells) and all(_looks_numeric(row[index]) for row in cells)
        for index in range(len(columns))
    ]
    widths = [
        max(len(column), *(len(row[index]) for row in cells)) if cells else len(column)
        for index, column in enumerate(columns)
    ]
    _fit(widths)
    style = Style()
    heading = _line(columns, widths, numeric)
    return "\n".join(
        [
            style(heading, BOLD),
            *(_painted(_line(row, widths, numeric), row, style) for row in cells),
        ]
    )


def plain(text: str) -> str:
    """Text without control characters: what is in an event must not steer the terminal."""
    return "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" for char in text.replace("\n", " ")
    )


def count(number: int, capped_at: int | None = None) -> str:
    """12,345, or 10,000+ where counting stopped."""
    return f"{number:,}+" if capped_at is not None and number >= capped_at else f"{number:,}"


def rate(per_second: float) -> str:
    """12.3/s, 1,234/s."""
    return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.1f}/s"


def age(seconds: float | None) -> str:
    """An age in its two largest units: 850ms, 12.3s, 4m10s, 3h5m, 9d2h."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    for large, small, size, part in (("m", "s", 60, 1), ("h", "m", 3600, 60)):
        if seconds < size * (60 if large == "m" else 24):
            whole, rest = divmod(int(seconds), size)
            return f"{whole}{large}{rest // part}{small}"
    days, rest = divmod(int(seconds), 86400)
    return f"{days}d{rest // 3600}h"


def moment(when: datetime | None) -> str:
    """A time as people read it, in their own zone."""
    return "–" if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def timestamp(when: datetime | None) -> str | None:
    """A time as machines read it: RFC 3339 in UTC."""
    if when is None:
        return None
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def as_json(value: Any) -> Any:
    """What json.dumps does not know by itself."""
    if isinstance(value, datetime):
        return timestamp(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def _looks_numeric(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _fit(widths: list[int]) -> None:
    if sys.stdout.isatty():
        room = shutil.get_terminal_size((80, 24)).columns
        for column in (-1, -2):
            excess = sum(widths) + 2 * (len(widths) - 1) - room
            widths[column] = min(widths[column], max(8, widths[column] - excess))


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = []
    for cell, room, right in zip(cells, widths, numeric, strict=True):
        text = cell if len(cell) <= room else cell[: room - 1] + "…"
        parts.append(text.rjust(room) if right else text.ljust(room))
    return "  ".join(parts).rstrip()


def _painted(line: str, row: Sequence[str], style: Style) -> str:
    for cell in row:
        if cell in STATUS_COLOURS:
            return line.replace(cell, style(cell, STATUS_COLOURS[cell]), 1)
    return line
