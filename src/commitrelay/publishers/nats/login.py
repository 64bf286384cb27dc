"""Log in to NATS: reach one of the servers, encrypt, prove who we are."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commitrelay.errors import BrokerUnreachable, ConfigError, MissingExtra
from commitrelay.publishers.nats.connection import NatsConnection
from commitrelay.publishers.nats.settings import NatsSettings
from commitrelay.publishers.wire import Tls, dial, unreachable

_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----\s*(\S+)\s*------?END")


async def log_in(settings: NatsSettings, make: Callable[[str], NatsConnection]) -> NatsConnection:
    """A connection to the first server that lets us in; the last one's error if none does."""
    failure = BrokerUnreachable(f"{settings}: no server")
    for host, port in settings.servers:
        connection = make(f"NATS at {host}:{port}")
        try:
            await _log_in(settings, connection, host, port)
        except BrokerUnreachable as error:
            connection.drop("no login")
            failure = error
        except BaseException:
            connection.drop("no login")
            raise
        else:
            return connection
    raise failure


async def _log_in(settings: NatsSettings, connection: NatsConnection, host: str, port: int) -> None:
    await dial(connection, host, port)
    await connection.has_info.wait()
    if connection.lost is not None:
        raise BrokerUnreachable(connection.lost)
    info = connection.info
    if not info:
        raise BrokerUnreachable(f"{connection.name} does not speak NATS: check host and port")
    if settings.tls is not None or info.get("tls_required"):
        if not (info.get("tls_required") or info.get("tls_available")):
            raise BrokerUnreachable(
                f"{connection.name} offers no TLS, which the URL asks for: set it up there"
            )
        try:
            await connection.start_tls((settings.tls or Tls()).context(), host)
        except (OSError, ssl.SSLError) as error:
            raise unreachable(connection.name, error) from None
    await connection.log_in(_introduction(settings, info.get("nonce", "")))


def _introduction(settings: NatsSettings, nonce: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
        "lang": "python",
        "version": "1",
        "name": "commitrelay",
    }
    if settings.user is not None:
        options |= {"user": settings.user, "pass": settings.password}
    if settings.token is not None:
        options["auth_token"] = settings.token
    if settings.credentials_file is not None:
        blocks = dict(_BLOCK.findall(_read(settings.credentials_file)))
        jwt, seed = blocks.get("NATS USER JWT"), blocks.get("USER NKEY SEED")
        if jwt is None or seed is None:
            raise ConfigError(
                f"{settings.credentials_file} is no credentials file: "
                "it has to hold a JWT and a seed"
            )
        options |= {"jwt": jwt, "sig": _signed(nonce, seed)[1]}
    if settings.nkey_file is not None:
        key, signature = _signed(nonce, _read(settings.nkey_file).strip())
        options |= {"nkey": key, "sig": signature}
    return options


def _signed(nonce: str, seed: str) -> tuple[str, str]:
    try:
        import nkeys  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("nats", "a login with NATS credentials") from None
    try:
        keys = nkeys.from_seed(seed.encode())
        signature = base64.urlsafe_b64encode(keys.sign(nonce.encode())).rstrip(b"=")
        return keys.public_key.decode(), signature.decode()
    except Exception as error:  # its errors have no common root, and may hold the seed
        raise ConfigError(
            f"the seed of the NATS credentials is not usable ({type(error).__name__}): "
            "check the file"
        ) from None


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}): check the path") from None
