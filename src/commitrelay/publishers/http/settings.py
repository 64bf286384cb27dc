"""HttpSettings: where webhooks go, and how.

Settings are in the URL's fragment, behind `#`: its query belongs to the endpoint.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from commitrelay.errors import ConfigError
from commitrelay.publishers.http.address import forbidden, is_ip, is_public
from commitrelay.publishers.http.signature import read_secret
from commitrelay.publishers.settings import Settings
from commitrelay.urls import HIDDEN, redact

TOPIC_FIELD = "{topic}"
MOST_CONCURRENT = 1000


@dataclass(frozen=True)
class HttpSettings:
    """Everything that a webhook publisher has to know. Secrets never show."""

    scheme: str
    host: str
    port: int
    target: str  # path and query; {topic} stands for the topic
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    authorization: str | None = field(default=None, repr=False)
    allow_private: bool = False
    concurrency: int = 16
    ca_file: str | None = None
    delivery_timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        if is_ip(self.host) and not self.allow_private and not is_public(self.host):
            raise ConfigError(forbidden(self.host))

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> HttpSettings:
        """Read `https://[user:password@]host[:port]/path[?query]#setting=value&…`."""
        address, _, fragment = url.partition("#")
        settings = Settings("http", options, fragment)
        where = _endpoint(address)
        bearer = settings.text("bearer_token", "")
        own: dict[str, Any] = {
            "secrets": _secrets(settings),
            "authorization": f"Bearer {bearer}" if bearer else _basic(address),
            "allow_private": settings.boolean("allow_private", False),
            "concurrency": settings.integer("concurrency", 16),
            "ca_file": settings.text("ca_file", "") or None,
            "delivery_timeout_seconds": settings.seconds("delivery_timeout_seconds", 10.0),
        }
        settings.refuse_unknown()
        if own["concurrency"] > MOST_CONCURRENT:
            raise ConfigError(f"concurrency of the http publisher is at most {MOST_CONCURRENT}")
        if "\r" in bearer or "\n" in bearer or not bearer.isascii():
            raise ConfigError("bearer_token of the http publisher is not plain ASCII")
        return cls(**where, **own)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = {"http": 80, "https": 443}[self.scheme]
        return host if self.port == default else f"{host}:{self.port}"

    def hide_credentials(self, text: bytes) -> bytes:
        """What an endpoint says, without what it was told: some repeat it in their errors."""
        for secret in self._credentials():
            text = text.replace(secret, HIDDEN.encode())
        return text

    def _credentials(self) -> list[bytes]:
        kind, _, told = (self.authorization or "").partition(" ")
        pair = base64.b64decode(told).partition(b":")[2] if kind == "Basic" else b""
        return [secret for secret in (told.encode(), pair) if secret]

    def ssl_context(self) -> ssl.SSLContext | None:
        """Certificates and host names are always checked."""
        if self.scheme == "http":
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ca_file {self.ca_file} cannot be read ({error}): name a file of PEM certificates"
            ) from None


def _endpoint(address: str) -> dict[str, Any]:
    shown = redact(address)
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{shown!r} is not a URL: write https://host/path") from None
    if not parts.hostname:
        raise ConfigError(f"{shown!r} names no host: write https://host/path")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    rest = target.replace(TOPIC_FIELD, "")
    if "{" in rest or "}" in rest:
        raise ConfigError(
            f"{shown!r}: the only field in the URL of a webhook is {TOPIC_FIELD}; what a topic is "
            "made of, the routes say"
        )
    if not rest.isascii() or not rest.isprintable() or " " in rest:
        raise ConfigError(f"{shown!r} has characters that a URL has to percent-encode")
    default = {"http": 80, "https": 443}[parts.scheme]
    return {
        "scheme": parts.scheme,
        "host": parts.hostname,
        "port": port or default,
        "target": target,
    }


def _secrets(settings: Settings) -> tuple[bytes, ...]:
    """The secret first, then the one that it replaces."""
    given = {name: settings.text(name, "") for name in ("secret", "old_secret")}
    if given["old_secret"] and not given["secret"]:
        raise ConfigError("old_secret of the http publisher needs the new one too: give secret")
    return tuple(read_secret(name, text) for name, text in given.items() if text)


def _basic(address: str) -> str | None:
    userinfo, at, _host = urlsplit(address).netloc.rpartition("@")
    if not at:
        return None
    user, _, password = userinfo.partition(":")
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
