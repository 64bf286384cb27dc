"""What every test may ask for: a database, topics, a server to break."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support import kafka, mariadb, postgres, services

IN_CI = os.environ.get("CI") == "true"
POSTGRES_URL = services.url_of("postgres")
MARIADB_URL = services.url_of("mariadb")
KAFKA_URL = services.url_of("kafka")
RABBITMQ_URL = services.url_of("rabbitmq")
NATS_URL = services.url_of("nats")
REDIS_URL = services.url_of("redis")


SERVER_FIXTURES = {
    "postgres_url",
    "mariadb_url",
    "kafka_bootstrap",
    "real_kafka",
    "dedicated_server",
    "rabbitmq_url",
    "nats_url",
    "redis_url",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "servers: needs a real server; set by asking for one")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for a server or a clock."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("servers")


def give_up(reason: str) -> NoReturn:
    """A missing server is a skip on a laptop and a failure in CI."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The server; tests use `postgres_database`."""
    if POSTGRES_URL is None:
        give_up("no PostgreSQL: run `scripts/services up postgres`")
    return POSTGRES_URL


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """The URL of an empty database that this test has to itself."""
    with postgres.fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    """The server; tests use `mariadb_database`."""
    if MARIADB_URL is None:
        give_up("no MariaDB: run `scripts/services up mariadb`")
    return MARIADB_URL


@pytest.fixture
def mariadb_database(mariadb_url: str) -> Iterator[str]:
    """The URL of an empty database that this test has to itself."""
    with mariadb.fresh_database(mariadb_url) as url:
        yield url


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


@pytest.fixture(scope="session")
def kafka_bootstrap() -> Iterator[str]:
    """`host:port` of the real Kafka; of librdkafka's mock where there is none."""
    if KAFKA_URL is not None:
        yield kafka.bootstrap(KAFKA_URL)
    elif IN_CI:
        give_up("no Kafka: run `scripts/services up kafka`")
    else:
        with kafka.mock_cluster() as bootstrap:
            yield bootstrap


@pytest.fixture(scope="session")
def real_kafka() -> str:
    """`host:port`, for tests of what the mock cannot do, such as transactions."""
    if KAFKA_URL is None:
        give_up("needs a real Kafka, the mock does not do: run `scripts/services up kafka`")
    return kafka.bootstrap(KAFKA_URL)


@pytest.fixture
def kafka_topic(kafka_bootstrap: str) -> Iterator[kafka.Topics]:
    """Makes fresh topics: `kafka_topic()`, `kafka_topic("orders", partitions=1, config={…})`."""
    topics = kafka.Topics(kafka_bootstrap, is_mock=KAFKA_URL is None)
    yield topics
    topics.delete_all()


@pytest.fixture(scope="session")
def nats_url() -> str:
    """A server with JetStream."""
    if NATS_URL is None:
        give_up("no NATS: run `scripts/services up nats`")
    return NATS_URL


@pytest.fixture(scope="session")
def redis_url() -> str:
    if REDIS_URL is None:
        give_up("no Redis: run `scripts/services up redis`")
    return REDIS_URL


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    """The real RabbitMQ; tests make queues of their own there."""
    if RABBITMQ_URL is None:
        give_up("no RabbitMQ: run `scripts/services up rabbitmq`")
    return RABBITMQ_URL


@pytest.fixture
def dedicated_server(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[str], services.DedicatedServer]]:
    """Starts a server for this test alone: `dedicated_server("kafka").stop()`."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    started: list[services.DedicatedServer] = []

    def start(kind: str) -> services.DedicatedServer:
        try:
            server = services.DedicatedServer(kind, f"{worker}-{os.getpid()}-{len(started)}")
        except services.Unavailable as error:
            give_up(str(error))
        started.append(server)
        return server

    yield start
    for server in started:
        server.remove()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing = {
        "NO POSTGRESQL: its tests were skipped": POSTGRES_URL is None,
        "NO MARIADB: its tests were skipped": MARIADB_URL is None,
        "NO REAL KAFKA: its tests ran on librdkafka's mock cluster, or were skipped": (
            KAFKA_URL is None
        ),
        "NO RABBITMQ: its tests were skipped": RABBITMQ_URL is None,
        "NO NATS: its tests were skipped": NATS_URL is None,
        "NO REDIS: its tests were skipped": REDIS_URL is None,
    }
    for text in (text for text, is_missing in missing.items() if is_missing):
        terminalreporter.write_line(f"*** {text}. See `make services`.", red=True, bold=True)
