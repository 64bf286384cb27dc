"""Each condition on MariaDB: found when it is made, and silence otherwise."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.doctor.examined import found, initialised, the_problem
from tests.support import mariadb
from tests.support.forwarder import Forwarder, own_address


@pytest.fixture
def outbox(mariadb_database: str) -> str:
    return initialised(mariadb_database)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP INDEX outbox_queue_hot ON outbox_queue", "index outbox_queue_hot is missing"),
        ("DROP TRIGGER outbox_enqueue", "trigger outbox_enqueue is missing"),
    ],
)
def test_parts(outbox: str, statement: str, problem: str) -> None:
    assert found("parts", outbox) == []
    mariadb.run(outbox, statement)
    assert the_problem("parts", outbox).startswith(problem)


def test_a_log_that_was_set_up_without_a_trigger_lacks_nothing(outbox: str) -> None:
    mariadb.run(
        outbox,
        "DROP TRIGGER outbox_enqueue",
        "ALTER TABLE outbox_event ADD COLUMN enqueued BOOLEAN NOT NULL DEFAULT FALSE",
    )
    assert found("parts", outbox) == []


def test_long_transactions(outbox: str) -> None:
    with closing(mariadb.connect(outbox)) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT connection_id()")
            ((pid,),) = cursor.fetchall()
            cursor.execute("INSERT INTO outbox_lane (name) VALUES ('slow')")
        assert found("long-transactions", outbox, long_seconds=300) == []
        time.sleep(1.2)  # its age is told in whole seconds
        assert f"pid {pid}" in the_problem("long-transactions", outbox, long_seconds=0)
        connection.rollback()


def test_clock(outbox: str) -> None:
    assert found("clock", outbox) == []
    problem = the_problem("clock", outbox, clock=lambda: time.time() + 3600)
    assert "1h behind this machine's" in problem


def test_encryption_of_the_database(outbox: str) -> None:
    assert found("encryption", outbox) == []
    parts = urlsplit(outbox)
    address = own_address()
    if address is None or parts.port is None:
        pytest.skip("this machine has no address but the loopback's")
    with Forwarder(parts.port) as forwarder:
        remote = parts._replace(netloc=f"root@{address}:{forwarder.port}").geturl()
        assert "not encrypted" in the_problem("encryption", remote)


def test_what_concerns_the_whole_server(dedicated_server: Any) -> None:
    """The global isolation level and the binary log: other tests would see them."""
    url = initialised(dedicated_server("mariadb").url)
    assert found("isolation", url) == []
    mariadb.run(url, "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    assert "SERIALIZABLE" in the_problem("isolation", url)
    assert found("binlog", url) == []
    mariadb.run(url, "SET GLOBAL binlog_format = 'STATEMENT'")
    assert "by statement" in the_problem("binlog", url)
