"""Redis Streams: `redis://host:6379?topic=orders`, in a consumer group with one reader at a time.

settings.py  the URL and the options
scripts.py   what Redis does in one step: look at the lock, then act
seat.py      one stream in our hands
source.py    the source
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import MissingExtra

try:
    import hiredis  # noqa: F401
except ImportError:
    raise MissingExtra("redis", "reading from Redis") from None

from commitrelay.sources.redis.settings import RedisSourceSettings
from commitrelay.sources.redis.source import RedisSource

__all__ = ["RedisSource", "RedisSourceSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> RedisSource:
    """`redis://[user:password@]host:6379/0?topic=…&group=…`; see `RedisSourceSettings`."""
    return RedisSource(RedisSourceSettings.from_url(url, options))
