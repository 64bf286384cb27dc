"""Rows of a store, made into what operators see."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from commitrelay.operations import WAITING_CAP
from commitrelay.store import State
from commitrelay.stores.stories import blocked_keys, first_seq

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(seq: int, key: str, parked: int = 0) -> tuple[Any, ...]:
    head = ("Order", key, seq, f"id {seq}", "Placed", State.DEAD)
    return (*head, 1, None, "no", NOW, parked, key)


def counted(rows: list[Any], pending: list[Any]) -> dict[str, tuple[int, bool]]:
    found = blocked_keys(lambda moment: moment, "default", rows, pending)
    return {key.aggregate_id: (key.waiting, key.more_may_wait) for key in found}


def test_what_is_pending_behind_a_head_waits() -> None:
    rows = [row(10, "a", parked=3), row(20, "b")]
    assert first_seq(rows) == 10
    pending = [("a", 11), ("b", 15), ("a", 16), ("c", 17), ("b", 21)]
    assert counted(rows, pending) == {"a": (5, False), "b": (1, False)}


@pytest.mark.parametrize("parked", [0, WAITING_CAP])
def test_where_counting_stopped_there_may_be_more(parked: int) -> None:
    pending = [("c", seq) for seq in range(WAITING_CAP)] if not parked else []
    assert counted([row(1, "a", parked)], pending) == {"a": (parked, True)}
