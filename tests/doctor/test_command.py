"""`commitrelay doctor`: silent on a healthy outbox, exit 1 and a remedy otherwise."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox
from commitrelay.doctor import CHECKS
from tests.acceptance.cli import as_json, commitrelay, succeed, the_error

APPLY = {
    "sqlite": {"parts", "bloat", "clock", "wal", "busy", "encryption", "relays", "lease"},
    "mariadb": {
        "parts",
        "isolation",
        "long-transactions",
        "clock",
        "binlog",
        "encryption",
        "relays",
        "lease",
    },
    "postgres": {
        *("parts", "isolation", "pooler", "autovacuum", "bloat", "long-transactions", "clock"),
        *("replication-slots", "encryption", "relays", "lease"),
    },
}


@pytest.mark.parametrize("kind", APPLY)
def test_a_healthy_outbox(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'outbox.db'}"
    else:
        url = request.getfixturevalue("dedicated_server")(kind).url
    succeed("init", "--database", url)
    publish = ("--publish", (tmp_path / "topics").as_uri())
    report = as_json("doctor", "--database", url, *publish)
    assert report["healthy"]
    assert {check["check"] for check in report["checks"]} == APPLY[kind]
    text = succeed("doctor", "--database", url, *publish)
    assert text.count("✓") == len(APPLY[kind])
    assert "Nothing found." in text


def test_what_is_found_has_a_remedy(sqlite_path: Path) -> None:
    url = f"sqlite:///{sqlite_path}"
    succeed("init", "--database", url)
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute("DROP TRIGGER outbox_enqueue")
    done = commitrelay("doctor", "--database", url)
    assert done.returncode == 1
    assert "✗ parts" in done.stdout
    assert "→ take its statement from" in done.stdout
    machine = commitrelay("doctor", "--database", url, "--json", "--check", "parts")
    assert machine.returncode == 1
    report: dict[str, Any] = json.loads(machine.stdout)
    assert not report["healthy"]
    (check,) = report["checks"]
    assert check["findings"][0]["remedy"]


def test_what_cannot_be_looked_at_is_said(sqlite_path: Path) -> None:
    url = f"sqlite:///{sqlite_path}"
    succeed("init", "--database", url)
    arguments = ("--database", url, "--publish", "kafka://127.0.0.1:1?delivery_timeout_seconds=2")
    with closing(sqlite3.connect(sqlite_path)) as connection:
        Outbox().add(connection, Event("Order", "1", "OrderPaid", {}))
        connection.commit()
    done = commitrelay("doctor", *arguments, "--check", "topics,lease")
    assert done.returncode == 1
    assert "? topics" in done.stdout


def test_wrong_use(sqlite_path: Path) -> None:
    url = f"sqlite:///{sqlite_path}"
    unknown = commitrelay("doctor", "--database", url, "--check", "parst")
    assert "did you mean parts?" in the_error(unknown, 2)
    assert "commitrelay init" in the_error(commitrelay("doctor", "--database", url), 1)
    succeed("init", "--database", url)
    nothing = commitrelay("doctor", "--database", url, "--check", "pooler")
    assert "nothing to look at" in the_error(nothing, 2)


def test_every_check_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/doctor.md").read_text("utf-8")
    for check in CHECKS:
        assert f"| `{check.name}` |" in page
