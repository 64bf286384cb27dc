"""Where in the log a time is: its events have seqs, in the order of time but for a little."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

SLACK = timedelta(minutes=5)
"""An event may have a smaller seq than one that was added so much before it."""


def floor_of_time(smallest: int, largest: int) -> Generator[int, bool, int]:
    """The seq up to which all events are too old: a search by halves, with no index on the time.

    Yields seqs, and wants to be sent whether the first event from there on is too old by `SLACK`.
    """
    low, high = smallest - 1, largest
    while low < high:
        middle = (low + high + 1) // 2
        if (yield middle):
            low = middle
        else:
            high = middle - 1
    return max(low, 0)
