"""Signals: what Ctrl-C and SIGTERM do while a command runs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupting(handle: Callable[[], None]) -> Iterator[None]:
    """Both call `handle`, in the main thread, wherever it is."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: handle()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
