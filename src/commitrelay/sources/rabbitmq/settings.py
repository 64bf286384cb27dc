"""RabbitMQSourceSettings: what the URL and the options say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commitrelay.errors import ConfigError
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings
from commitrelay.publishers.settings import Settings
from commitrelay.sources.options import group_of, topics_of

MAX_PREFETCH = 65_535
MAX_NAME_BYTES = 200


@dataclass(frozen=True)
class RabbitMQSourceSettings:
    """Everything that a RabbitMQ source has to know."""

    rabbitmq: RabbitMQSettings
    queues: tuple[str, ...]
    group: str
    order: str = "strict"  # relaxed: several readers may share a queue, and its order is lost
    single_active: bool = False  # the queues have x-single-active-consumer, and see to it alone
    prefetch: int = 2000  # so many may be in hand
    revoke_timeout_seconds: float = 60.0

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> RabbitMQSourceSettings:
        """Read `amqp://user:password@host:5672/vhost?queue=orders.0,orders.1&group=billing`."""
        settings = Settings("rabbitmq", options, url.partition("?")[2], role="source")
        name = "topic" if "topic" in settings.remaining else "queue"
        made = cls(
            RabbitMQSettings.take(url, settings),
            topics_of(settings, name),
            group_of(settings),
            order=settings.choice("order", cls.order, ("strict", "relaxed")),
            single_active=settings.boolean("single_active", cls.single_active),
            prefetch=settings.integer("prefetch", cls.prefetch),
            revoke_timeout_seconds=settings.seconds(
                "revoke_timeout_seconds", cls.revoke_timeout_seconds
            ),
        )
        settings.refuse_unknown()
        made.rabbitmq.tls_context()
        return made

    def __post_init__(self) -> None:
        if self.prefetch > MAX_PREFETCH:
            raise ConfigError(f"prefetch={self.prefetch} is too much: use {MAX_PREFETCH} at most")
        for name in (self.group, *self.queues):
            if len(name.encode()) > MAX_NAME_BYTES:
                raise ConfigError(
                    f"{name[:40]!r}… is too long a name for RabbitMQ: use {MAX_NAME_BYTES} bytes"
                )
        if self.rabbitmq.declare == "stream":
            raise ConfigError(
                "a RabbitMQ stream keeps no place for its readers, so it cannot be a source: "
                "use declare=quorum"
            )

    def __str__(self) -> str:
        return str(self.rabbitmq)

    @property
    def is_exclusive(self) -> bool:
        return self.order == "strict" and not self.single_active
