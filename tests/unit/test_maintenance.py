"""Old events and marks are deleted by whose duty it is, in bounded batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from commitrelay import ConfigError, RelayOptions, StoreUnreachable, maintenance
from commitrelay.maintenance import PURGE_LIMIT, purge_forever
from commitrelay.purge import PAGE
from commitrelay.store import SettledPage

DAY = 86400.0
LIMITS = {"events": PAGE, "marks": PURGE_LIMIT}


class Rows:
    """A store with so many old events and marks; it ends the test when it has been asked enough."""

    def __init__(self, events: int, marks: int, *, unreachable: int = 0) -> None:
        self.left = {"events": events, "marks": marks}
        self.asked: list[tuple[str, float]] = []
        self._unreachable = unreachable

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage:
        self._ask("events", older_than_seconds, limit)
        seqs = list(range(after_seq + 1, after_seq + 1 + min(limit, self.left["events"])))
        return SettledPage(seqs, after_seq + len(seqs), len(seqs) < limit)

    async def delete_settled(self, seqs: Sequence[int]) -> int:
        self.left["events"] -= len(seqs)
        return len(seqs)

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int:
        return 0

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int:
        return 0

    async def purge_inbox(self, *, older_than_seconds: float, limit: int) -> int:
        self._ask("marks", older_than_seconds, limit)
        deleted = min(limit, self.left["marks"])
        self.left["marks"] -= deleted
        return deleted

    def _ask(self, what: str, seconds: float, limit: int) -> None:
        if self._unreachable:
            self._unreachable -= 1
            raise StoreUnreachable("the server is down")
        assert limit == LIMITS[what]
        self.asked.append((what, seconds))


def purged(
    monkeypatch: pytest.MonkeyPatch, rows: Rows, wanted: int, *, duty: bool = True, **retention: Any
) -> list[tuple[str, float]]:
    """What the store was asked until it was asked so often, or for half a second if never."""
    monkeypatch.setattr(maintenance, "PURGE_SECONDS", 0.001)

    async def run() -> None:
        task = asyncio.create_task(purge_forever(rows, is_my_duty=lambda: duty, **retention))  # type: ignore[arg-type]
        for _ in range(50 if not wanted else 3000):
            await asyncio.sleep(0.01)
            if wanted and len(rows.asked) >= wanted:
                break
        task.cancel()

    asyncio.run(run())
    return rows.asked[:wanted] if wanted else rows.asked


def test_both_are_purged_in_batches_until_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(events=PAGE + 1, marks=2 * PURGE_LIMIT)
    retention = {"retention_seconds": 7.0, "inbox_retention_seconds": 30.0}
    asked = purged(monkeypatch, rows, 5, **retention)
    assert asked == [("events", 7.0)] * 2 + [("marks", 30.0)] * 3
    assert rows.left == {"events": 0, "marks": 0}


@pytest.mark.parametrize(
    ("events", "marks", "expected"), [(None, 30.0, {"marks"}), (7.0, None, {"events"})]
)
def test_what_is_kept_for_ever_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, events: float | None, marks: float | None, expected: set[str]
) -> None:
    rows = Rows(10, 10)
    retention = {"retention_seconds": events, "inbox_retention_seconds": marks}
    asked = purged(monkeypatch, rows, 3, **retention)
    assert {what for what, _seconds in asked} == expected


def test_a_server_that_is_down_puts_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(1, 1, unreachable=2)
    retention = {"retention_seconds": 7.0, "inbox_retention_seconds": 30.0}
    assert purged(monkeypatch, rows, 2, **retention) == [("events", 7.0), ("marks", 30.0)]


def test_whose_duty_it_is_not_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    retention = {"retention_seconds": 7.0, "inbox_retention_seconds": 30.0}
    assert purged(monkeypatch, Rows(1, 1), 0, duty=False, **retention) == []


@pytest.mark.parametrize(("events", "marks"), [(30 * DAY, 30 * DAY), (31 * DAY, 30 * DAY)])
def test_marks_must_outlive_events(events: float, marks: float) -> None:
    with pytest.raises(ConfigError, match=r"inbox_retention \(30 days\) is not longer than"):
        RelayOptions(retention_seconds=events, inbox_retention_seconds=marks)


@pytest.mark.parametrize(("events", "marks"), [(None, DAY), (DAY, None), (DAY, 2 * DAY)])
def test_marks_that_outlive_events_are_fine(events: float | None, marks: float | None) -> None:
    RelayOptions(retention_seconds=events, inbox_retention_seconds=marks)
