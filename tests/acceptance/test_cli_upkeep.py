"""purge, tail, lanes and status --watch, on real databases."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox
from commitrelay.registry import database
from commitrelay.sql import Names
from tests.acceptance.cli import (
    PROGRAM,
    as_json,
    commitrelay,
    environment,
    start,
    succeed,
    the_error,
)
from tests.acceptance.test_cli_outbox import connect, drain, orders
from tests.support import mariadb

DEADLINE_SECONDS = 60


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def outbox(request: pytest.FixtureRequest) -> str:
    """The URL of a database with an outbox."""
    if request.param == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('sqlite_path')}"
    else:
        url = str(request.getfixturevalue(f"{request.param}_database"))
    succeed("init", "--database", url)
    return url


def add(url: str, *events: Event) -> list[str]:
    opened = closing(mariadb.connect(url)) if url.startswith("mysql") else connect(url)
    with opened as connection:
        added = Outbox().add(connection, *events)
        connection.commit()
    return [str(event_id) for event_id in added]


def lane_of(url: str, name: str = "default") -> dict[str, Any]:
    lanes = as_json("lanes", "--database", url)["lanes"]
    return next(lane for lane in lanes if lane["name"] == name)


# --- purge ----------------------------------------------------------------------------------


def test_purge_says_what_it_would_do_and_does_it_with_yes(outbox: str, tmp_path: Path) -> None:
    add(outbox, *orders(5))
    drain(outbox, tmp_path / "topics")
    add(outbox, *orders(2))
    database = ("--database", outbox)
    assert as_json("purge", *database)["due"] == 0, "nothing is 7 days old"
    recent = (*database, "--retention", "0s")
    said = as_json("purge", *recent)
    assert (said["due"], said["dry_run"], said["deleted"]) == (5, True, 0)
    assert "--yes" in succeed("purge", *recent)
    assert as_json("purge", *recent, "--yes", "--dry-run")["deleted"] == 0
    assert len(as_json("list", *database)["events"]) == 7
    folder = tmp_path / "archive"
    done = as_json("purge", *recent, "--yes", "--archive", str(folder), COMMITRELAY_ACTOR="ann")
    assert (done["deleted"], done["archived"], len(done["files"])) == (5, 5, 1)
    assert len(as_json("list", *database)["events"]) == 2, "what was not sent stays"
    (row,) = as_json("audit", *database)["acts"]
    assert (row["actor"], row["action"], row["events"]) == ("ann", "purge", 5)
    assert as_json("purge", *recent, "--yes")["due"] == 0


def test_purge_without_an_age_is_refused(outbox: str) -> None:
    refused = commitrelay("purge", "--database", outbox, "--retention", "never", "--yes")
    assert "--retention 7d" in the_error(refused, 2)


# --- tail -----------------------------------------------------------------------------------


@contextmanager
def tailing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    program = start("tail", *arguments)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def next_line(program: subprocess.Popen[str]) -> dict[str, Any]:
    assert program.stdout is not None
    line: dict[str, Any] = json.loads(program.stdout.readline())
    return line


def test_tail_follows_what_is_added_and_published(outbox: str, tmp_path: Path) -> None:
    add(outbox, *orders(1))
    with tailing("--database", outbox, "--json", "--every", "100ms") as program:
        first = next_line(program)
        assert (first["what"], first["aggregate_id"], first["lane"]) == ("added", "1", None)
        add(outbox, *orders(2, first=2))
        assert [next_line(program)["aggregate_id"] for _ in range(2)] == ["2", "3"]
        drain(outbox, tmp_path)
        published = [next_line(program) for _ in range(3)]
        assert {(each["what"], each["lane"]) for each in published} == {("published", "default")}
        assert sorted(each["aggregate_id"] for each in published) == ["1", "2", "3"]
        assert all(each["relay"] and each["at"] for each in published)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=DEADLINE_SECONDS)
        assert (program.returncode, errors) == (130, "")


def test_tail_filters_and_stops_at_the_end_if_told(outbox: str) -> None:
    add(outbox, *orders(3), Event("Invoice", "9", "InvoiceSent", {}))
    database = ("--database", outbox, "--no-follow")

    def tailed(*arguments: str) -> list[str]:
        lines = succeed("tail", *database, "--json", *arguments).splitlines()
        return [json.loads(line)["aggregate_id"] for line in lines]

    assert tailed() == ["1", "2", "3", "9"]
    assert tailed("--last", "2") == ["3", "9"]
    assert tailed("--aggregate", "Order") == ["1", "2", "3"]
    assert tailed("--aggregate", "Order/2") == ["2"]
    assert tailed("--type", "InvoiceSent") == ["9"]
    assert tailed("--what", "published") == []
    assert "OrderPlaced  Order/2" in succeed("tail", *database)


def test_tail_tells_an_event_that_commits_late(postgres_database: str) -> None:
    succeed("init", "--database", postgres_database)
    with (
        connect(postgres_database) as late,
        tailing("--database", postgres_database, "--json", "--every", "100ms") as program,
    ):
        Outbox().add(late, *orders(1))
        add(postgres_database, *orders(1, first=2))
        assert next_line(program)["aggregate_id"] == "2"
        late.commit()
        assert next_line(program)["aggregate_id"] == "1"


# --- lanes ----------------------------------------------------------------------------------


def test_lanes_are_listed_added_and_removed(outbox: str) -> None:
    database = ("--database", outbox)
    assert "default" in succeed("lanes", *database)
    filters = ("--aggregate-types", "Order,Cart", "--event-types", "OrderPlaced")
    succeed("lanes", "add", "audit", *filters, *database)
    audit = lane_of(outbox, "audit")
    assert (audit["aggregate_types"], audit["event_types"]) == (["Order", "Cart"], ["OrderPlaced"])
    again = commitrelay("lanes", "add", "audit", *database)
    assert "'audit' already" in the_error(again, 2)
    add(outbox, *orders(2), Event("Invoice", "1", "InvoiceSent", {}))
    assert lane_of(outbox, "audit")["waiting"] == 2
    kept = as_json("lanes", "remove", "audit", *database)
    assert kept == {"lane": "audit", "removed": False, "dropped": 0}
    removed = as_json("lanes", "remove", "audit", "--yes", *database)
    assert removed == {"lane": "audit", "removed": True, "dropped": 2}
    assert [lane["name"] for lane in as_json("lanes", *database)["lanes"]] == ["default"]
    acts = as_json("audit", *database)["acts"]
    assert [(act["action"], act["lane"], act["events"]) for act in acts] == [
        ("remove lane", "audit", 2),
        ("add lane", "audit", 0),
    ]


def test_the_filter_of_a_lane_is_changed_for_what_comes(outbox: str) -> None:
    database = ("--database", outbox)
    succeed("lanes", "add", "audit", "--aggregate-types", "Order", *database)
    add(outbox, *orders(2))
    invoices = ("lanes", "filter", "audit", "--event-types", "InvoiceSent", *database)
    before = {"aggregate_types": ["Order"], "event_types": None}
    plan = as_json(*invoices)
    assert plan == {
        "lane": "audit",
        "changed": False,
        "aggregate_types": None,
        "event_types": ["InvoiceSent"],
        "before": before,
        "waiting": 2,
        "audit": None,
    }
    assert succeed(*invoices) == (
        "Lane audit stays as it is: aggregate types Order and all event types → "
        "all aggregate types and event types InvoiceSent was asked for; --yes changes it.\n"
    )
    assert [act["action"] for act in as_json("audit", *database)["acts"]] == ["add lane"]
    done = as_json(*invoices, "--yes")
    assert (done["changed"], done["before"]) == (True, before)
    add(outbox, *orders(2), Event("Invoice", "1", "InvoiceSent", {}))
    audit = lane_of(outbox, "audit")
    assert (audit["waiting"], audit["aggregate_types"], audit["event_types"]) == (
        3,
        None,
        ["InvoiceSent"],
    )
    assert "already" in succeed(*invoices, "--yes")
    assert succeed("lanes", "filter", "audit", "--yes", *database) == (
        "Lane audit takes all aggregate types and all event types from now on.\n"
        "The 3 events in its queue stay.\n"
    )
    acts = as_json("audit", *database)["acts"]
    assert [act["action"] for act in acts] == ["filter lane", "filter lane", "add lane"]
    assert acts[1]["id"] == done["audit"]
    assert acts[1]["lane"] == "audit"
    assert acts[1]["detail"] == {
        "aggregate_types": None,
        "event_types": ["InvoiceSent"],
        "before": before,
    }


def test_a_lane_that_is_being_removed_is_not_filtered(sqlite_path: Path) -> None:
    url = f"sqlite:///{sqlite_path}"
    succeed("init", "--database", url)

    async def close() -> None:
        store = database(url, Names())
        await store.close_lane("default")
        await store.close()

    asyncio.run(close())
    refused = commitrelay("lanes", "filter", "default", "--yes", "--database", url)
    assert "or is being removed" in the_error(refused, 1)


def test_an_empty_lane_needs_no_yes(outbox: str) -> None:
    succeed("lanes", "add", "short", "--database", outbox)
    assert as_json("lanes", "remove", "short", "--database", outbox)["removed"]


def test_a_lane_with_a_relay_stays(outbox: str, tmp_path: Path) -> None:
    publish = ("--publish", tmp_path.as_uri())
    program = start("run", "--database", outbox, *publish)
    try:
        wait_for(lambda: lane_of(outbox)["relays"] == 1)
        refused = commitrelay("lanes", "remove", "default", "--yes", "--database", outbox)
        assert "stop them first" in the_error(refused, 1)
    finally:
        program.terminate()
        program.communicate(timeout=DEADLINE_SECONDS)
    assert lane_of(outbox)["relays"] == 0


def test_lanes_says_what_is_missing(sqlite_path: Path) -> None:
    url = f"sqlite:///{sqlite_path}"
    succeed("init", "--database", url)
    assert "which lane?" in the_error(commitrelay("lanes", "add", "--database", url), 2)
    assert "which lane?" in the_error(commitrelay("lanes", "filter", "--database", url), 2)
    unknown = commitrelay("lanes", "filter", "defualt", "--yes", "--database", url)
    assert "did you mean" in the_error(unknown, 2)
    unknown = commitrelay("lanes", "remove", "defualt", "--database", url)
    assert "did you mean default?" in the_error(unknown, 2)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline


# --- status --watch -------------------------------------------------------------------------


def test_status_watch_prints_again_and_again(outbox: str) -> None:
    program = start("status", "--watch", "--every", "100ms", "--json", "--database", outbox)
    try:
        assert next_line(program)["lanes"][0]["counts"]["pending"] == 0
        add(outbox, *orders(2))
        wait_for(lambda: next_line(program)["lanes"][0]["counts"]["pending"] == 2)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=DEADLINE_SECONDS)
        assert (program.returncode, errors) == (130, "")
    finally:
        program.kill()
        program.communicate()


def test_status_watch_redraws_a_terminal_and_leaves_it_as_it_was(sqlite_path: Path) -> None:
    url = f"sqlite:///{sqlite_path}"
    succeed("init", "--database", url)
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, "status", "--watch", "--every", "100ms", "--database", url],
        stdout=theirs,
        stdin=theirs,
        stderr=theirs,
        env=environment(TERM="xterm"),
    )
    os.close(theirs)
    try:
        seen = read_until(ours, b"No relay is running", times=2)
        assert seen.startswith(b"\x1b[?1049h\x1b[?25l")
        program.send_signal(signal.SIGINT)
        assert b"\x1b[?25h\x1b[?1049l" in read_until(ours, b"\x1b[?1049l")
        assert program.wait(DEADLINE_SECONDS) == 130
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def read_until(descriptor: int, text: bytes, times: int = 1) -> bytes:
    seen = b""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while seen.count(text) < times:
        assert time.monotonic() < deadline, seen
        ready, _, _ = select.select([descriptor], [], [], 1)
        if ready:
            seen += os.read(descriptor, 65536)
    return seen
