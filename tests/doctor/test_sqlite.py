"""Each condition on SQLite: found when it is made, and silence otherwise."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from commitrelay.doctor import bloat, busy, wal
from tests.doctor.examined import found, initialised, the_problem


@pytest.fixture
def outbox(sqlite_path: Path) -> str:
    return initialised(f"sqlite:///{sqlite_path}")


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP INDEX outbox_queue_due", "index outbox_queue_due is missing"),
        ("DROP TRIGGER outbox_enqueue", "trigger outbox_enqueue is missing"),
    ],
)
def test_parts(outbox: str, sqlite_path: Path, statement: str, problem: str) -> None:
    assert found("parts", outbox) == []
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute(statement)
        connection.commit()
    assert the_problem("parts", outbox).startswith(problem)


def test_wal_mode(outbox: str, sqlite_path: Path) -> None:
    assert found("wal", outbox) == []
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    assert "not in WAL mode" in the_problem("wal", outbox)
    assert found("wal", outbox) == [], "it was set right"


def test_a_write_ahead_log_that_a_reader_pins(
    outbox: str, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "MAX_PAGES", 50)
    with (
        closing(sqlite3.connect(sqlite_path)) as writer,
        closing(sqlite3.connect(sqlite_path, isolation_level=None)) as reader,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM outbox_event").fetchone()
        writer.execute("CREATE TABLE filling (x)")
        writer.execute("INSERT INTO filling VALUES (zeroblob(400000))")
        writer.commit()
        assert "old snapshot" in the_problem("wal", outbox)
        reader.execute("COMMIT")
        assert found("wal", outbox) == []


def test_busy(outbox: str, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "WAIT_SECONDS", 0.1)
    assert found("busy", outbox) == []
    with closing(sqlite3.connect(sqlite_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "write lock" in the_problem("busy", outbox)
    assert found("busy", outbox) == []


def test_bloat(outbox: str, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloat, "MIN_BYTES", 1_000_000)
    assert found("bloat", outbox) == []
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute("CREATE TABLE filling (x)")
        connection.execute("INSERT INTO filling VALUES (zeroblob(3000000))")
        connection.execute("DELETE FROM filling")
        connection.commit()
    assert "are empty" in the_problem("bloat", outbox)


def test_clock(outbox: str) -> None:
    assert found("clock", outbox) == []
    assert "1h" in the_problem("clock", outbox, clock=lambda: time.time() + 3600)
