"""KafkaSettings: what the URL and the options say, as settings of librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from confluent_kafka import KafkaError, KafkaException, Producer

from commitrelay.errors import ConfigError
from commitrelay.publishers.settings import Settings
from commitrelay.urls import is_secret, redact

logger = logging.getLogger("commitrelay.kafka")

Config = dict[str, Any]
"""Settings of librdkafka by their names."""

FIXED = {"acks": "all", "enable.idempotence": "true"}
"""What the promises rest on. A URL that says otherwise is refused."""

SYNONYMS = {"acks": ("all", "-1"), "enable.idempotence": ("true", "1", "yes")}

DEFAULTS: dict[str, str | int | float] = {
    "client.id": "commitrelay",
    "partitioner": "murmur2_random",  # where Java's producer puts a key, so that all agree
    "linger.ms": 1,
    "message.max.bytes": 16 * 1024 * 1024,  # the topic's own limit decides
    "queue.buffering.max.kbytes": 256 * 1024,
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": "true",
}

OWN = ("bootstrap.servers", "message.timeout.ms", "delivery.timeout.ms")
"""What this module sets by itself."""

PRODUCER_ONLY = (*FIXED, "enable.gapless.guarantee", "transaction.timeout.ms")
"""What a client that only asks does not start with."""

BATCH_BYTES = 1_000_000
ONE_MESSAGE_BYTES = 1
"""A batch limit that every message exceeds: each travels alone."""


class QuietLog:
    """librdkafka repeats itself every second while a broker is down; the relay says it once."""

    def log(self, _level: int, text: str, *arguments: object) -> None:
        logger.debug(text, *arguments)


@dataclass(frozen=True)
class KafkaSettings:
    """Everything that a Kafka publisher has to know. `librdkafka` holds settings by their names."""

    bootstrap: str
    librdkafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    delivery_timeout_seconds: float = 10.0
    create_topics: bool = False
    partitions: int = -1  # of topics that are created; -1: as the broker's default says
    replication: int = -1
    transactional_id: str | None = None  # given: one Kafka transaction per batch

    def __post_init__(self) -> None:
        for name, value in self.librdkafka.items():
            if name in OWN:
                raise ConfigError(f"{name} is set by commitrelay itself: remove it")
            if name in FIXED and str(value).lower() not in SYNONYMS[name]:
                raise ConfigError(f"{name} has to be {FIXED[name]}: no promise holds without it")
        self._check()

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> KafkaSettings:
        """Read `kafka://user:password@host:9092,host2:9092?security.protocol=SASL_SSL&…`."""
        address, _, query = url.partition("://")[2].partition("?")
        userinfo, _, hosts = address.rpartition("@")
        bootstrap = hosts.strip("/")
        if not bootstrap:
            raise ConfigError(f"{redact(url)!r} names no broker: write kafka://host:9092")
        settings = Settings("kafka", options, query)
        own: dict[str, Any] = {
            "delivery_timeout_seconds": settings.seconds("delivery_timeout_seconds", 10.0),
            "create_topics": settings.boolean("create_topics", False),
            "partitions": settings.integer("partitions", -1),
            "replication": settings.integer("replication", -1),
            "transactional_id": settings.text("transactional.id", "") or None,
        }
        # What is left is librdkafka's: it knows its names, and says which one it does not.
        return cls(bootstrap, librdkafka={**_login(userinfo), **settings.remaining}, **own)

    def __str__(self) -> str:
        return f"Kafka at {self.bootstrap}"

    def client(self) -> Config:
        """What a client gets that only asks."""
        return {
            "bootstrap.servers": self.bootstrap,
            **DEFAULTS,
            **{name: v for name, v in self.librdkafka.items() if name not in PRODUCER_ONLY},
            "logger": QuietLog(),
        }

    def producer(self, batch_bytes: int = BATCH_BYTES, **extra: Any) -> Config:
        """What a producer gets."""
        return {
            "bootstrap.servers": self.bootstrap,
            "batch.size": batch_bytes,
            **DEFAULTS,
            **self.librdkafka,
            **FIXED,
            # librdkafka looks for expired messages once a second, and publish has to answer.
            "message.timeout.ms": max(1000, round(self.delivery_timeout_seconds * 1000) - 1500),
            "logger": QuietLog(),
            **extra,
        }

    def hide_secrets(self, text: str) -> str:
        for name, value in self.librdkafka.items():
            if is_secret(name) and value:
                text = text.replace(value, "***")
        return text

    def _check(self) -> None:
        """Let librdkafka read them; nothing is connected."""
        problem = _problem(self.producer())
        if problem is None:
            return
        # librdkafka names a setting as it likes; the user looks for the name that he wrote.
        culprits = [name for name, value in self.librdkafka.items() if _problem({name: value})]
        what = " and ".join(culprits) or "a setting"
        raise ConfigError(f"{what} of {self} is wrong: {self.hide_secrets(problem)}")


def _problem(config: Config) -> str | None:
    try:
        Producer({**config, "logger": QuietLog()})
    except KafkaException as error:
        problem: KafkaError = error.args[0]
        return problem.str()
    return None


def _login(userinfo: str) -> dict[str, str]:
    if not userinfo:
        return {}
    user, _, password = userinfo.partition(":")
    return {"sasl.username": unquote(user), "sasl.password": unquote(password)}
