"""What can go wrong between us and Redis, on the real server."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import DELIVERED, Message, Outcome, Refused, Unreachable
from commitrelay.publishers.redis import RedisPublisher, from_url
from commitrelay.testing.publisher_suite import ids, message
from tests.support import redis
from tests.support.certificates import Authority
from tests.support.services import DedicatedServer

StartServer = Callable[[str], DedicatedServer]


@pytest.fixture
def topic(redis_url: str) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex}"
    yield name
    with redis.client(redis_url) as client:
        client.delete(name)


def with_publisher(url: str, case: Callable[[RedisPublisher], Awaitable[None]]) -> None:
    async def main() -> None:
        publisher = from_url(url, {"delivery_timeout_seconds": "5"})
        await publisher.open()
        try:
            async with asyncio.timeout(60):
                await case(publisher)
        finally:
            await publisher.close()

    asyncio.run(main())


def all_delivered(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome is DELIVERED for outcome in outcomes)


# --- streams and fields -------------------------------------------------------------------------


def test_the_entry_is_key_payload_and_headers_in_this_order(redis_url: str, topic: str) -> None:
    headers = [("event-id", "1"), ("key", "no"), ("payload", "no"), ("city", "Zürich")]

    async def case(publisher: RedisPublisher) -> None:
        assert all_delivered(await publisher.publish([Message(topic, "k", b"{}", headers, "1")]))

    with_publisher(redis_url, case)
    with redis.client(redis_url) as client:
        [(_id, fields)] = client.xrange(topic)
    assert list(fields.items()) == [
        (b"key", b"k"),
        (b"payload", b"{}"),
        (b"event-id", b"1"),
        (b"city", "Zürich".encode()),
    ]


def test_keys_are_spread_over_streams_each_in_order(redis_url: str, topic: str) -> None:
    async def case(publisher: RedisPublisher) -> None:
        messages = [message(topic, f"k{n % 20}", n) for n in range(400)]
        assert all_delivered(await publisher.publish(messages))

    with_publisher(f"{redis_url}?streams=4", case)
    places: dict[str, int] = {}
    with redis.client(redis_url) as client:
        for number in range(4):
            received = redis.read(redis_url, f"{topic}:{number}")
            assert received, "none is empty"
            for key in {each.key for each in received}:
                assert places.setdefault(key, number) == number
                sent = [f"{key}-{n}" for n in range(400) if f"k{n % 20}" == key]
                assert ids(received, key) == sent
            client.delete(f"{topic}:{number}")
    assert len(places) == 20


def test_the_stream_of_a_key_never_changes_between_versions(redis_url: str, topic: str) -> None:
    """Consumers compute it: CRC-32 of the key, modulo the number of streams."""

    async def case(publisher: RedisPublisher) -> None:
        assert all_delivered(await publisher.publish([message(topic, "order-42", 1)]))

    with_publisher(f"{redis_url}?streams=8", case)
    with redis.client(redis_url) as client:
        assert client.delete(f"{topic}:6") == 1


@pytest.mark.parametrize(("query", "left"), [("", 1000), ("?maxlen=100", 200)])
def test_nothing_is_trimmed_unless_asked(redis_url: str, topic: str, query: str, left: int) -> None:
    async def case(publisher: RedisPublisher) -> None:
        messages = [message(topic, f"k{n}", n) for n in range(1000)]
        assert all_delivered(await publisher.publish(messages))

    with_publisher(f"{redis_url}{query}", case)
    with redis.client(redis_url) as client:
        length = client.xlen(topic)
    assert length == 1000 if not query else 100 <= length <= left  # "~": whole nodes only


def test_a_key_of_another_type_refuses_its_own_messages_only(redis_url: str, topic: str) -> None:
    other = f"{topic}-other"

    async def case(publisher: RedisPublisher) -> None:
        with redis.client(redis_url) as client:
            client.set(topic, "text")
        outcomes = await publisher.publish(
            [message(other, "a", 1), message(topic, "b", 1), message(other, "c", 1)]
        )
        assert outcomes[0] is outcomes[2] is DELIVERED
        assert isinstance(outcomes[1], Refused)
        assert f"stream {topic}: WRONGTYPE" in outcomes[1].reason
        assert "use another topic" in outcomes[1].reason

    with_publisher(redis_url, case)
    with redis.client(redis_url) as client:
        client.delete(other)


def test_close_lets_what_is_under_way_finish(redis_url: str, topic: str) -> None:
    async def case(publisher: RedisPublisher) -> None:
        messages = [message(topic, f"k{n}", n) for n in range(2000)]
        publishing = asyncio.create_task(publisher.publish(messages))
        await asyncio.sleep(0)  # it has begun
        await publisher.close()
        assert all_delivered(await publishing)

    with_publisher(redis_url, case)


# --- a server in trouble ------------------------------------------------------------------------


def test_a_full_server_spends_no_attempt(dedicated_server: StartServer) -> None:
    server = dedicated_server("redis")

    async def case(publisher: RedisPublisher) -> None:
        assert all_delivered(await publisher.publish([message("orders", "k", 1)]))
        with redis.client(server.url) as client:
            client.config_set("maxmemory", "1")
        [outcome] = await publisher.publish([message("orders", "k", 2)])
        assert isinstance(outcome, Unreachable)
        assert "OOM" in outcome.reason
        with redis.client(server.url) as client:
            client.config_set("maxmemory", "0")
        await publisher.recover()
        assert all_delivered(await publisher.publish([message("orders", "k", 2)]))

    with_publisher(server.url, case)


def test_a_master_that_became_a_replica_is_an_outage(dedicated_server: StartServer) -> None:
    server, new_master = dedicated_server("redis"), dedicated_server("redis")

    async def case(publisher: RedisPublisher) -> None:
        assert all_delivered(await publisher.publish([message("orders", "k", 1)]))
        with redis.client(server.url) as client:
            client.replicaof("127.0.0.1", str(urlsplit(new_master.url).port))
        [outcome] = await publisher.publish([message("orders", "k", 2)])
        assert isinstance(outcome, Unreachable)
        assert "READONLY" in outcome.reason or "MASTERDOWN" in outcome.reason
        with pytest.raises(BrokerUnreachable, match="is a slave: publish to its master"):
            await publisher.recover()

    with_publisher(server.url, case)


def test_replicas_are_waited_for_on_request(dedicated_server: StartServer) -> None:
    server, replica = dedicated_server("redis"), dedicated_server("redis")
    with redis.client(replica.url) as client:
        client.replicaof("127.0.0.1", str(urlsplit(server.url).port))

    async def case(publisher: RedisPublisher) -> None:
        await _until(lambda: _replicas(server.url) == 1)
        messages = [message("orders", f"k{n}", n) for n in range(600)]
        assert all_delivered(await publisher.publish(messages))
        assert len(redis.read(replica.url, "orders")) == 600
        await asyncio.to_thread(replica.pause)
        [outcome] = await publisher.publish([message("orders", "k", 1)])
        assert isinstance(outcome, Unreachable)
        assert "0 of 1 replicas" in outcome.reason
        await asyncio.to_thread(replica.resume)
        await publisher.recover()
        assert all_delivered(await publisher.publish([message("orders", "k", 1)]))

    with_publisher(f"{server.url}?wait_replicas=1", case)


def _replicas(url: str) -> int:
    with redis.client(url) as client:
        states = [each for name, each in client.info("replication").items() if name[:5] == "slave"]
    return sum(each["state"] == "online" for each in states if isinstance(each, dict))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)


# --- who may do what ----------------------------------------------------------------------------


def test_a_wrong_password_is_told_without_showing_it(dedicated_server: StartServer) -> None:
    server = dedicated_server("redis")
    server.configure("redis.conf", "requirepass right\n")
    address = urlsplit(server.url).netloc

    async def main() -> None:
        with pytest.raises(
            BrokerUnreachable, match=r"WRONGPASS.*check user and password"
        ) as failed:
            await from_url(f"redis://:wr0ng@{address}", {}).open()
        assert "wr0ng" not in str(failed.value)
        with pytest.raises(BrokerUnreachable, match="NOAUTH"):
            await from_url(f"redis://{address}", {}).open()
        publisher = from_url(f"redis://:right@{address}/3", {})
        await publisher.open()
        assert all_delivered(await publisher.publish([message("orders", "k", 1)]))
        await publisher.close()

    asyncio.run(main())
    assert ids(redis.read(f"redis://:right@{address}/3", "orders")) == ["k-1"]


def test_a_missing_right_refuses_that_stream_only(dedicated_server: StartServer) -> None:
    server = dedicated_server("redis")
    with redis.client(server.url) as client:
        client.execute_command("ACL", "SETUSER", "relay", "on", ">p", "~mine", "+xadd", "+ping")
    address = urlsplit(server.url).netloc

    async def case(publisher: RedisPublisher) -> None:
        outcomes = await publisher.publish([message("mine", "a", 1), message("theirs", "b", 1)])
        assert outcomes[0] is DELIVERED
        assert isinstance(outcomes[1], Refused)
        assert "the right to XADD" in outcomes[1].reason

    with_publisher(f"redis://relay:p@{address}", case)


# --- TLS -----------------------------------------------------------------------------------------


def test_tls_trusts_only_the_right_host_and_authority(
    dedicated_server: StartServer, tmp_path: Path, nats_url: str
) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "stranger")
    own = authority.sign("localhost")
    server = dedicated_server("redis")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server.configure(
        "redis.conf",
        f"tls-port {port}\ntls-cert-file {own.certificate}\ntls-key-file {own.key}\n"
        f"tls-ca-cert-file {authority.certificate}\ntls-auth-clients no\n",
    )

    async def main() -> None:
        url = f"rediss://localhost:{port}?tls_ca_file={authority.certificate}"
        publisher = from_url(url, {})
        await publisher.open()
        messages = [message("orders", f"k{n}", n, b"x" * 1000) for n in range(2000)]
        assert all_delivered(await publisher.publish(messages))
        await publisher.close()
        plain = urlsplit(server.url).port
        for wrong, reason in {
            f"rediss://127.0.0.1:{port}?tls_ca_file={authority.certificate}": "IP address mismatch",
            f"rediss://localhost:{port}?tls_ca_file={stranger.certificate}": "not to be trusted",
            f"rediss://localhost:{plain}": "did not answer",
            f"rediss://{urlsplit(nats_url).netloc}": "check that this port speaks TLS",
        }.items():
            with pytest.raises(BrokerUnreachable, match=reason):
                await from_url(wrong, {"delivery_timeout_seconds": "2"}).open()

    asyncio.run(main())
    assert len(redis.read(server.url, "orders")) == 2000


# --- something else listens there -----------------------------------------------------------------


def test_what_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        async def main() -> None:
            url = f"redis://127.0.0.1:{port}?delivery_timeout_seconds=1"
            with pytest.raises(BrokerUnreachable, match="did not answer within 1 s"):
                await from_url(url, {}).open()

        asyncio.run(main())


def test_what_is_not_redis_is_told(nats_url: str) -> None:
    async def main() -> None:
        with pytest.raises(BrokerUnreachable, match="not Redis"):
            await from_url(f"redis://{urlsplit(nats_url).netloc}", {}).open()

    asyncio.run(main())
