"""The hot queries of the MySQL store search by their indexes, empty or with much history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from commitrelay.sql import Names, queries
from commitrelay.store import BUCKETS
from commitrelay.stores.mysql.link import Link
from commitrelay.stores.mysql.store import MysqlStore
from tests.support import mariadb

HISTORY = 100_000
QUEUED = 5_000

VALUES: dict[str, Any] = {
    "lane": 1,
    "relay": "a",
    "token": 1,
    "above_seq": 1,
    "buckets": range(BUCKETS),
    "exclude_seqs": [1],
    "exclude_keys": [1],
    "limit": 1000,
    "window": 4000,
    "seqs": range(HISTORY + 1, HISTORY + 2001),
    "seq": HISTORY + 1,
    "key": 1,
    "error": "no",
    "state": 1,
    "retry_in": 1.5,
    "attempts": 0,
    "claim_seconds": 60,
    "cap": 10_000,
}
SEARCHED = {
    "claim_pending": {"hot", "blockers", "PRIMARY"},
    "claim_due": {"due", "blockers", "PRIMARY"},
    "find_heads": {"hot", "due", "blockers"},
    "mark_heads": {"PRIMARY"},
    "claimed_heads": {"PRIMARY"},
    "find_blocked": {"hot", "blockers"},
    "journal": {"PRIMARY"},
    "settle_delivered": {"PRIMARY"},
    "settle_failure": {"PRIMARY"},
    "settle_released": {"PRIMARY"},
    "settle_parked": {"PRIMARY", "blockers"},
    "unblocked_keys": {"blockers", "PRIMARY"},
    "blocking_events": {"blockers"},
    "unpark": {"PRIMARY"},
    "find_abandoned": {"due"},
    "free_abandoned": {"PRIMARY"},
    "has_work": {"hot", "due"},
    "pending_after": {"hot"},
}
SCANS = {"ALL", "index"}
SMALL = ("<", "fence", "blocked")
"""Tables that a query makes for itself, and the leases."""


async def explain(url: str, name: str) -> list[tuple[Any, ...]]:
    link = Link(url)
    rows = (await link.ask(f"EXPLAIN {queries('mysql', Names())[name]}", VALUES)).rows
    await link.close()
    return list(rows)


def check_plan(url: str, name: str) -> None:
    found = asyncio.run(explain(url, name))
    keys = set()
    for _id, _kind, table, access, _possible, key, *_rest in found:
        if table is None or str(table).startswith(SMALL) or (key is None and access is None):
            continue
        assert access not in SCANS, f"{table} is read from end to end: {found}"
        keys.add(str(key).removeprefix("outbox_queue_"))
    assert SEARCHED[name] <= keys, found


async def initialised(url: str) -> None:
    store = MysqlStore(url)
    await store.initialise()
    await store.renew(1, "a", strategy="leader", keep=None, lease_seconds=60)
    await store.close()


@pytest.fixture(scope="module")
def empty(mariadb_url: str) -> Iterator[str]:
    with mariadb.fresh_database(mariadb_url) as url:
        asyncio.run(initialised(url))
        yield url


@pytest.fixture(scope="module")
def old(mariadb_url: str) -> Iterator[str]:
    """An outbox that has delivered many events, with some to go and more parked behind one."""
    columns = "(aggregate_type, aggregate_id, event_type, payload)"
    with mariadb.fresh_database(mariadb_url) as url:
        asyncio.run(initialised(url))
        mariadb.run(
            url,
            "UPDATE outbox_lane SET event_types = '[]'",
            f"INSERT INTO outbox_event {columns} "
            f"SELECT 'Order', seq, 'OrderPaid', '{{}}' FROM seq_1_to_{HISTORY}",
            "UPDATE outbox_lane SET event_types = NULL",
            f"INSERT INTO outbox_event {columns} "
            f"SELECT 'Order', seq % 7, 'OrderPaid', '{{}}' FROM seq_1_to_{QUEUED}",
            "UPDATE outbox_queue SET state = 3 WHERE bucket < 32",
            "ANALYZE TABLE outbox_event, outbox_queue",
        )
        yield url


@pytest.mark.parametrize("name", SEARCHED)
def test_plan_on_an_empty_outbox(empty: str, name: str) -> None:
    check_plan(empty, name)


@pytest.mark.parametrize("name", SEARCHED)
def test_plan_with_much_history(old: str, name: str) -> None:
    check_plan(old, name)
