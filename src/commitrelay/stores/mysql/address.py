"""Address: what a `mysql://` URL means to the driver."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from commitrelay.errors import ConfigError
from commitrelay.urls import redact

DEFAULT_PORT = 3306
CONNECT_SECONDS = 10

_SWITCH = {"on": True, "off": False}
_PARAMETERS = ("ssl", "ssl_ca", "unix_socket")


def address(url: str) -> dict[str, Any]:
    """The arguments of `asyncmy.connect`; `ConfigError` if the URL is wrong."""
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise _wrong(url, "its port is no number") from None
    database = unquote(parts.path.strip("/"))
    if not database:
        raise _wrong(url, "it names no database: append /DATABASE")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(given) - set(_PARAMETERS))
    if unknown:
        raise _wrong(url, f"it has no parameter {unknown[0]!r}: use {', '.join(_PARAMETERS)}")
    found = {
        "host": parts.hostname or "127.0.0.1",
        "port": port,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "db": database,
        "ssl": _tls(url, given),
        "connect_timeout": CONNECT_SECONDS,
    }
    return found | {name: given[name] for name in ("unix_socket",) if name in given}


def _tls(url: str, given: dict[str, str]) -> ssl.SSLContext | None:
    """TLS always checks the certificate and the host's name; a CA of one's own implies it."""
    wanted = _SWITCH.get(given.get("ssl", "on" if "ssl_ca" in given else "off"))
    if wanted is None:
        raise _wrong(url, f"ssl is {given['ssl']!r}: use on or off")
    if not wanted:
        return None
    try:
        return ssl.create_default_context(cafile=given.get("ssl_ca"))
    except (OSError, ssl.SSLError) as error:
        raise _wrong(url, f"ssl_ca cannot be read ({error})") from None


def _wrong(url: str, reason: str) -> ConfigError:
    return ConfigError(f"{redact(url)!r} is not a MySQL URL: {reason}")
