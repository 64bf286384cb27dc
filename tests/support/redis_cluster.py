"""A Redis cluster of three masters, made of three servers of a test's own."""

from __future__ import annotations

import time
from typing import Any

from redis.cluster import RedisCluster

from commitrelay.testing.publisher_suite import Received
from tests.support import redis
from tests.support.services import DedicatedServer

SLOTS = 16384
SETTINGS = "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout 2000\n"


class Cluster:
    def __init__(self, owner: str) -> None:
        self.servers = [DedicatedServer("redis", f"{owner}-{number}") for number in range(3)]
        for server in self.servers:
            bus = f"cluster-port {server.port('bus_port')}\n"
            server.configure("redis.conf", SETTINGS + bus)
        first = (self.servers[0].port("port"), self.servers[0].port("bus_port"))
        bounds = [SLOTS * number // 3 for number in range(4)]
        for number, server in enumerate(self.servers):
            with redis.client(server.url) as client:
                last = bounds[number + 1] - 1
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[number], last)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", *first)
        self.await_ok()

    @property
    def url(self) -> str:
        return f"{self.servers[0].url}?cluster=true"

    def await_ok(self) -> None:
        """Until every node sees every slot taken care of."""
        deadline = time.monotonic() + 30
        while not all(self._is_ok(server) for server in self.servers):
            assert time.monotonic() < deadline, "the cluster does not come up"
            time.sleep(0.05)

    def read(self, stream: str) -> list[Received]:
        with RedisCluster.from_url(self.servers[0].url) as client:
            return [redis.received(fields) for _id, fields in client.xrange(stream)]

    def node_of(self, slot: int) -> int:
        return slot * 3 // SLOTS

    def assign(self, slot: int, number: int) -> None:
        """Give an empty slot to another node."""
        with redis.client(self.servers[number].url) as client:
            node: Any = client.execute_command("CLUSTER", "MYID")
        for server in self.servers:
            with redis.client(server.url) as client:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", node)

    def remove(self) -> None:
        for server in self.servers:
            server.remove()

    def _is_ok(self, server: DedicatedServer) -> bool:
        with redis.client(server.url) as client:
            info: Any = client.execute_command("CLUSTER", "INFO")
        facts = info if isinstance(info, dict) else _parsed(info)
        return facts["cluster_state"] == "ok" and facts["cluster_known_nodes"] == "3"


def _parsed(info: bytes | str) -> dict[str, str]:
    text = info.decode() if isinstance(info, bytes) else info
    return dict(line.split(":", 1) for line in text.split() if ":" in line)
