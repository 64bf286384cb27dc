"""Redis Streams: `redis://host:6379`, on hiredis and a thin client of its own.

settings.py    the URL and the options
connection.py  commands out, replies in; login and limits
link.py        messages as XADD
cluster.py     the same on a cluster
outcomes.py    what an error reply means
publisher.py   the publisher
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import MissingExtra

try:
    import hiredis  # noqa: F401
except ImportError:
    raise MissingExtra("redis", "publishing to Redis") from None

from commitrelay.publishers.redis.publisher import RedisPublisher
from commitrelay.publishers.redis.settings import RedisSettings

__all__ = ["RedisPublisher", "RedisSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> RedisPublisher:
    """`redis://[[user]:password@]host:6379[/0]?setting=…`; see `RedisSettings`."""
    return RedisPublisher(RedisSettings.from_url(url, options))
