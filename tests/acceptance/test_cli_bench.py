"""The benchmark measures what it says, and leaves nothing behind."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psycopg
import pytest

from tests.acceptance.cli import as_json, commitrelay, start, the_error

QUICK = ("bench", "--events", "2000", "--keys", "500", "--rounds", "1", "--seconds", "0.5")
WHOLE = ("drain", "latency", "sustained", "add", "idle")


def check(sample: dict[str, Any], values: int = 1) -> None:
    assert len(sample["values"]) == values
    assert sample["median"] > 0
    assert "spread" in sample


def test_all_parts_on_sqlite_and_files(tmp_path: Path) -> None:
    plots = tmp_path / "plots"
    report = as_json(*QUICK, "--plots", str(plots), timeout=200, TMPDIR=str(tmp_path))
    assert report.keys() >= {"machine", "plan", "noise", "conclusions", *WHOLE}
    for found in report["drain"].values():
        check(found["events_per_second"])
        check(found["of_bare_loop"])
        check(found["cpu_us_per_event"]["relay"])
        check(found["peak_memory_mb"])
        assert found["timeline"][0][-1][1] == 2000
    for part in ("latency", "sustained"):
        for found in report[part].values():
            check(found["p50_ms"])
            assert found["p99_ms"]["median"] >= found["p50_ms"]["median"]
    for unit in ("us_per_transaction", "cpu_us_per_transaction"):
        assert report["add"][unit].keys() == {"no event", "INSERT", "Outbox.add"}
    check(report["idle"]["queries_per_second"])
    assert report["noise"]["verdict"] == "too noisy to conclude"  # one round
    assert report["conclusions"] is None
    assert {path.name for path in plots.iterdir()} == {
        "throughput.svg", "latency.svg", "sustained.svg",
    }  # fmt: skip
    for path in plots.iterdir():
        ElementTree.parse(path)
    assert [path for path in tmp_path.iterdir() if path != plots] == []


def test_a_table_for_people() -> None:
    done = commitrelay(*QUICK, "--parts", "drain", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Draining a backlog" in done.stdout
    assert "bare loop" in done.stdout
    assert "Too noisy to conclude anything:" in done.stdout
    assert "drain 1/1: bare loop" in done.stderr


def test_curves_with_history_backlog_parked_events_lanes_and_relays(tmp_path: Path) -> None:
    report = as_json(
        *QUICK, "--curve", "history,backlog,parked,lanes,relays", "--scale", "0.001",
        "--plots", str(tmp_path), timeout=250,
    )  # fmt: skip
    assert report["curves"].keys() == {"history", "backlog", "parked", "lanes", "relays"}
    for curve in report["curves"].values():
        assert len(curve["points"]) >= 3
        for point in curve["points"].values():
            check(point["strict"])
    assert len(list(tmp_path.glob("curve-*.svg"))) == 5


def leftovers(database: str) -> list[Any]:
    with psycopg.connect(database) as connection:
        query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'commitrelay%'"
        return connection.execute(query).fetchall()


def test_postgresql_and_kafka(postgres_database: str, real_kafka: str) -> None:
    report = as_json(
        *QUICK, "--parts", "drain,idle", "--database", postgres_database,
        "--publish", f"kafka://{real_kafka}", timeout=250,
    )  # fmt: skip
    assert report["drain"].keys() == {
        "bare loop", "strict, one per key", "relaxed", "strict, transactional",
    }  # fmt: skip
    for found in report["drain"].values():
        check(found["wal_bytes_per_event"]["add"], values=4)
        check(found["wal_bytes_per_event"]["deliver"])
    assert report["database"].startswith("PostgreSQL 1")
    assert leftovers(postgres_database) == []
    assert bench_topics(real_kafka) == []


def bench_topics(bootstrap: str) -> list[str]:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
    return [name for name in topics if name.startswith("commitrelay-bench")]


def test_mariadb(mariadb_database: str) -> None:
    arguments = ("--parts", "drain,latency,idle", "--database", mariadb_database)
    report = as_json(*QUICK, *arguments, timeout=250)
    check(report["drain"]["strict"]["events_per_second"])
    check(report["idle"]["queries_per_second"])


@pytest.mark.servers
@pytest.mark.parametrize("broker", ["rabbitmq_url", "nats_url", "redis_url"])
def test_other_brokers(broker: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(broker)
    report = as_json(*QUICK, "--parts", "drain", "--publish", url, timeout=250)
    check(report["drain"]["strict, one per key"]["of_bare_loop"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    path, topics = tmp_path / "shop.db", tmp_path / "topics"
    program = start(
        *QUICK[:-1], "60", "--parts", "drain,latency",
        "--database", f"sqlite:///{path}", "--publish", topics.as_uri(),
    )  # fmt: skip
    assert program.stderr is not None
    while "drain 1/1: strict" not in program.stderr.readline():
        assert program.poll() is None
    program.send_signal(number)
    output, _errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert output == ""
    with closing(sqlite3.connect(path)) as connection:
        left = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert [name for (name,) in left if name != "sqlite_sequence"] == []
    assert list(topics.glob("*.jsonl")) == []


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
    done = commitrelay(*QUICK, *arguments, timeout=120)
    assert "c4n4ry" not in the_error(done, 1)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--publish", "stdout:"), "cannot be read back"),
        (("--curve", "histroy"), "did you mean history?"),
        (("--parts", "drian"), "did you mean drain?"),
        (("--database", "oracle://h"), "unknown scheme"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in the_error(commitrelay(*QUICK, *arguments), 2)


def test_a_broker_that_cannot_be_used_is_known_before_the_database_is_touched(
    tmp_path: Path,
) -> None:
    database = tmp_path / "shop.db"
    done = commitrelay(*QUICK, "--database", f"sqlite:///{database}", "--publish", "stdout:")
    assert "cannot be read back" in the_error(done, 2)
    assert not database.exists()
