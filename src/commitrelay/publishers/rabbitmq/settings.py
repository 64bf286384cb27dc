"""RabbitMQSettings: what the URL and the options say."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from commitrelay.errors import ConfigError
from commitrelay.publishers.settings import Settings
from commitrelay.urls import redact

QUEUE_TYPES = ("quorum", "classic", "stream")
EXCHANGE_TYPES = ("topic", "fanout")

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True)
class RabbitMQSettings:
    """Everything that a RabbitMQ publisher has to know."""

    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    exchange: str = "{topic}"  # empty: RabbitMQ's default exchange, which knows queues by name
    routing_key: str = "{key}"
    declare: str | None = None  # a type of queue: what is missing is made
    exchange_type: str = "topic"  # of exchanges that are made
    delivery_timeout_seconds: float = 10.0
    heartbeat_seconds: int = 10
    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> RabbitMQSettings:
        """Read `amqps://user:password@host:5671,host2:5671/vhost?exchange=…&routing_key=…`."""
        settings = Settings("rabbitmq", options, url.partition("?")[2])
        made = cls.take(url, settings)
        settings.refuse_unknown()
        made.tls_context()
        return made

    @classmethod
    def take(cls, url: str, settings: Settings) -> RabbitMQSettings:
        """What is about the broker and its exchanges; the rest is left in `settings`."""
        scheme, _, rest = url.partition("://")
        authority, _, vhost = rest.partition("?")[0].partition("/")
        userinfo, _, hosts = authority.rpartition("@")
        user, password = _login(userinfo) if userinfo else (cls.user, "guest")
        return cls(
            hosts=_hosts(hosts, DEFAULT_PORTS[scheme.lower()], url),
            tls=scheme.lower() == "amqps",
            user=user,
            password=password,
            vhost=unquote(vhost) or "/",
            exchange=settings.text("exchange", cls.exchange),
            routing_key=settings.text("routing_key", cls.routing_key),
            declare=_optional(settings, "declare", QUEUE_TYPES),
            exchange_type=settings.choice("exchange_type", cls.exchange_type, EXCHANGE_TYPES),
            delivery_timeout_seconds=settings.seconds("delivery_timeout_seconds", 10.0),
            heartbeat_seconds=settings.integer("heartbeat", cls.heartbeat_seconds, at_least=0),
            cacertfile=settings.text("cacertfile", "") or None,
            certfile=settings.text("certfile", "") or None,
            keyfile=settings.text("keyfile", "") or None,
        )

    def __str__(self) -> str:
        return "RabbitMQ at " + ",".join(f"{host}:{port}" for host, port in self.hosts)

    @property
    def connect_timeout_seconds(self) -> float:
        return min(5.0, self.delivery_timeout_seconds / 2)

    def tls_context(self) -> ssl.SSLContext | None:
        """Checks the broker's certificate and its name; there is no way around that."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.cacertfile)
            if self.certfile is not None:
                context.load_cert_chain(self.certfile, self.keyfile)
        except OSError as error:
            names = ", ".join(filter(None, (self.cacertfile, self.certfile, self.keyfile)))
            raise ConfigError(
                f"cannot read the certificates of {self} ({names}): {error.strerror or error}"
            ) from None
        return context


def _hosts(text: str, default_port: int, url: str) -> tuple[tuple[str, int], ...]:
    hosts = []
    for each in text.split(","):
        host, colon, port = each.rpartition(":")
        if not colon or "]" in port:  # no port, or the end of [::1]
            host, port = each, str(default_port)
        host = host.strip("[]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"{redact(url)!r} names no broker: write amqp://user:password@host:5672/vhost"
            )
        hosts.append((host, int(port)))
    return tuple(hosts)


def _login(userinfo: str) -> tuple[str, str]:
    user, _, password = userinfo.partition(":")
    return unquote(user), unquote(password)


def _optional(settings: Settings, name: str, choices: tuple[str, ...]) -> str | None:
    return settings.choice(name, "", ("", *choices)) or None
