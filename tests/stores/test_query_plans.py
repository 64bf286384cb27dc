"""The hot queries use their indexes, whatever the planner believes about the tables.

The relay keeps one plan per statement, so it is looked at as it is made on an empty outbox, and
with a million events of history. On SQLite there is one plan anyway.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commitrelay.sql import Names, queries
from commitrelay.store import ClaimRequest, EventFilter, Fence
from commitrelay.stores.postgres.link import SESSION_SETTINGS
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.bundle import bundle_query
from commitrelay.stores.sqlite.store import SqliteStore
from commitrelay.testing import opened
from tests.support import postgres
from tests.support.stores import PostgresHarness, SqliteHarness

HISTORY = 1_000_000
NAMES = Names()

VALUES = {
    "lane": "1",
    "relay": "'a'",
    "token": "1",
    "above_seq": "1",
    "after_seq": "1",
    "buckets": "'{1,2,3}'",
    "exclude_seqs": "'{1}'",
    "exclude_keys": "'{1}'",
    "limit": "1000",
    "seqs": "'{1,2,3}'",
    "failures": """'[{"seq": 1, "error": "no", "retry_in": 1, "blocks": true}]'""",
    "claim_seconds": "60",
    "older_than_seconds": "3600",
    "strategy": "'partitioned'",
    "keep": "NULL",
    "lease_seconds": "60",
    "seq": "1",
    "cap": "10000",
}

OPERATORS_VALUES = {
    **VALUES,
    **dict.fromkeys(("aggregate_type", "aggregate_id", "event_type", "since", "until"), "NULL"),
    **{"lane": "1", "before_seq": "4611686018427387904", "above_seq": "0", "limit": "50"},
    **{"cap": "100000", "verdict": "0", "error": "NULL", "payloads": "true", "after": "1900"},
    **{"id": "'01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10'", "after_seq": "999000"},
}

SEARCHED = {
    "claim_all": {"outbox_queue_hot", "outbox_queue_due", "outbox_event_seq_key"},
    "claim_pending": {"outbox_queue_hot", "outbox_event_seq_key"},
    "claim_heads": {"outbox_queue_hot", "outbox_queue_due", "outbox_event_seq_key"},
    "park_blocked": {"outbox_queue_hot", "outbox_queue_blockers", "outbox_queue_pkey"},
    "settle_delivered": {"outbox_queue_pkey", "outbox_lease_pkey"},
    "settle_failures": {"outbox_queue_pkey"},
    "settle_released": {"outbox_queue_pkey"},
    "settle_parked": {"outbox_queue_pkey", "outbox_queue_blockers"},
    "unpark": {"outbox_queue_blockers", "outbox_queue_due", "outbox_queue_pkey"},
    "has_unblocked": {"outbox_queue_blockers"},
    "settled": {"outbox_event_seq_key", "outbox_queue_pkey"},
    "delete_settled": {"outbox_event_seq_key", "outbox_queue_pkey", "outbox_attempt_seq"},
    "purge_inbox": {"outbox_inbox_done"},
    "pending_after": {"outbox_queue_hot"},
}
LOOKUPS = {
    "outbox_queue_pkey": "seq",
    "outbox_event_seq_key": "seq",
    "outbox_queue_blockers": "lane",
    "outbox_queue_hot": "lane",
    "outbox_queue_due": "due_at",
    "outbox_inbox_done": "done_at",
    "outbox_completion_pkey": "event_id",
}
"""The column that must be in the condition of a search of each index, so that it is no scan."""


def explain(connection: psycopg.Connection[Any], name: str) -> list[dict[str, Any]]:
    """The nodes of the plan that the relay's session would keep for a query."""
    text = queries("postgres", NAMES)[name]
    order = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${order.index(match[1]) + 1}", text)
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE hot AS {numbered}")
    arguments = ", ".join(VALUES[value] for value in order)
    ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hot ({arguments})").fetchall()
    return list(nodes(plan[0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def check_plan(connection: psycopg.Connection[Any], name: str) -> None:
    found = explain(connection, name)
    kinds = {node["Node Type"] for node in found}
    assert not kinds & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, kinds
    searches = [node for node in found if "Index Name" in node]
    assert SEARCHED[name] <= {node["Index Name"] for node in searches}
    for node in searches:
        column = LOOKUPS.get(node["Index Name"])
        if column:
            condition = node.get("Index Cond", "")
            assert column in condition, f"{node['Index Name']} is read from end to end: {node}"
    joins = [node for node in found if "Join Filter" in node and name != "settle_failures"]
    assert not joins, "a join without an index"


@pytest.fixture(scope="module")
def empty(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with postgres.fresh_database(postgres_url) as url:
        asyncio.run(initialised(url))
        with tuned(url) as connection:
            connection.execute("VACUUM ANALYZE")
            yield connection


@pytest.fixture(scope="module")
def old_url(postgres_url: str) -> Iterator[str]:
    """An outbox that has delivered a million events, with a few more to go."""
    with postgres.fresh_database(postgres_url) as url:
        asyncio.run(initialised(url))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute("ALTER TABLE outbox_event DISABLE TRIGGER USER")
            connection.execute(
                "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
                "SELECT 'Order', i::text, 'OrderPaid', '{}' FROM generate_series(1, %s) AS i",
                (HISTORY,),
            )
            connection.execute("ALTER TABLE outbox_event ENABLE TRIGGER USER")
            connection.execute(
                "INSERT INTO outbox_delivery "
                "(smallest, largest, at, lane, events, verdict, relay, seqs) "
                "SELECT i, i + 499, now() - interval '1 day', 1, 500, 0, 'a', "
                "array(SELECT generate_series(i, i + 499))"
                "FROM generate_series(1, %s, 500) AS i",
                (HISTORY,),
            )
            connection.execute(
                "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
                "SELECT 'Order', (i % 7)::text, 'OrderPaid', '{}' FROM generate_series(1, 50) AS i"
            )
            connection.execute("VACUUM ANALYZE")
        yield url


@pytest.fixture(scope="module")
def old(old_url: str) -> Iterator[psycopg.Connection[Any]]:
    with tuned(old_url) as connection:
        yield connection


async def initialised(url: str) -> None:
    store = PostgresStore(url)
    await store.initialise()
    await store.close()


def tuned(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    for setting, value in SESSION_SETTINGS.items():
        connection.execute("SELECT set_config(%s, %s, false)", (setting, value))
    return connection


@pytest.mark.parametrize("name", SEARCHED)
def test_plan_made_on_an_empty_outbox(empty: psycopg.Connection[Any], name: str) -> None:
    check_plan(empty, name)


@pytest.mark.parametrize("name", SEARCHED)
def test_plan_with_a_million_events_of_history(old: psycopg.Connection[Any], name: str) -> None:
    check_plan(old, name)


OPERATORS = (
    *("lane_status", "lane_counts", "list_events", "list_queued", "list_settled", "show_event"),
    *("queue_rows", "journal_rows", "settled", "read_events", "added", "batches", "end_of_log"),
    *("all_lanes", "blocked_keys"),
)
"""What operators ask; `status` and `list` must not get slower with the history."""


@pytest.mark.parametrize("name", OPERATORS)
def test_no_question_of_an_operator_reads_a_whole_table(old_url: str, name: str) -> None:
    with psycopg.connect(old_url, autocommit=True) as connection:
        text = queries("postgres", NAMES)[name].replace("{states}", "0")
        filled = re.sub(r"%\((\w+)\)s", lambda match: OPERATORS_VALUES[match[1]], text)
        ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {filled}".encode()).fetchall()
    found = list(nodes(plan[0]["Plan"]))
    large = ("outbox_event", "outbox_delivery")
    scans = [node for node in found if node["Node Type"] == "Seq Scan"]
    assert not [node for node in scans if node["Relation Name"] in large], scans


def test_what_was_published_is_found_below_a_long_backlog(postgres_database: str) -> None:
    """The list begins at the newest settled event, not at the newest of all."""

    async def case() -> None:
        async with opened(PostgresHarness(postgres_database)) as scene:
            first, *_ = scene.add(*"abc")
            await scene.deliver(first)
            with scene.connected() as connection:
                scene.add(*["later"] * 2000, connection=connection)
            where = EventFilter(status="published")
            (event,) = await scene.store.list_events(where, before_seq=None, limit=5)
            assert event.seq == first
            text = queries("postgres", scene.harness.names)["list_settled"]
            filled = re.sub(r"%\((\w+)\)s", lambda match: OPERATORS_VALUES[match[1]], text)
            rows = scene.query(f"EXPLAIN (ANALYZE, FORMAT JSON) {filled}")
            walked = [node for node in nodes(rows[0][0][0]["Plan"]) if is_walk(node)]
            assert sum(node["Actual Rows"] for node in walked) <= first

    asyncio.run(case())


def is_walk(node: dict[str, Any]) -> bool:
    return bool(node.get("Alias") == "e" and node.get("Relation Name") == "outbox_event")


def test_an_empty_poll_costs_the_same_with_a_million_events_of_history(
    postgres_database: str, old_url: str
) -> None:
    async def poll_seconds(url: str) -> float:
        store = PostgresStore(url)
        await store.initialise()
        await store.open()
        lane = await store.lane("default")
        roster = await store.renew(lane.id, "poll", strategy="leader", keep=None, lease_seconds=60)
        request = ClaimRequest(limit=1000, buckets=frozenset({63}))
        fence = Fence(lane.id, "poll", roster.token)
        took = []
        for _ in range(200):
            started = time.perf_counter()
            await store.claim(fence, request)
            took.append(time.perf_counter() - started)
        await store.close()
        return statistics.quantiles(took, n=10)[0]

    fresh, aged = asyncio.run(poll_seconds(postgres_database)), asyncio.run(poll_seconds(old_url))
    assert aged < fresh * 2 + 0.0005, f"{fresh * 1000:.2f} ms grew to {aged * 1000:.2f} ms"


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_many_events_parked_behind_one_dead_key_cost_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Polls and unparking look at keys, not at the events behind them."""
    if kind == "postgres":
        harness: Any = PostgresHarness(request.getfixturevalue("postgres_database"))
    else:
        harness = SqliteHarness(tmp_path / "outbox.db")

    async def case() -> None:
        async with opened(harness) as scene:
            with scene.connected() as connection:
                head, *_ = scene.add(*["stuck"] * 20_000, connection=connection)
            await scene.fail(head, None)
            while rows := await scene.claim(limit=5000):
                await scene.park(*(row.seq for row in rows))
            (other,) = scene.add("other")
            assert await scene.seqs() == [other]
            started = time.perf_counter()
            for _ in range(50):
                assert await scene.unpark() == 0
                assert await scene.seqs() == [other]
            assert (time.perf_counter() - started) / 50 < 0.05

    asyncio.run(case())


# --- SQLite --------------------------------------------------------------------------------

SQLITE_SEARCHES = {
    "claim_due": ["q USING INDEX outbox_queue_due (lane=? AND due_at<?)"],
    "claim_pending": [
        "q USING INDEX outbox_queue_hot (lane=? AND seq>?)",
        "e USING INTEGER PRIMARY KEY (rowid=?)",
        "b USING INDEX outbox_queue_blockers (lane=? AND key=? AND seq<?)",
    ],
    "claim_bundle": [
        "q USING INDEX outbox_queue_hot (lane=? AND seq>?)",
        "e USING INTEGER PRIMARY KEY (rowid=?)",
        "b USING INDEX outbox_queue_blockers (lane=? AND key=? AND seq<?)",
    ],
    "settle_delivered": ["outbox_queue USING PRIMARY KEY (lane=? AND seq=?)"],
    "settle_failure": ["outbox_queue USING PRIMARY KEY (lane=? AND seq=?)"],
    "settle_released": ["outbox_queue USING PRIMARY KEY (lane=? AND seq=?)"],
    "settle_parked": [
        "q USING PRIMARY KEY (lane=? AND seq=?)",
        "b USING INDEX outbox_queue_blockers (lane=? AND key=? AND seq<?)",
    ],
    "unblocked_keys": [
        "q USING INDEX outbox_queue_blockers (lane=? AND key>?)",
        "q USING INDEX outbox_queue_blockers (lane=? AND key=?)",
        "head USING PRIMARY KEY (lane=? AND seq=?)",
    ],
    "unpark_key": [
        "outbox_queue USING PRIMARY KEY (lane=? AND seq=?)",
        "outbox_queue USING INDEX outbox_queue_blockers (lane=? AND key=?)",
    ],
    "has_work": ["outbox_queue USING INDEX outbox_queue_hot (lane=?)"],
}


@pytest.mark.parametrize("name", SQLITE_SEARCHES)
def test_sqlite_plan(name: str, sqlite_path: Path) -> None:
    async def initialise() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    sql = queries("sqlite", NAMES)
    text = bundle_query(sql) if name == "claim_bundle" else sql[name]
    values = dict.fromkeys(re.findall(r":(\w+)", text))
    with closing(sqlite3.connect(sqlite_path)) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    steps = [row[3] for row in rows]
    for search in SQLITE_SEARCHES[name]:
        assert f"SEARCH {search}" in steps, json.dumps(steps, indent=1)
    scans = [step for step in steps if step.startswith("SCAN") and "outbox" in step]
    assert not scans
