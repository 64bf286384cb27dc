"""Lanes where events wait and no relay is, as `status` and `doctor` name them."""

from __future__ import annotations

import pytest

from commitrelay.admin import events_wait, unserved
from commitrelay.store import LaneStatus, OpenCircuit, RelayStatus

EMPTY = LaneStatus(
    lane="default",
    paused=False,
    counts={},
    capped_at=100_000,
    oldest_pending_seconds=None,
    published_last_minute=0,
    last_published_at=None,
    last_error=None,
    relays={},
)
SERVED = EMPTY._replace(relays={"a": RelayStatus(64, 20.0)})


@pytest.mark.parametrize("state", ["pending", "retrying", "scheduled", "parked"])
def test_events_that_wait_for_a_relay(state: str) -> None:
    left = EMPTY._replace(lane="left", counts={state: 1})
    assert unserved([SERVED, left, EMPTY]) == [left]


@pytest.mark.parametrize("state", ["dead", "skipped", "claimed"])
def test_events_that_do_not(state: str) -> None:
    assert unserved([SERVED, EMPTY._replace(counts={state: 1})]) == []


def test_none_is_left_out_where_no_relay_runs() -> None:
    assert unserved([EMPTY._replace(counts={"pending": 1})]) == []


def test_a_relay_that_waits_for_its_broker_serves() -> None:
    waiting = EMPTY._replace(counts={"pending": 1}, open_circuits={"a": OpenCircuit(1.0, "gone")})
    left = EMPTY._replace(lane="left", counts={"pending": 1})
    assert unserved([waiting, left]) == [left]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"pending": 1}, "1 event waits"),
        ({"pending": 1000, "parked": 234}, "1,234 events wait"),
        ({"pending": 100_000, "parked": 5}, "100,005+ events wait"),
        ({"pending": 5, "dead": 100_000}, "5 events wait"),
    ],
)
def test_how_many(counts: dict[str, int], said: str) -> None:
    assert events_wait(EMPTY._replace(counts=counts)) == said
