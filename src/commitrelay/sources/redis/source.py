"""RedisSource: a consumer group on streams, one reader per stream at a time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import hiredis

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publishers.redis.cluster import ClusterLink, Node, connect_cluster
from commitrelay.publishers.redis.connection import RedisConnection, connect
from commitrelay.publishers.redis.link import RedisLink
from commitrelay.sources.redis import scripts
from commitrelay.sources.redis.seat import RedisSeat
from commitrelay.sources.redis.settings import RedisSourceSettings
from commitrelay.sources.shared import MEET_SECONDS, Seat, SharedSource

MEMBER_MILLISECONDS = round(5 * MEET_SECONDS * 1000)
"""So long a reader that says nothing still counts."""


class RedisSource(SharedSource):
    """Reads streams. A partition is a stream: `orders`, or `orders:3` of several."""

    def __init__(self, settings: RedisSourceSettings) -> None:
        super().__init__(
            settings.streams,
            timeout_seconds=settings.redis.delivery_timeout_seconds,
            revoke_timeout_seconds=settings.revoke_timeout_seconds,
        )
        self.settings = settings
        self._link: RedisLink | ClusterLink | None = None
        self._nodes: list[Node] = []  # of the cluster, as far as it was seen
        self._roll = f"commitrelay:readers:{settings.group}"

    def __str__(self) -> str:
        return str(self.settings)

    @property
    def _is_connected(self) -> bool:
        return self._link is not None and self._link.lost is None

    async def _connect(self) -> None:
        redis = self.settings.redis
        if redis.cluster:
            link = await connect_cluster(redis, [(redis.host, redis.port), *self._nodes])
            self._nodes = link.nodes
            self._link = link
        else:
            self._link = RedisLink(await connect(redis, redis.host, redis.port), redis)
        for stream in self.settings.streams:
            await self._make_group(stream)

    async def _disconnect(self) -> None:
        self._give_up_connection()

    def _give_up_connection(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.drop(f"{self}: closed")

    async def _make_group(self, stream: str) -> None:
        reply = await self._reply(
            stream, "XGROUP", "CREATE", stream, self.settings.group, "0", "MKSTREAM"
        )
        if isinstance(reply, hiredis.ReplyError) and not str(reply).startswith("BUSYGROUP"):
            code = str(reply).split(" ", 1)[0]
            if code in ("WRONGTYPE", "NOPERM"):
                raise ConfigError(f"{self}: stream {stream}: {reply}")
            raise BrokerUnreachable(f"{self}: stream {stream}: {reply}")

    async def _take(self, partition: str) -> Seat | None:
        await self._make_group(partition)  # somebody may have deleted the stream
        topic = self.settings.streams[partition]
        seat = RedisSeat(partition, topic, self.me, self.settings, self._ask)
        return seat if await seat.take() else None

    async def _meet(self) -> Collection[str]:
        members = await self._ask(
            self._roll, "EVAL", scripts.MEET, 1, self._roll, self.me, MEMBER_MILLISECONDS
        )
        return [each.decode() for each in members]

    async def _part(self) -> None:
        if len(self._partitions) > 1:
            await self._ask(self._roll, "ZREM", self._roll, self.me)

    async def _ask(self, stream: str, *command: str | bytes | int) -> Any:
        """An error is an outage: the stream is taken anew."""
        reply = await self._reply(stream, *command)
        if isinstance(reply, hiredis.ReplyError):
            raise BrokerUnreachable(f"{self}: {stream}: {reply}")
        return reply

    async def _reply(self, stream: str, *command: str | bytes | int) -> Any:
        return await self._in_time(self._connection(stream).call(*command))

    def _connection(self, stream: str) -> RedisConnection:
        if self._link is None:
            raise BrokerUnreachable(f"{self}: not connected")
        if isinstance(self._link, ClusterLink):
            return self._link.link_of(stream).connection
        return self._link.connection
