"""What is particular about reading from Redis, on a real server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from commitrelay.testing.source_suite import check_order, fresh_group, ids, numbered
from tests.support import redis
from tests.support.reading import publish, reading, run


@pytest.fixture
def topic(redis_url: str) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex}"
    yield name
    with redis.client(redis_url) as client:
        client.delete(name)


def test_entries_of_other_publishers(redis_url: str, topic: str) -> None:
    with redis.client(redis_url) as client:
        client.xadd(topic, {"anything": b"\xff", "event-id": "1"})

    async def case() -> None:
        async with reading(redis_url, topic=topic, group=fresh_group()) as reader:
            [arrival] = await reader.read_all(1)
        assert (arrival.key, arrival.value) == ("", b"")
        raw = dict(arrival.headers)["anything"]
        assert raw.encode("utf-8", "surrogateescape") == b"\xff"
        assert arrival.position[-1].count("-") == 1  # type: ignore[index]

    run(case)


def test_what_another_program_has_pending_comes_first(redis_url: str, topic: str) -> None:
    async def case() -> None:
        group = fresh_group()
        await publish(redis_url, numbered(topic, range(10)))
        with redis.client(redis_url) as client:
            client.xgroup_create(topic, group, "0")
            client.xreadgroup(group, "another", {topic: ">"}, count=4)
        async with reading(redis_url, topic=topic, group=group) as reader:
            await reader.read_all(10)
            check_order(reader.arrivals)
            assert len(reader.arrivals) == 10
            await reader.ack_all()
        with redis.client(redis_url) as client:
            assert client.xpending(topic, group)["pending"] == 0

    run(case)


def test_pending_entries_that_were_trimmed_are_let_go(redis_url: str, topic: str) -> None:
    async def case() -> None:
        group = fresh_group()
        await publish(redis_url, numbered(topic, range(10)))
        async with reading(redis_url, topic=topic, group=group) as reader:
            await reader.read_all(10)
        with redis.client(redis_url) as client:
            client.xtrim(topic, maxlen=3, approximate=False)
        async with reading(redis_url, topic=topic, group=group) as reader:
            await reader.read_all(3)
            assert len(reader.arrivals) == 3
            await reader.ack_all()
            assert not await reader.read(0.5)
        with redis.client(redis_url) as client:
            assert client.xpending(topic, group)["pending"] == 0

    run(case)


def test_a_lock_that_somebody_else_has_ends_the_reading(redis_url: str, topic: str) -> None:
    async def case() -> None:
        group = fresh_group()
        await publish(redis_url, numbered(topic, range(6)))
        async with reading(redis_url, topic=topic, group=group) as reader:
            await reader.read_all(6)
            lock = f"commitrelay:lock:{{{topic}}}:{group}"
            with redis.client(redis_url) as client:
                assert client.get(lock)
                client.set(lock, "somebody-else", px=1500)
            await reader.source.ack(reader.arrivals)  # in vain
            await reader.read_until(lambda: reader.revoked == [topic])
            await publish(redis_url, numbered(topic, range(6, 8)))
            await reader.read_until(lambda: len(set(ids(reader.arrivals))) == 8)
            assert ids(reader.arrivals)[6:12] == ids(reader.arrivals)[:6]

    run(case)


def test_a_deleted_stream_is_read_anew(redis_url: str, topic: str) -> None:
    async def case() -> None:
        async with reading(redis_url, topic=topic, group=fresh_group()) as reader:
            await publish(redis_url, numbered(topic, range(3)))
            await reader.read_all(3)
            with redis.client(redis_url) as client:
                client.delete(topic)
            await asyncio.sleep(0)
            await publish(redis_url, numbered(topic, range(3, 6)))
            await reader.read_all(6)

    run(case)


def test_who_leaves_leaves_at_once(redis_url: str, topic: str) -> None:
    async def case() -> None:
        options = {"topic": topic, "group": fresh_group(), "lock_seconds": "600"}
        await publish(redis_url, numbered(topic, range(3)))
        async with reading(redis_url, **options) as first:
            await first.read_all(3)
        async with reading(redis_url, **options) as second:
            await second.read_all(3)

    run(case)


def test_the_rights_that_it_needs(redis_url: str) -> None:
    """As docs/reference/sources/redis.md lists them."""
    user, topic, group = (uuid.uuid4().hex for _ in range(3))
    streams = [f"{topic}:{number}" for number in range(2)]
    rights = (
        "+eval +xgroup|create +xreadgroup +xack +xautoclaim +xinfo|groups +get +set +del +pexpire "
        "+zadd +zrange +zrem +zremrangebyscore +ping +time"
    )

    async def case() -> None:
        host = redis_url.removeprefix("redis://")
        await publish(redis_url, numbered(topic, range(10)), streams="2")
        url = f"redis://{user}:pw@{host}?streams=2"
        async with reading(url, topic=topic, group=group) as reader:
            await reader.read_all(10)
            assert await reader.source.lag() == 10
            await reader.ack_all()
            assert await reader.source.lag() == 0

    with redis.client(redis_url) as client:
        keys = [f"~{topic}:*", "~commitrelay:lock:*", "~commitrelay:readers:*"]
        client.execute_command("ACL", "SETUSER", user, "on", ">pw", *keys, *rights.split())
        try:
            run(case)
        finally:
            client.execute_command("ACL", "DELUSER", user)
            client.delete(*streams)
