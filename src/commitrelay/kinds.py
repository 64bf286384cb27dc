"""Kinds of setting: how a value is written, in a file and on a command line, and read back.

`parse` takes the text of a flag or variable, or the value of a TOML key. It raises `ValueError`
with the rest of a sentence that starts with the name of the setting.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

_UNIT_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>B|kB|MB|GB|TB)")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5})")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
NEVER = "never"
NONE = "none"


class Kind(Protocol):
    @property
    def metavar(self) -> str: ...

    def parse(self, value: object) -> Any: ...

    def show(self, value: Any) -> str: ...


class Text(NamedTuple):
    metavar: str = "TEXT"

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be a string, not {_described(value)}")
        if not value:
            raise ValueError("is empty")
        return value

    def show(self, value: str) -> str:
        return value


class Choice(NamedTuple):
    options: tuple[str, ...]
    metavar: str = "CHOICE"

    def parse(self, value: object) -> str:
        if value not in self.options or not isinstance(value, str):
            listed = ", ".join(self.options)
            raise ValueError(f"must be one of {listed}, not {value!r}{hint(value, self.options)}")
        return value

    def show(self, value: str) -> str:
        return value


class Integer(NamedTuple):
    minimum: int = 0
    maximum: int = 2**31
    metavar: str = "N"

    def parse(self, value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be a whole number, not {_described(value)}")
        if not self.minimum <= value <= self.maximum:
            raise ValueError(f"must be between {self.minimum} and {self.maximum}, not {value}")
        return value

    def show(self, value: int) -> str:
        return str(value)


class Number(NamedTuple):
    minimum: float = 0.0
    maximum: float = 1.0
    metavar: str = "NUMBER"

    def parse(self, value: object) -> float:
        try:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise ValueError
            number = float(value)
        except ValueError:
            raise ValueError(f"must be a number, not {_described(value)}") from None
        if not math.isfinite(number) or not self.minimum <= number <= self.maximum:
            raise ValueError(f"must be between {self.minimum:g} and {self.maximum:g}, not {value}")
        return number

    def show(self, value: float) -> str:
        return f"{value:g}"


class Duration(NamedTuple):
    """Seconds, written with a unit: 500ms, 30s, 5m, 12h, 7d; `never` is None where allowed."""

    never: bool = False
    minimum: float = 0.0
    metavar: str = "DURATION"

    def parse(self, value: object) -> float | None:
        if self.never and value == NEVER:
            return None
        text = str(value) if isinstance(value, (str, int, float)) else ""
        match = _DURATION.fullmatch(text.strip())
        if match is None or isinstance(value, bool):
            raise ValueError(self._complaint(value, text))
        seconds = float(match["number"]) * _UNIT_SECONDS[match["unit"]]
        if seconds < self.minimum:
            raise ValueError(f"must be at least {duration(self.minimum)}, not {value}")
        return seconds

    def show(self, value: float | None) -> str:
        return NEVER if value is None else duration(value)

    def _complaint(self, value: object, text: str) -> str:
        if re.fullmatch(r"\d+(\.\d+)?", text.strip()) and not isinstance(value, bool):
            return f"has no unit: write {text.strip()}s for seconds, or use ms, m, h or d"
        examples = "500ms, 30s, 5m or 7d" + (f", or {NEVER}" if self.never else "")
        return f"must be a duration such as {examples}, not {_described(value)}"


class Size(NamedTuple):
    """Bytes, written with a unit: 500MB, 10GB; `never` is None."""

    metavar: str = "SIZE"

    def parse(self, value: object) -> int | None:
        if value == NEVER:
            return None
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"must be a size such as 500MB or 10GB, or {NEVER}, not {value!r}")
        return int(float(match["number"]) * _UNIT_BYTES[match["unit"]])

    def show(self, value: int | None) -> str:
        return NEVER if value is None else size(value)


class HostPort(NamedTuple):
    host: str
    port: int


class Address(NamedTuple):
    """Where to listen: 127.0.0.1:9464, [::1]:9464; `none` is None."""

    metavar: str = "HOST:PORT"

    def parse(self, value: object) -> HostPort | None:
        if value == NONE:
            return None
        match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
        if match is None or int(match["port"]) > 65535:
            raise ValueError(f"must be HOST:PORT or {NONE}, not {_described(value)}")
        return HostPort(match["host"].strip("[]"), int(match["port"]))

    def show(self, value: HostPort | None) -> str:
        if value is None:
            return NONE
        host = f"[{value.host}]" if ":" in value.host else value.host
        return f"{host}:{value.port}"


class Moment(NamedTuple):
    """A time: 2026-11-15T20:30 (the machine's zone), 2026-11-15T20:30Z, or 2h for two hours ago."""

    metavar: str = "TIME"

    def parse(self, value: object) -> datetime:
        text = value.strip() if isinstance(value, str) else ""
        ago = _DURATION.fullmatch(text)
        if ago is not None:
            seconds = float(ago["number"]) * _UNIT_SECONDS[ago["unit"]]
            return datetime.now(UTC) - timedelta(seconds=seconds)
        try:
            return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):
            examples = "2026-11-15T20:30, 2026-11-15T20:30Z, or 2h for two hours ago"
            raise ValueError(
                f"must be a time such as {examples}, not {_described(value)}"
            ) from None

    def show(self, value: datetime) -> str:
        return value.isoformat()


class Listing(NamedTuple):
    """Several values: separated by commas in text, an array in TOML."""

    item: Kind
    metavar: str = "A,B,…"

    def parse(self, value: object) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list):
            raise ValueError(f"must be a list, not {_described(value)}")
        return tuple(self.item.parse(part) for part in value)

    def show(self, value: tuple[Any, ...]) -> str:
        return ",".join(self.item.show(part) for part in value)


def duration(seconds: float) -> str:
    """Seconds in the largest unit that keeps them a whole number: 300 is 5m, 0.5 is 500ms."""
    if seconds == 0:
        return "0s"
    for unit in ("d", "h", "m", "s", "ms"):
        count = seconds / _UNIT_SECONDS[unit]
        if count >= 1 and math.isclose(count, round(count), rel_tol=1e-9):
            return f"{round(count)}{unit}"
    return f"{seconds:g}s"


def size(count: int) -> str:
    """Bytes in the largest unit of which there is at least one: 1500000 is 1.5MB."""
    for unit, factor in reversed(_UNIT_BYTES.items()):
        if count >= factor:
            return f"{round(count / factor, 1):g}{unit}"
    return "0B"


def hint(wrong: object, known: tuple[str, ...] | list[str]) -> str:
    """' (did you mean x?)' if something known looks like it, else nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    close = get_close_matches(str(wrong), known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def _described(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return repr(value)
    return "a table" if isinstance(value, dict) else f"a {type(value).__name__}"
