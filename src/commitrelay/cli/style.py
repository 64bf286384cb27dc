"""Style: colour where it is welcome, and how wide the terminal is."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
MAX_WIDTH = 100


def colourful(stream: TextIO) -> bool:
    """Whether escape codes are welcome: a terminal that is not dumb, and no NO_COLOR."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class Style:
    """Text in colours, or not."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.enabled = colourful(stream or sys.stdout)

    def __call__(self, text: str, *codes: str) -> str:
        if not self.enabled or not codes or not text:
            return text
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m"


def width() -> int:
    return max(40, min(MAX_WIDTH, shutil.get_terminal_size((80, 24)).columns))
