"""KafkaSourceSettings: what the URL and the options say, as settings of librdkafka's consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commitrelay.errors import ConfigError
from commitrelay.publishers.kafka.settings import Config, KafkaSettings
from commitrelay.publishers.settings import Settings
from commitrelay.sources.options import group_of, topics_of

FIXED: Config = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
"""What the promises rest on. A URL that says anything about them is refused."""

DEFAULTS: Config = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1000,  # so soon a member hears of a rebalance
    "max.poll.interval.ms": 300_000,
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.wait.max.ms": 100,
}


@dataclass(frozen=True)
class KafkaSourceSettings:
    """Everything that a Kafka source has to know."""

    kafka: KafkaSettings
    topics: tuple[str, ...]
    group: str
    revoke_timeout_seconds: float = 60.0  # what is in hand may take so long when a partition goes

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> KafkaSourceSettings:
        """Read `kafka://user:password@host:9092?topic=orders,payments&group=billing&…`."""
        address, _, query = url.partition("?")
        settings = Settings("kafka", options, query, role="source")
        topics, group = topics_of(settings), group_of(settings)
        seconds = settings.seconds("revoke_timeout_seconds", cls.revoke_timeout_seconds)
        # What is left is about the brokers, or librdkafka's.
        return cls(KafkaSettings.from_url(address, settings.remaining), topics, group, seconds)

    def __post_init__(self) -> None:
        given = self.kafka.librdkafka
        for name in FIXED:
            if name in given:
                raise ConfigError(f"{name} is set by commitrelay itself: remove it")
        if "group.id" in given:
            raise ConfigError("group.id is set by commitrelay itself: write group=NAME")
        interval = {**DEFAULTS, **given}["max.poll.interval.ms"]
        if self.revoke_timeout_seconds * 1000 >= float(interval):
            raise ConfigError(
                f"revoke_timeout_seconds={self.revoke_timeout_seconds:g} has to be below "
                f"max.poll.interval.ms={interval}: the group would not wait for so long"
            )

    def __str__(self) -> str:
        return str(self.kafka)

    def consumer(self, **callbacks: Any) -> Config:
        """What a consumer gets."""
        return {
            **DEFAULTS,
            **self.kafka.client(),
            **FIXED,
            "group.id": self.group,
            **callbacks,
        }
