"""Each condition on PostgreSQL: found when it is made, and silence otherwise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from commitrelay.sql import Names
from commitrelay.stores.postgres.store import PostgresStore
from tests.doctor.examined import found, initialised, the_problem
from tests.support.forwarder import Forwarder, own_address
from tests.support.pooler import TransactionPooler


@pytest.fixture
def outbox(postgres_database: str) -> str:
    return initialised(postgres_database)


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP INDEX outbox_queue_hot", "index outbox_queue_hot is missing"),
        ("DROP INDEX outbox_event_idempotency", "index outbox_event_idempotency is missing"),
        ("DROP TRIGGER outbox_enqueue ON outbox_event", "trigger outbox_enqueue is missing"),
        (
            "ALTER TABLE outbox_event DISABLE TRIGGER outbox_enqueue",
            "trigger outbox_enqueue does not work",
        ),
        (
            "UPDATE pg_index SET indisvalid = false "
            "WHERE indexrelid = 'outbox_queue_due'::regclass",
            "index outbox_queue_due does not work",
        ),
    ],
)
def test_parts(outbox: str, statement: str, problem: str) -> None:
    assert found("parts", outbox) == []
    run(outbox, statement)
    assert the_problem("parts", outbox).startswith(problem)


def test_parts_of_an_outbox_with_other_names(postgres_database: str) -> None:

    async def initialise() -> None:
        store = PostgresStore(postgres_database, names=Names("own", "my"))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    assert found("parts", postgres_database, schema="own", table_prefix="my") == []
    run(postgres_database, "DROP INDEX own.my_queue_hot")
    assert "my_queue_hot" in the_problem(
        "parts", postgres_database, schema="own", table_prefix="my"
    )


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_isolation(outbox: str, level: str) -> None:
    assert found("isolation", outbox) == []
    name = urlsplit(outbox).path.strip("/")
    run(outbox, f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    assert level in the_problem("isolation", outbox)


def test_pooler(outbox: str) -> None:
    assert found("pooler", outbox) == []
    parts = urlsplit(outbox)
    assert parts.port is not None
    with TransactionPooler(parts.port) as pooler:
        through = parts._replace(netloc=f"postgres@127.0.0.1:{pooler.port}").geturl()
        assert "pooler" in the_problem("pooler", through)
        copes = {"store": {"notify": "off", "prepare_threshold": "off"}}
        assert found("pooler", through, options=copes) == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("ALTER TABLE outbox_queue SET (autovacuum_enabled = false)", "autovacuum is off for"),
        ("ALTER TABLE outbox_queue RESET (autovacuum_vacuum_scale_factor)", "lost its autovacuum"),
    ],
)
def test_autovacuum(outbox: str, statement: str, problem: str) -> None:
    assert found("autovacuum", outbox) == []
    run(outbox, statement)
    assert problem in the_problem("autovacuum", outbox)


def test_bloat(outbox: str) -> None:
    assert found("bloat", outbox) == []
    run(
        outbox,
        "ALTER TABLE outbox_queue SET (autovacuum_enabled = false)",
        "INSERT INTO outbox_queue (seq, key, event_id, lane, bucket) "
        "SELECT n, n, gen_random_uuid(), 1, 0 FROM generate_series(1, 60000) AS n",
        "DELETE FROM outbox_queue",
    )
    wait_until_told(outbox)
    assert "60,000 dead rows" in the_problem("bloat", outbox)
    run(outbox, "VACUUM outbox_queue")
    assert found("bloat", outbox) == []


def wait_until_told(url: str) -> None:
    """A server's statistics follow a moment later."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(
                "SELECT n_dead_tup FROM pg_stat_all_tables WHERE relname = 'outbox_queue'"
            ).fetchone()
        if row is not None and row[0] >= 60_000:
            return
        time.sleep(0.05)
    raise TimeoutError("the statistics did not follow within 60 s")


def test_long_transactions(outbox: str) -> None:
    with psycopg.connect(outbox, application_name="report") as connection:
        connection.execute("SELECT 1")
        pid = connection.info.backend_pid
        assert found("long-transactions", outbox, long_seconds=300) == []
        time.sleep(0.02)
        problem = the_problem("long-transactions", outbox, long_seconds=0.01)
        assert f"pid {pid}" in problem
        assert "report" in problem
        assert "idle in transaction" in problem
    assert found("long-transactions", outbox, long_seconds=0.01) == []


@pytest.mark.parametrize(("shift", "way"), [(3600, "behind"), (-3600, "ahead of")])
def test_clock(outbox: str, shift: float, way: str) -> None:
    assert found("clock", outbox) == []
    problem = the_problem("clock", outbox, clock=lambda: time.time() + shift)
    assert f"1h {way} this machine's" in problem


def test_encryption_of_the_database(outbox: str) -> None:
    assert found("encryption", outbox) == [], "on the loopback interface"
    parts = urlsplit(outbox)
    address = own_address()
    if address is None or parts.port is None:
        pytest.skip("this machine has no address but the loopback's")
    with Forwarder(parts.port) as forwarder:
        remote = parts._replace(netloc=f"postgres@{address}:{forwarder.port}").geturl()
        assert "not encrypted" in the_problem("encryption", remote)


@contextmanager
def slot(url: str, kind: str, name: str) -> Iterator[None]:
    second = "'pgoutput'" if kind == "logical" else "true"
    run(url, f"SELECT pg_create_{kind}_replication_slot('{name}', {second})")
    try:
        yield
    finally:
        run(url, f"SELECT pg_drop_replication_slot('{name}')")


def lose_what_slots_need(url: str) -> None:
    """Write more than the server keeps for slots, and let it remove what is old."""
    run(url, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    lost = "SELECT 1 FROM pg_replication_slots WHERE wal_status = 'lost'"
    deadline = time.monotonic() + 60
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(lost).fetchone() is None:
            assert time.monotonic() < deadline
            connection.execute("SELECT pg_logical_emit_message(false, 'test', 'x')")
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")


def test_what_concerns_the_whole_server(dedicated_server: Any) -> None:
    """Replication slots and autovacuum: other tests would see them."""
    url = initialised(dedicated_server("postgres").url)
    assert found("replication-slots", url) == []
    for kind in ("physical", "logical"):
        with slot(url, kind, "forgotten"):
            problem = the_problem("replication-slots", url)
            assert "slot forgotten has no reader" in problem
        assert found("replication-slots", url) == []
    with slot(url, "physical", "late"):
        lose_what_slots_need(url)
        assert "slot late is lost" in the_problem("replication-slots", url)
    assert found("autovacuum", url) == []
    run(url, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")
    deadline = time.monotonic() + 60
    while not found("autovacuum", url):
        assert time.monotonic() < deadline
    assert "off on this server" in the_problem("autovacuum", url)
