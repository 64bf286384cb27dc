"""NatsSourceSettings: what the URL and the options say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from commitrelay.errors import ConfigError
from commitrelay.publishers.nats.settings import NatsSettings
from commitrelay.publishers.nats.subjects import Subjects
from commitrelay.publishers.settings import Settings
from commitrelay.sources.options import group_of, topics_of

_ANY_KEY = "any-key-of-commitrelay"
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class NatsSourceSettings:
    """Everything that a NATS source has to know."""

    nats: NatsSettings
    topics: tuple[str, ...]
    group: str
    bucket: str = "commitrelay"  # the key-value bucket with the places of all groups
    lease_seconds: float = 10.0  # so long after its death a reader still has its topics
    revoke_timeout_seconds: float = 60.0

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> NatsSourceSettings:
        """Read `nats://user:password@host:4222?topic=orders&group=billing`."""
        settings = Settings("nats", options, url.partition("?")[2], role="source")
        made = cls(
            NatsSettings.take(url, settings),
            topics_of(settings),
            group_of(settings),
            bucket=settings.text("bucket", cls.bucket),
            lease_seconds=settings.seconds("lease_seconds", cls.lease_seconds),
            revoke_timeout_seconds=settings.seconds(
                "revoke_timeout_seconds", cls.revoke_timeout_seconds
            ),
        )
        settings.refuse_unknown()
        return made

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise ConfigError(
                f"bucket={self.bucket!r} of the nats source is no name of a bucket: "
                "use letters, digits, '-' and '_'"
            )
        for topic in self.topics:
            self.subject_of(topic)

    def __str__(self) -> str:
        return str(self.nats)

    def subject_of(self, topic: str) -> str:
        """What the publisher fills a topic's subjects into, with any key."""
        filled = Subjects(self.nats.subject)(topic, _ANY_KEY).decode().split(".")
        if any(_ANY_KEY in each and each != _ANY_KEY for each in filled):
            raise ConfigError(
                f"subject={self.nats.subject!r} cannot be read by topic: "
                "{key} has to stand between dots"
            )
        return ".".join("*" if each == _ANY_KEY else each for each in filled)
