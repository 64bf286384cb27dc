"""Logs of the daemon: to stderr, readable on a terminal, one JSON object per line elsewhere.

What the library logs passes through here on its way out; whatever looks like a password is
hidden, also in the messages of drivers.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from commitrelay.urls import scrub

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NAMES_OF_AN_EVENT = ("event_id", "key")
"""Said in a sentence already where the sentence is about the event: people need them once."""

_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


def set_up(level: str, form: str, *, stream: TextIO | None = None, colour: bool = False) -> None:
    """Send the log of this process to `stream` (stderr); `form` is auto, text or json."""
    target = stream or sys.stderr
    if form == "auto":
        form = "text" if target.isatty() else "json"
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonLines() if form == "json" else Lines(colour=colour))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("commitrelay").setLevel(level.upper())


class Lines(logging.Formatter):
    """`20:33:45 warning  message  lane=default`: for people."""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        level = f"{record.levelname.lower():8}"
        text = _text(record)
        details = "".join(
            f"  {name}={value}"
            for name, value in _extra(record).items()
            if name not in _NAMES_OF_AN_EVENT or str(value) not in text
        )
        code = _COLOURS.get(record.levelname) if self._colour else None
        if code:
            level = f"\x1b[{code}m{level}\x1b[0m"
        return scrub(f"{clock} {level} {text}{details}{_trace(self, record)}")


class JsonLines(logging.Formatter):
    """One JSON object per line: for machines."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": scrub(_text(record)),
        }
        for name, value in _extra(record).items():
            line[name] = scrub(value) if isinstance(value, str) else value
        trace = _trace(self, record)
        if trace:
            line["traceback"] = scrub(trace.strip())
        return json.dumps(line, ensure_ascii=False, default=lambda value: scrub(str(value)))


def _text(record: logging.LogRecord) -> str:
    return record.getMessage().replace("\n", " ")


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN_ATTRIBUTES}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return "\n" + formatter.formatException(record.exc_info) if record.exc_info else ""
