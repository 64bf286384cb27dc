"""What is particular about reading from NATS, on a real server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import nats as client
import pytest

from commitrelay.testing.source_suite import check_order, fresh_group, numbered
from tests.support import nats
from tests.support.reading import publish, reading, run
from tests.support.services import DedicatedServer

RIGHTS = """
authorization { users: [
  { user: all, password: all }
  { user: reader, password: pw, permissions: {
      publish: ["$JS.API.>", "$KV.commitrelay.>", "commitrelay.readers.>"]
      subscribe: ["_INBOX.>", "commitrelay.readers.>"] } }
] }
"""


@pytest.fixture
def streams(nats_url: str) -> Iterator[nats.Streams]:
    made = nats.Streams(nats_url)
    yield made
    made.delete_all()


def test_headers_of_other_publishers(nats_url: str, streams: nats.Streams) -> None:
    async def case() -> None:
        topic = await streams.make()
        async with await client.connect(nats_url) as other:
            context = other.jetstream()
            await context.publish(topic, b"plain")
            await context.publish(topic, b"with", headers={"event-id": "1", "X-Any": "a:b"})
        async with reading(nats_url, topic=topic, group=fresh_group()) as reader:
            while len(reader.arrivals) < 2:
                await reader.read()
        plain, with_headers = reader.arrivals
        assert (plain.key, plain.value, plain.headers) == ("", b"plain", [])
        assert dict(with_headers.headers) == {"event-id": "1", "X-Any": "a:b"}
        assert with_headers.position[-1] == 2  # type: ignore[index]

    run(case)


def test_a_consumer_that_the_server_forgets_is_made_anew(
    nats_url: str, streams: nats.Streams
) -> None:
    """Without giving the topic up: the record says that it is still ours."""

    async def case() -> None:
        topic = await streams.make()
        await publish(nats_url, numbered(topic, range(20)))
        async with reading(nats_url, topic=topic, group=fresh_group()) as reader:
            await reader.read_all(20)
            async with await client.connect(nats_url) as other:
                context = other.jetstream()
                for each in await context.consumers_info(topic):
                    await context.delete_consumer(topic, each.name)
            await publish(nats_url, numbered(topic, range(20, 40)))
            await reader.read_all(40)
            assert len(reader.arrivals) == 40
            check_order(reader.arrivals)
            assert not reader.revoked

    run(case)


def test_messages_that_are_gone_are_no_gap(nats_url: str, streams: nats.Streams) -> None:
    async def case() -> None:
        topic = await streams.make(max_msgs=10)
        await publish(nats_url, numbered(topic, range(30)))
        async with reading(nats_url, topic=topic, group=fresh_group()) as reader:
            await reader.read_all(10)
            assert [dict(each.headers)["number"] for each in reader.arrivals] == [
                str(number) for number in range(20, 30)
            ]

    run(case)


def test_the_place_of_a_group_can_be_looked_up(nats_url: str, streams: nats.Streams) -> None:
    """With any tool that knows key-value buckets."""

    async def case() -> None:
        topic, group = await streams.make(), f"g{uuid.uuid4().hex}"
        await publish(nats_url, numbered(topic, range(5)))
        async with reading(nats_url, topic=topic, group=group) as reader:
            await reader.read_all(5)
            await reader.source.ack(reader.arrivals[:3])
            async with await client.connect(nats_url) as other:
                bucket = await other.jetstream().key_value("commitrelay")
                entry: Any = await bucket.get(f"{group}.{topic}.{topic}")
                assert b'"done": 3' in entry.value

    run(case)


def test_who_leaves_leaves_at_once(nats_url: str, streams: nats.Streams) -> None:
    async def case() -> None:
        topic = await streams.make()
        options = {"topic": topic, "group": fresh_group(), "lease_seconds": "600"}
        await publish(nats_url, numbered(topic, range(3)))
        async with reading(nats_url, **options) as first:
            await first.read_all(3)
        async with reading(nats_url, **options) as second:
            await second.read_all(3)

    run(case)


def test_the_rights_that_it_needs(dedicated_server: Callable[[str], DedicatedServer]) -> None:
    """As docs/reference/sources/nats.md lists them."""
    server = dedicated_server("nats")
    server.configure("nats.conf", RIGHTS)
    host = server.url.removeprefix("nats://")
    everything = f"nats://all:all@{host}"

    async def case() -> None:
        await publish(everything, numbered("a", range(10)), stream="events", create_stream="a,b")
        url = f"nats://reader:pw@{host}"
        async with reading(url, topic="a,b", group="billing") as reader:
            await reader.read_all(10)
            await reader.ack_all()
            assert await reader.source.lag() == 0
            assert await reader.source._meet()  # type: ignore[attr-defined]

    run(case)
