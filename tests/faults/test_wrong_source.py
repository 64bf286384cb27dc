"""A source that cannot be opened says why, in one line without a password."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable, Collection, Iterator

import pytest

from commitrelay import open_source
from commitrelay.errors import BrokerUnreachable, CommitrelayError, ConfigError
from tests.support import nats, redis
from tests.support.services import DedicatedServer

PASSWORD = "c4nary-Pa55word"

StartServer = Callable[[str], DedicatedServer]


def failure_of(url: str, **options: str) -> CommitrelayError:
    """What opening it raises."""

    async def on_revoked(_partitions: Collection[str]) -> None: ...

    async def case() -> None:
        source = open_source(url, **{"topic": "orders", "group": "billing", **options})
        try:
            async with asyncio.timeout(60):
                await source.open(on_revoked)
        finally:
            await source.close()

    with pytest.raises(CommitrelayError) as caught:
        asyncio.run(case())
    text = str(caught.value)
    assert "\n" not in text
    assert PASSWORD not in text
    return caught.value


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["kafka", "amqp", "nats", "redis"])
def test_a_broker_that_is_not_there(
    scheme: str, nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    error = failure_of(
        f"{scheme}://user:{PASSWORD}@{nobody}",
        delivery_timeout_seconds="2",
        **(extra if scheme == "kafka" else {}),
    )
    assert isinstance(error, BrokerUnreachable)
    assert nobody in str(error)
    assert PASSWORD not in caplog.text


def test_a_wrong_password_at_redis(redis_url: str) -> None:
    host = redis_url.removeprefix("redis://")
    error = failure_of(f"redis://nobody:{PASSWORD}@{host}")
    assert "check user and password" in str(error)


def test_a_wrong_password_at_rabbitmq(rabbitmq_url: str) -> None:
    host = rabbitmq_url.rpartition("@")[2]
    error = failure_of(f"amqp://nobody:{PASSWORD}@{host}")
    assert "check user, password" in str(error)


def test_a_wrong_password_at_nats(dedicated_server: StartServer) -> None:
    server = dedicated_server("nats")
    server.configure("nats.conf", "authorization { user: someone, password: else }\n")
    host = server.url.removeprefix("nats://")
    error = failure_of(f"nats://someone:{PASSWORD}@{host}")
    assert "refuses the login" in str(error)


def test_a_topic_that_is_missing_at_kafka(real_kafka: str) -> None:
    error = failure_of(f"kafka://{real_kafka}", topic=f"missing-{uuid.uuid4().hex}")
    assert isinstance(error, ConfigError)
    assert "does not exist: create it or use ?create_topics=true" in str(error)


def test_a_queue_that_is_missing_at_rabbitmq(rabbitmq_url: str) -> None:
    error = failure_of(rabbitmq_url, topic=f"missing-{uuid.uuid4().hex}")
    assert isinstance(error, ConfigError)
    assert "does not exist: create it or use ?declare=quorum" in str(error)


def test_a_subject_that_no_stream_takes_at_nats(nats_url: str) -> None:
    error = failure_of(nats_url, topic=f"missing-{uuid.uuid4().hex}")
    assert isinstance(error, ConfigError)
    assert "no stream takes subject" in str(error)


def test_a_stream_at_nats_that_forgets(nats_url: str) -> None:
    streams = nats.Streams(nats_url)
    topic = asyncio.run(streams.make(retention="workqueue"))
    try:
        assert "keeps messages by workqueue" in str(failure_of(nats_url, topic=topic))
    finally:
        streams.delete_all()


def test_a_key_at_redis_that_is_no_stream(redis_url: str) -> None:
    name = f"test-{uuid.uuid4().hex}"
    with redis.client(redis_url) as client:
        client.set(name, "text")
        try:
            error = failure_of(redis_url, topic=name)
        finally:
            client.delete(name)
    assert isinstance(error, ConfigError)
    assert "WRONGTYPE" in str(error)
