"""init, sql, status, list, show and run, on real databases."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox
from tests.acceptance.cli import as_json, commitrelay, start, succeed, the_error

Add = Callable[..., list[str]]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('sqlite_path')}"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def outbox(database: str) -> str:
    """The URL of a database with an outbox."""
    succeed("init", "--database", database)
    return database


def connect(url: str) -> Any:
    if url.startswith("sqlite:///"):
        return closing(sqlite3.connect(url.removeprefix("sqlite:///")))
    import psycopg  # noqa: PLC0415

    return psycopg.connect(url)


def add(url: str, *events: Event, prefix: str = "outbox", schema: str | None = None) -> list[str]:
    with connect(url) as connection:
        added = Outbox(prefix=prefix, schema=schema).add(connection, *events)
        connection.commit()
    return [str(event_id) for event_id in added]


def orders(count: int, first: int = 1) -> list[Event]:
    return [
        Event("Order", number, "OrderPlaced", {"number": number})
        for number in range(first, first + count)
    ]


def lines(directory: Path, topic: str = "order.events") -> list[dict[str, Any]]:
    path = directory / f"{topic}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_init_creates_then_has_nothing_to_do(database: str) -> None:
    assert "0001_initial" in succeed("init", "--database", database)
    assert succeed("init", "--database", database).startswith("Nothing to do")
    assert as_json("init", "--database", database)["applied"] == []


def test_without_init_the_error_says_to_run_it(database: str) -> None:
    for command in ("status", "list"):
        assert "commitrelay init" in the_error(commitrelay(command, "--database", database), 1)


def test_settings_come_from_file_and_environment(outbox: str, tmp_path: Path) -> None:
    assert as_json("status", DATABASE_URL=outbox)["lanes"][0]["lane"] == "default"
    (tmp_path / "commitrelay.toml").write_text(f'database = "{outbox}"\n', "utf-8")
    assert as_json("status", cwd=tmp_path)["lanes"][0]["lane"] == "default"


def test_sql_makes_the_same_tables_as_init(sqlite_path: Path) -> None:
    text = succeed("sql", "--dialect", "sqlite", "--table-prefix", "my")
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.executescript(text)
    url = f"sqlite:///{sqlite_path}"
    assert as_json("init", "--database", url, "--table-prefix", "my")["applied"] == []
    add(url, *orders(1), prefix="my")
    assert as_json("status", "--database", url, "--table-prefix", "my")["lanes"][0]["counts"][
        "pending"
    ] == 1  # fmt: skip
    assert as_json("sql", "--database", url)["dialect"] == "sqlite"


def test_sql_of_postgresql_runs_as_it_is(postgres_database: str) -> None:
    import psycopg  # noqa: PLC0415

    text = succeed("sql", "--database", postgres_database, "--table-prefix", "my")
    with psycopg.connect(postgres_database) as connection:
        connection.execute(text.encode())
    add(postgres_database, *orders(1), prefix="my")
    arguments = ("--database", postgres_database, "--table-prefix", "my")
    assert as_json("init", *arguments)["applied"] == []
    assert as_json("status", *arguments)["lanes"][0]["counts"]["pending"] == 1


def test_status_counts_and_checks_thresholds(outbox: str) -> None:
    add(outbox, *orders(3))
    status = as_json("status", "--database", outbox)
    (lane,) = status["lanes"]
    assert lane["counts"]["pending"] == 3
    assert lane["oldest_pending_seconds"] >= 0
    assert "pending" in succeed("status", "--database", outbox)
    succeed("status", "--database", outbox, "--max-lag", "1h", "--max-dead", "0")
    breached = commitrelay("status", "--database", outbox, "--max-lag", "0s", "--json")
    assert "oldest event waits" in the_error(breached, 3)
    assert json.loads(breached.stdout)["breaches"]


def test_list_filters_and_pages(outbox: str) -> None:
    add(outbox, *orders(5), Event("Invoice", "a/b", "InvoiceSent", "text"))

    def listed(*arguments: str) -> list[str]:
        page = as_json("list", "--database", outbox, *arguments)
        return [event["aggregate_id"] for event in page["events"]]

    assert listed() == ["a/b", "5", "4", "3", "2", "1"]
    assert listed("--aggregate", "Order") == ["5", "4", "3", "2", "1"]
    assert listed("--aggregate", "Order/3") == ["3"]
    assert listed("--aggregate", "Invoice/a/b") == ["a/b"]
    assert listed("--type", "InvoiceSent") == ["a/b"]
    assert listed("--status", "pending", "--limit", "1") == ["a/b"]
    assert listed("--status", "published") == []
    assert listed("--lane", "default", "--limit", "1") == ["a/b"]
    first = as_json("list", "--database", outbox, "--limit", "4")
    assert [event["aggregate_id"] for event in first["events"]] == ["a/b", "5", "4", "3"]
    assert listed("--before", str(first["next_before"])) == ["2", "1"]
    assert f"More: --before {first['next_before']}" in succeed(
        "list", "--database", outbox, "--limit", "4"
    )
    wrong = commitrelay("list", "--database", outbox, "--lane", "nowhere")
    assert "no lane 'nowhere'" in the_error(wrong, 2)


def test_show_tells_the_story(outbox: str, tmp_path: Path) -> None:
    text_id, binary_id = add(
        outbox,
        Event("Order", "7", "OrderPlaced", {"é": 1}, headers={"traceparent": "00-1"}),
        Event("Order", "7", "OrderScanned", b"\xff\x00\x1b"),
    )
    event = as_json("show", text_id, "--database", outbox)
    assert (event["payload"], event["payload_base64"]) == ('{"é":1}', None)
    assert event["headers"] == {"traceparent": "00-1"}
    assert event["deliveries"][0]["status"] == "pending"
    binary = as_json("show", binary_id, "--database", outbox)
    assert (binary["payload"], binary["payload_base64"]) == (None, "/wAb")
    drain(outbox, tmp_path)
    story = as_json("show", text_id, "--database", outbox)["deliveries"][0]
    assert story["status"] == "published"
    assert story["published_at"]
    assert story["relay"]
    text = succeed("show", text_id, "--database", outbox)
    assert "published" in text
    assert "traceparent" in text
    assert "\x1b" not in succeed("show", binary_id, "--database", outbox)


def test_show_tells_completed_from_published(outbox: str, tmp_path: Path) -> None:
    (event_id,) = add(outbox, *orders(1))
    drain(outbox, tmp_path)
    assert as_json("show", event_id, "--database", outbox)["completed_at"] is None
    with connect(outbox) as connection:
        assert Outbox().begin(connection, event_id) == "open"
        Outbox().complete(connection, event_id)
        connection.commit()
    event = as_json("show", event_id, "--database", outbox)
    assert event["completed_at"]
    assert event["deliveries"][0]["status"] == "completed"
    assert event["deliveries"][0]["published_at"]
    assert "completed" in succeed("show", event_id, "--database", outbox)


def test_show_of_what_is_not_there(outbox: str) -> None:
    missing = commitrelay("show", "01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10", "--database", outbox)
    assert "no event 01932b5e" in the_error(missing, 1)
    assert "is not an event id" in the_error(commitrelay("show", "7", "--database", outbox), 2)


def drain(database: str, directory: Path, *arguments: str) -> dict[str, int]:
    publish = ("--publish", directory.as_uri())
    totals: dict[str, int] = as_json("run", "--drain", "--database", database, *publish, *arguments)
    return totals


def test_run_drains_to_files_in_order_per_aggregate(outbox: str, tmp_path: Path) -> None:
    ids = add(outbox, *orders(50), *orders(50))
    totals = drain(outbox, tmp_path)
    assert (totals["published"], totals["dead"]) == (100, 0)
    delivered = lines(tmp_path)
    assert sorted(line["id"] for line in delivered) == sorted(ids)
    for number in range(50):
        of_this = [line["id"] for line in delivered if line["key"] == str(number + 1)]
        assert of_this == [ids[number], ids[number + 50]]
    status = as_json("status", "--database", outbox)["lanes"][0]
    assert sum(status["counts"].values()) == 0
    assert status["published_last_minute"] == 100


def test_run_takes_names_topic_and_lane_settings(database: str, tmp_path: Path) -> None:
    config = tmp_path / "relay.toml"
    config.write_text(
        f'database = "{database}"\ntable_prefix = "my"\n'
        f'publish = "{(tmp_path / "all").as_uri()}"\n'
        '[routes]\n"Order.OrderPlaced" = "placed"\n'
        '[[lanes]]\nname = "default"\n'
        f'[[lanes]]\nname = "invoices"\npublish = "{(tmp_path / "invoices").as_uri()}"\n'
        'aggregate_types = ["Invoice"]\ntopic = "{event_type|snake}"\n'
        "routes = { Nothing = 'nothing' }\n",
        "utf-8",
    )
    settings = ("--config", str(config))
    succeed("init", *settings)
    created = commitrelay("run", "--drain", *settings)
    assert created.returncode == 0, created.stderr
    assert "created lane invoices" in created.stderr
    add(database, *orders(2), Event("Invoice", "1", "InvoiceSent", {}), prefix="my")
    done = commitrelay("run", "--drain", "--json", *settings)
    assert json.loads(done.stdout)["published"] == 4
    assert "created lane" not in done.stderr
    assert [line["key"] for line in lines(tmp_path / "all", "placed")] == ["1", "2"]
    assert len(lines(tmp_path / "all", "invoice.events")) == 1
    assert len(lines(tmp_path / "invoices", "invoice_sent")) == 1
    assert not (tmp_path / "invoices" / "placed.jsonl").exists()


def test_the_relay_warns_of_a_filter_that_is_not_the_databases(outbox: str, tmp_path: Path) -> None:
    config = tmp_path / "relay.toml"
    settings = ("--config", str(config))

    def declare(*lines: str) -> None:
        entry = ("[[lanes]]", 'name = "audit"', *lines)
        top = (f'database = "{outbox}"', f'publish = "{tmp_path.as_uri()}"')
        config.write_text("\n".join((*top, *entry)), "utf-8")

    def log_of_a_run() -> list[dict[str, Any]]:
        done = commitrelay("run", "--drain", *settings)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stderr.splitlines()]

    def warnings() -> list[str]:
        lines = log_of_a_run()
        return [line["message"] for line in lines if line["level"] == "warning"]

    declare('aggregate_types = ["Order", "Cart"]')
    assert warnings() == []
    declare('aggregate_types = ["Cart", "Order"]')
    assert warnings() == [], "the order does not matter"
    declare('aggregate_types = ["Order", "Cart"]', 'event_types = ["It is"]')
    command = "commitrelay lanes filter audit --aggregate-types Order,Cart --event-types 'It is'"
    assert warnings() == [
        "lane audit takes aggregate types Order, Cart and all event types, but the settings say "
        "aggregate types Order, Cart and event types It is: the database's filter is used; "
        f"change it with: {command}"
    ]
    succeed(*shlex.split(command)[1:], "--yes", "--database", outbox)
    assert warnings() == []
    declare('topic = "audit"')
    assert warnings() == [], "it names no filter"


def test_an_undeclared_lane_is_not_created_by_a_typing_error(outbox: str, tmp_path: Path) -> None:
    publish = ("--publish", tmp_path.as_uri(), "--log-level", "error")
    wrong = commitrelay("run", "--drain", "--database", outbox, "--lane", "defualt", *publish)
    assert "defualt" in the_error(wrong, 2)
    assert [lane["lane"] for lane in as_json("status", "--database", outbox)["lanes"]] == [
        "default"
    ]


def test_run_to_standard_output(outbox: str) -> None:
    ids = add(outbox, *orders(2))
    text = succeed("run", "--once", "--database", outbox, "--publish", "stdout:")
    assert [json.loads(line)["id"] for line in text.splitlines()] == ids


@pytest.fixture
def relay(outbox: str, tmp_path: Path) -> Iterator[Any]:
    program = start("run", "--database", outbox, "--publish", tmp_path.as_uri())
    yield program
    program.kill()
    program.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_gracefully(number: signal.Signals, relay: Any, outbox: str) -> None:
    started = json.loads(relay.stderr.readline())
    assert started["message"] == "relay started"
    assert "default → file:///" in started["lanes"]
    add(outbox, *orders(3))
    while as_json("status", "--database", outbox)["lanes"][0]["published_last_minute"] < 3:
        pass
    relay.send_signal(number)
    _, log = relay.communicate(timeout=30)
    assert relay.returncode == 0
    stopped = json.loads(log.splitlines()[-1])
    assert (stopped["message"], stopped["published"]) == ("relay stopped", 3)
    assert as_json("status", "--database", outbox)["lanes"][0]["relays"] == {}


def test_no_password_in_any_output_or_log(tmp_path: Path) -> None:
    url = "postgresql://relay:c4n4ry@127.0.0.1:1/shop?sslpassword=c4n4ry"
    (tmp_path / "commitrelay.toml").write_text(
        f'database = "{url}"\npublish = "kafka://u:c4n4ry@127.0.0.1:1?ssl.key.password=c4n4ry"\n'
        '[kafka]\nsasl.password = "c4n4ry"\n',
        "utf-8",
    )
    program = start("run", "--log-level", "debug", cwd=tmp_path)
    try:
        assert program.stderr is not None
        log = program.stderr.readline() + program.stderr.readline()
        program.send_signal(signal.SIGTERM)
        output, rest = program.communicate(timeout=60)
    finally:
        program.kill()
    assert "127.0.0.1" in log
    assert "c4n4ry" not in log + rest + output
    assert program.returncode == 0
    for command in ("status", "list", "init"):
        done = commitrelay(command, cwd=tmp_path)
        assert "c4n4ry" not in done.stdout + done.stderr
        the_error(done, 1)
