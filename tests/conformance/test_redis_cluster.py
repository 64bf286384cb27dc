"""The Redis publisher and source on a real cluster of three masters."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator

import pytest

from commitrelay import open_source
from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import DELIVERED, Publisher, Unreachable
from commitrelay.publishers.redis import from_url
from commitrelay.publishers.redis.cluster import slot_of
from commitrelay.source import Source
from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received, ids, message
from commitrelay.testing.source_suite import SourceSuite
from tests.conftest import give_up
from tests.support import redis
from tests.support.redis_cluster import Cluster
from tests.support.services import Unavailable


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        made = Cluster(f"cluster-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield made
    made.remove()


class _Cluster:
    @pytest.fixture(autouse=True)
    def _servers(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def make_publisher(self) -> Publisher:
        return from_url(self.cluster.url, {"delivery_timeout_seconds": "3"})

    async def fresh_topic(self) -> str:
        return f"test-{uuid.uuid4().hex}"

    async def read_back(self, topic: str) -> list[Received]:
        return await asyncio.to_thread(self.cluster.read, topic)


class TestCluster(_Cluster, PublisherSuite):
    pass


class TestClusterSource(_Cluster, SourceSuite):
    partitions = 6
    idle_seconds = 1.0

    async def make_publisher(self) -> Publisher:
        return from_url(self.cluster.url, {"streams": str(self.partitions)})

    async def make_source(self, topic: str, group: str) -> Source:
        return open_source(
            self.cluster.url,
            topic=topic,
            group=group,
            streams=str(self.partitions),
        )


class TestClusterOutage(_Cluster, OutageSuite):
    """All nodes at once: with one of three gone, the others stop as well."""

    async def stop_broker(self) -> None:
        for server in self.cluster.servers:
            await asyncio.to_thread(server.kill)

    async def start_broker(self) -> None:
        for server in self.cluster.servers:
            await asyncio.to_thread(server.start)
        await asyncio.to_thread(self.cluster.await_ok)


def test_topics_go_to_the_nodes_that_have_their_slots(cluster: Cluster) -> None:
    topics = [f"spread-{uuid.uuid4().hex}" for _ in range(30)]

    async def main() -> None:
        publisher = from_url(cluster.url, {})
        await publisher.open()
        outcomes = await publisher.publish([message(topics[n % 30], "k", n) for n in range(900)])
        await publisher.close()
        assert all(outcome is DELIVERED for outcome in outcomes)

    asyncio.run(main())
    for number, topic in enumerate(topics):
        assert ids(cluster.read(topic)) == [f"k-{n}" for n in range(number, 900, 30)]
    assert {cluster.node_of(slot_of(topic)) for topic in topics} == {0, 1, 2}


def test_slots_are_the_ones_that_redis_computes(cluster: Cluster) -> None:
    with redis.client(cluster.servers[0].url) as client:
        for key in (
            "a",
            "order-42",
            "{tag}rest",
            "x{tag}y",
            "{}empty",
            "open{",
            "Zürich",
            "a{b}{c}",
        ):
            assert client.execute_command("CLUSTER", "KEYSLOT", key) == slot_of(key)


def test_a_slot_that_has_moved_is_followed(cluster: Cluster) -> None:
    topic = f"moved-{uuid.uuid4().hex}"
    slot = slot_of(topic)

    async def main() -> None:
        publisher = from_url(cluster.url, {"delivery_timeout_seconds": "5"})
        await publisher.open()
        other = (cluster.node_of(slot) + 1) % 3
        await asyncio.to_thread(cluster.assign, slot, other)
        [outcome] = await publisher.publish([message(topic, "k", 1)])
        assert isinstance(outcome, Unreachable)
        assert "MOVED" in outcome.reason
        with pytest.raises(BrokerUnreachable, match="slots have moved"):
            await publisher.recover()
        async with asyncio.timeout(20):
            while (await publisher.publish([message(topic, "k", 1)]))[0] is not DELIVERED:
                await _recovered(publisher)
        await publisher.close()

    asyncio.run(main())
    assert ids(cluster.read(topic)) == ["k-1"]


async def _recovered(publisher: Publisher) -> None:
    while True:
        try:
            await publisher.recover()
        except BrokerUnreachable:
            await asyncio.sleep(0.05)
        else:
            return


def test_a_server_that_is_no_cluster_says_so(redis_url: str) -> None:
    async def main() -> None:
        with pytest.raises(BrokerUnreachable, match="is it a cluster"):
            await from_url(f"{redis_url}?cluster=true", {}).open()

    asyncio.run(main())
