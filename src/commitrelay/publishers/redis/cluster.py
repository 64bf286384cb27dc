"""ClusterLink: the same on a Redis cluster, one connection per master.

A stream is one key, so all of it is on one node, and order within it is the node's. A cluster that
has moved slots answers MOVED or ASK: that is an outage, after which the map is read anew.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.pipelined import Batch
from commitrelay.publishers.redis.connection import RedisConnection, connect, must
from commitrelay.publishers.redis.link import RedisLink, Streams
from commitrelay.publishers.redis.settings import RedisSettings

SLOTS = 16384
MAX_CACHED_STREAMS = 4096

Node = tuple[str, int]
Range = tuple[int, int, Node]


def slot_of(stream: str) -> int:
    """The slot of a key; what stands in the first braces, if anything does, decides alone."""
    _before, opened, after = stream.partition("{")
    tag, closed, _rest = after.partition("}")
    decisive = tag if opened and closed and tag else stream
    return crc_hqx(decisive.encode(), 0) % SLOTS


class ClusterLink:
    """A link to every master; lost as soon as one of them is."""

    def __init__(
        self, settings: RedisSettings, ranges: list[Range], links: dict[Node, RedisLink]
    ) -> None:
        self._settings = settings
        self._ranges = ranges
        self._links = links
        self._streams = Streams(settings)
        self._by_stream: dict[str, RedisLink] = {}

    @property
    def lost(self) -> str | None:
        return next((link.lost for link in self._links.values() if link.lost is not None), None)

    @property
    def nodes(self) -> list[Node]:
        return list(self._links)

    async def check(self) -> None:
        for link in self._links.values():
            await link.check()
        first = next(iter(self._links.values()))
        if await read_ranges(first.connection, self._settings) != self._ranges:
            raise BrokerUnreachable(f"{self._settings}: slots have moved, reading the map anew")

    def drop(self, reason: str) -> None:
        for link in self._links.values():
            link.drop(reason)

    async def send(self, batch: Batch) -> None:
        parts: dict[RedisLink, list[int]] = {}
        for position, message in enumerate(batch.messages):
            link = self.link_of(self._streams.stream(message))
            parts.setdefault(link, []).append(position)
        for link, positions in parts.items():
            await link.send_some(batch, positions)

    def link_of(self, stream: str) -> RedisLink:
        link = self._by_stream.get(stream)
        if link is None:
            if len(self._by_stream) >= MAX_CACHED_STREAMS:
                self._by_stream.clear()
            slot = slot_of(stream)
            node = next(node for first, last, node in self._ranges if first <= slot <= last)
            link = self._by_stream[stream] = self._links[node]
        return link


async def connect_cluster(settings: RedisSettings, known: Sequence[Node]) -> ClusterLink:
    """Ask the first of the known nodes that answers for the map, and connect to all masters."""
    ranges = await _ask_any(settings, known)
    links: dict[Node, RedisLink] = {}
    try:
        for host, port in sorted({node for _first, _last, node in ranges}):
            connection = await connect(settings, host, port)
            links[host, port] = RedisLink(connection, settings)
    except BaseException:
        for link in links.values():
            link.drop("not all of the cluster is there")
        raise
    return ClusterLink(settings, ranges, links)


async def _ask_any(settings: RedisSettings, known: Sequence[Node]) -> list[Range]:
    failure = BrokerUnreachable(f"{settings}: no node")
    for host, port in known:
        try:
            # Any node knows the map, replicas too: so it is asked before its role is looked at.
            connection = await connect(settings, host, port, any_role=True)
        except BrokerUnreachable as error:
            failure = error
            continue
        try:
            return await read_ranges(connection, settings)
        finally:
            connection.drop("asked")
    raise failure


async def read_ranges(connection: RedisConnection, settings: RedisSettings) -> list[Range]:
    """Which master has which slots; `BrokerUnreachable` unless all are taken care of."""
    reply = must(await connection.call("CLUSTER", "SLOTS"), connection, "is it a cluster?")
    ranges = sorted(_range(each, settings.host) for each in reply)
    covered = sum(last - first + 1 for first, last, _node in ranges)
    if covered != SLOTS:
        raise BrokerUnreachable(
            f"{settings} has {covered} of {SLOTS} slots: wait for it, or repair it"
        )
    return ranges


def _range(reply: list[Any], default_host: str) -> Range:
    first, last, master = reply[0], reply[1], reply[2]
    return first, last, ((master[0] or b"").decode() or default_host, master[1])
