"""NatsSettings: what the URL and the options say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from commitrelay.errors import ConfigError
from commitrelay.publishers.nats.subjects import DEFAULT_SUBJECT, Subjects
from commitrelay.publishers.settings import Settings
from commitrelay.publishers.wire import Tls
from commitrelay.urls import redact

DEFAULT_PORT = 4222


@dataclass(frozen=True)
class NatsSettings:
    """Everything that a NATS publisher has to know."""

    servers: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credentials_file: str | None = None  # a .creds file: JWT and seed
    nkey_file: str | None = None  # a seed
    tls: Tls | None = None  # None: only if the server asks for it
    stream: str | None = None  # given: only this one may take the messages
    subject: str = DEFAULT_SUBJECT
    create_stream: tuple[str, ...] = ()  # the subjects of the stream, if it is to be created
    replicas: int = 1
    delivery_timeout_seconds: float = 10.0

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> NatsSettings:
        """Read `nats://user:password@host:4222,host2:4222?stream=…&subject=…`."""
        settings = Settings("nats", options, url.partition("?")[2])
        made = cls.take(url, settings)
        settings.refuse_unknown()
        return made

    @classmethod
    def take(cls, url: str, settings: Settings) -> NatsSettings:
        """What is about the servers and subjects; the rest is left in `settings`."""
        address = url.partition("://")[2].partition("?")[0]
        userinfo, _, hosts = address.rpartition("@")
        user, has_password, password = userinfo.partition(":")
        if user and not has_password:  # a token there would be shown, for it looks like a user
            raise ConfigError(
                "the NATS URL has a user without a password: write nats://user:password@host, "
                "or a token as ?token=…"
            )
        stream = settings.text("stream", "") or None
        subjects = settings.text("create_stream", "")
        wants_tls = settings.boolean("tls", False)
        files = {
            name: settings.text(f"tls_{name}", "") or None
            for name in ("ca_file", "certificate_file", "key_file")
        }
        return cls(
            servers=tuple(_server(each, url) for each in hosts.strip("/").split(",")),
            user=unquote(user) if has_password else None,
            password=unquote(password) if has_password else None,
            token=settings.text("token", "") or None,
            credentials_file=settings.text("credentials_file", "") or None,
            nkey_file=settings.text("nkey_file", "") or None,
            tls=Tls(**files) if wants_tls or any(files.values()) else None,
            stream=stream,
            subject=settings.text("subject", DEFAULT_SUBJECT),
            create_stream=tuple(each.strip() for each in subjects.split(",") if each.strip()),
            replicas=settings.integer("replicas", 1),
            delivery_timeout_seconds=settings.seconds("delivery_timeout_seconds", 10.0),
        )

    def __post_init__(self) -> None:
        Subjects(self.subject)
        if self.tls is not None:
            self.tls.context()
        if self.stream is not None and not _is_stream_name(self.stream):
            raise ConfigError(
                f"stream={self.stream!r} of the nats publisher is no name of a stream: "
                "it has no dots, spaces, slashes, '*' or '>'"
            )
        if self.create_stream and self.stream is None:
            raise ConfigError("create_stream needs stream=NAME: how is it to be called?")

    def __str__(self) -> str:
        return f"NATS at {','.join(f'{host}:{port}' for host, port in self.servers)}"


def _server(text: str, url: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"{redact(url)!r} names no server: write nats://host:4222")
    return host.strip("[]"), int(port)


def _is_stream_name(name: str) -> bool:
    return not any(character in " \t\r\n.*>/\\" for character in name)
