"""RedisSourceSettings: what the URL and the options say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from commitrelay.publishers.redis.settings import RedisSettings
from commitrelay.publishers.settings import Settings
from commitrelay.sources.options import group_of, topics_of


@dataclass(frozen=True)
class RedisSourceSettings:
    """Everything that a Redis source has to know."""

    redis: RedisSettings
    topics: tuple[str, ...]
    group: str
    lock_seconds: float = 10.0  # so long after its death a reader still has its streams
    poll_seconds: float = 0.05
    revoke_timeout_seconds: float = 60.0

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> RedisSourceSettings:
        """Read `redis://user:password@host:6379/0?topic=orders&streams=4&group=billing`."""
        settings = Settings("redis", options, urlsplit(url).query, role="source")
        made = cls(
            RedisSettings.take(url, settings),
            topics_of(settings),
            group_of(settings),
            lock_seconds=settings.seconds("lock_seconds", cls.lock_seconds),
            poll_seconds=settings.seconds("poll_seconds", cls.poll_seconds),
            revoke_timeout_seconds=settings.seconds(
                "revoke_timeout_seconds", cls.revoke_timeout_seconds
            ),
        )
        settings.refuse_unknown()
        return made

    def __str__(self) -> str:
        return str(self.redis)

    @property
    def streams(self) -> dict[str, str]:
        """The topic of each stream, as the publisher names them."""
        count = self.redis.streams
        if count == 1:
            return {topic: topic for topic in self.topics}
        return {f"{topic}:{number}": topic for topic in self.topics for number in range(count)}
