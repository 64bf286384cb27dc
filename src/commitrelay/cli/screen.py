"""Screen: one page that is drawn over again, on a terminal; elsewhere pages follow each other."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Self

from commitrelay.cli.style import colourful

_ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_END_OF_LINE = "\x1b[K"
_BELOW = "\x1b[J"


class Screen:
    """While it is open, `show` replaces what was shown before; then the terminal is as it was."""

    def __init__(self) -> None:
        self._redraws = colourful(sys.stdout)
        self._is_first = True

    def __enter__(self) -> Self:
        if self._redraws:
            self._write(_ENTER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._redraws:
            self._write(_LEAVE)

    def show(self, page: str) -> None:
        if not self._redraws:
            self._write(("" if self._is_first else "\n") + page + "\n")
            self._is_first = False
            return
        rows = shutil.get_terminal_size((80, 24)).lines
        lines = page.split("\n")[: rows - 1]
        self._write(_HOME + "".join(f"{line}{_END_OF_LINE}\r\n" for line in lines) + _BELOW)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
