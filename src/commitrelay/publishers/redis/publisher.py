"""RedisPublisher: XADD, many of them on their way at a time."""

from __future__ import annotations

from commitrelay.publishers.pipelined import Link, PipelinedPublisher
from commitrelay.publishers.redis.cluster import Node, connect_cluster
from commitrelay.publishers.redis.connection import connect
from commitrelay.publishers.redis.link import RedisLink
from commitrelay.publishers.redis.settings import RedisSettings


class RedisPublisher(PipelinedPublisher):
    """Adds to streams of one server, or of a cluster."""

    def __init__(self, settings: RedisSettings) -> None:
        super().__init__(delivery_timeout_seconds=settings.delivery_timeout_seconds)
        self.settings = settings
        self._nodes: list[Node] = []  # of the cluster, as far as it was seen

    def __str__(self) -> str:
        return str(self.settings)

    async def _connect(self) -> Link:
        settings = self.settings
        if settings.cluster:
            seed = (settings.host, settings.port)
            link = await connect_cluster(settings, [seed, *self._nodes])
            self._nodes = link.nodes
            return link
        return RedisLink(await connect(settings, settings.host, settings.port), settings)
