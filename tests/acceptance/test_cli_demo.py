"""The demo finds nothing wrong, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitrelay.demo.mysql_place import MysqlPlace
from commitrelay.sql import Names
from tests.acceptance.cli import PROGRAM, as_json, commitrelay, environment, start

FIELDS = {
    "added", "published", "consumed", "rolled_back", "duplicates", "out_of_order", "lost",
    "events_per_second",
}  # fmt: skip


def check(report: dict[str, Any]) -> None:
    assert report.keys() >= FIELDS
    assert report["added"] > 100
    assert report["added"] == report["published"] == report["consumed"]
    assert report["rolled_back"] > 0
    for wrong in ("duplicates", "out_of_order", "lost", "delivered_after_rollback"):
        assert report[wrong] == 0


def test_sqlite_and_files(tmp_path: Path) -> None:
    check(as_json("demo", "--seconds", "3", TMPDIR=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_gets_json_and_a_directory_is_kept(tmp_path: Path) -> None:
    done = commitrelay(
        "demo", "--seconds", "1", "--writers", "2", "--rate", "0", "--directory", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))
    (folder,) = tmp_path.iterdir()
    assert (folder / "orders.db").exists()


def test_tables_and_topics_of_its_own_go_away(tmp_path: Path) -> None:
    path, topics = tmp_path / "shop.db", tmp_path / "topics"
    database = ("--database", f"sqlite:///{path}", "--publish", topics.as_uri())
    check(as_json("demo", "--seconds", "1", *database))
    with closing(sqlite3.connect(path)) as connection:
        left = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert [name for (name,) in left if name != "sqlite_sequence"] == []
    assert list(topics.glob("*.jsonl")) == []


def test_it_reads_no_settings(tmp_path: Path) -> None:
    check(as_json("demo", "--seconds", "1", COMMITRELAY_DATABASE="oracle://h", cwd=tmp_path))


def test_ctrl_c_ends_it_with_the_result(tmp_path: Path) -> None:
    program = start("demo", "--seconds", "600", "--json", "--directory", str(tmp_path))
    while not list(tmp_path.glob("*/topics/*.jsonl")):
        assert program.poll() is None
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    report = json.loads(output)
    assert report["lost"] == 0
    assert report["seconds"] < 600


@pytest.mark.parametrize("terminal", ["xterm-256color", "dumb"])
def test_on_a_terminal_it_draws_and_sums_up(terminal: str) -> None:
    leader, follower = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, "demo", "--seconds", "2"],
        stdout=follower,
        env=environment(TERM=terminal, COLUMNS="80", LINES="30"),
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            seen += os.read(leader, 65536)
        except OSError:  # Linux says so when the last writer has closed a terminal
            break
    os.close(leader)
    text = seen.decode()
    assert program.wait(60) == 0
    assert "events/s" in text
    assert "Everything that was committed was delivered, once and in order." in text
    assert ("\x1b" in text) == (terminal != "dumb")


def test_postgresql_and_kafka(postgres_database: str, kafka_bootstrap: str) -> None:
    report = as_json(
        "demo", "--seconds", "3", "--database", postgres_database,
        "--publish", f"kafka://{kafka_bootstrap}",
        timeout=120,
    )  # fmt: skip
    check(report)
    import psycopg  # noqa: PLC0415

    with psycopg.connect(postgres_database) as connection:
        query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'commitrelay%'"
        assert connection.execute(query).fetchall() == []


def test_mariadb(mariadb_database: str) -> None:
    check(as_json("demo", "--seconds", "2", "--database", mariadb_database))
    connection = MysqlPlace(mariadb_database, Names()).connect()
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == ()


@pytest.mark.servers
@pytest.mark.parametrize("broker", ["rabbitmq_url", "nats_url", "redis_url"])
def test_other_brokers(broker: str, request: pytest.FixtureRequest) -> None:
    check(as_json("demo", "--seconds", "2", "--publish", request.getfixturevalue(broker)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--database", "postgresql://u:c4n4ry@127.0.0.1:1/d"),
        ("--database", "mysql://u:c4n4ry@127.0.0.1:1/d"),
        ("--publish", "kafka://u:c4n4ry@127.0.0.1:1"),
        ("--publish", "amqp://u:c4n4ry@127.0.0.1:1/"),
        ("--publish", "nats://u:c4n4ry@127.0.0.1:1"),
        ("--publish", "redis://u:c4n4ry@127.0.0.1:1"),
    ],
)
def test_a_stopped_server_is_one_line(arguments: tuple[str, ...]) -> None:
    done = commitrelay("demo", "--seconds", "1", *arguments, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("commitrelay: ")
    assert done.stderr.count("\n") == 1
    assert "c4n4ry" not in done.stderr + done.stdout
