"""RedisSettings: what the URL and the options say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from commitrelay.errors import ConfigError
from commitrelay.publishers.settings import Settings
from commitrelay.publishers.wire import Tls
from commitrelay.urls import redact

DEFAULT_PORT = 6379


@dataclass(frozen=True)
class RedisSettings:
    """Everything that a Redis publisher has to know."""

    host: str
    port: int = DEFAULT_PORT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: Tls | None = None
    cluster: bool = False
    streams: int = 1  # per topic; more: the key's hash says which
    max_length: int | None = None  # None: nothing is ever trimmed
    wait_replicas: int = 0
    delivery_timeout_seconds: float = 10.0

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> RedisSettings:
        """Read `redis://user:password@host:6379/0?streams=…&maxlen=…`; `rediss://` with TLS."""
        settings = Settings("redis", options, urlsplit(url).query)
        made = cls.take(url, settings)
        settings.refuse_unknown()
        return made

    @classmethod
    def take(cls, url: str, settings: Settings) -> RedisSettings:
        """What is about the server and the streams; the rest is left in `settings`."""
        parts = urlsplit(url)
        files = {
            name: settings.text(f"tls_{name}", "") or None
            for name in ("ca_file", "certificate_file", "key_file")
        }
        is_tls = parts.scheme.lower() == "rediss"
        if any(files.values()) and not is_tls:
            raise ConfigError(f"{redact(url)!r} has TLS settings without TLS: write rediss://")
        host, port = _address(url)
        return cls(
            host=host,
            port=port,
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            database=_database(parts.path, url),
            tls=Tls(**files) if is_tls else None,
            cluster=settings.boolean("cluster", False),
            streams=settings.integer("streams", 1),
            max_length=settings.integer("maxlen", 0, at_least=1) or None,
            wait_replicas=settings.integer("wait_replicas", 0, at_least=0),
            delivery_timeout_seconds=settings.seconds("delivery_timeout_seconds", 10.0),
        )

    def __post_init__(self) -> None:
        if self.tls is not None:
            self.tls.context()
        if self.cluster and self.database:
            raise ConfigError(f"{self} is a cluster, which has database 0 only: remove /N")

    def __str__(self) -> str:
        return f"Redis{' cluster' if self.cluster else ''} at {self.host}:{self.port}"


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    if not host:
        raise ConfigError(f"{redact(url)!r} names no server: write redis://host:6379")
    return host, port


def _database(path: str, url: str) -> int:
    text = path.strip("/") or "0"
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{redact(url)!r} has no number as database: write redis://host:6379/0")
    return int(text)
