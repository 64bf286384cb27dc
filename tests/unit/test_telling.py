"""An event's story in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from commitrelay.cli.telling import told
from commitrelay.operations import Hold, Story
from commitrelay.store import EventRecord

EVENT = EventRecord(
    seq=1,
    id="01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10",
    aggregate_type="Order",
    aggregate_id="1",
    event_type="OrderPaid",
    content_type="application/json",
    headers={},
    idempotency_key=None,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    deliver_at=None,
    payload=b"{}",
    deliveries=(),
)


@pytest.mark.parametrize(
    ("kind", "relay", "seconds", "words"),
    [
        ("leased", "r1", 12.0, "in the hands of relay r1 (lease ends in 12.0s)"),
        ("claimed", "r1", 12.0, "claimed by relay r1 (claim ends in 12.0s)"),
        ("claimed", None, 12.0, "claimed by a relay that is gone (claim ends in 12.0s)"),
        ("claimed", "r1", -1.0, "claimed by relay r1 (claim has ended: the next relay takes it)"),
        ("direct", None, 1.5, "claimed by a direct pass (claim ends in 1.5s)"),
        ("unclaimed", None, None, "no relay has claimed it yet"),
        ("unheld", None, None, "no relay holds its bucket"),
    ],
)
def test_who_has_an_event(kind: str, relay: str | None, seconds: float | None, words: str) -> None:
    story = Story([], [], [], [], [], [Hold("default", kind, relay, seconds)], None)
    assert told(EVENT, story).splitlines()[-1] == f"queued in lane default: {words}"
