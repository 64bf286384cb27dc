"""Registry: URL scheme -> adapter, imported only when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from commitrelay.errors import ConfigError
from commitrelay.kinds import hint
from commitrelay.log import LogStore
from commitrelay.operations import Operations
from commitrelay.sql import Names
from commitrelay.store import AdminStore, Store
from commitrelay.urls import redact, scheme_of

if TYPE_CHECKING:
    from commitrelay.publisher import Publisher
    from commitrelay.source import Source
    from commitrelay.transactions import Transactions

DIALECTS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
PUBLISHERS = {
    "kafka": "kafka",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "nats": "nats",
    "redis": "redis",
    "rediss": "redis",
    "https": "http",
    "http": "http",
    "sqs": "sqs",
    "sns": "sqs",
    "file": "file",
    "stdout": "stdout",
}
SOURCES = {
    "kafka": "kafka",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "nats": "nats",
    "redis": "redis",
    "rediss": "redis",
    "file": "file",
}


class Database(Store, AdminStore, LogStore, Operations, Protocol):
    """What a database adapter is: the relay's port and the operators' port in one."""


def dialect_of(url: str) -> str:
    """The folder under stores/ that serves a database URL."""
    return _adapter(url, DIALECTS, "database")


def database(url: str, names: Names, options: Mapping[str, str] | None = None) -> Database:
    """The database adapter for a URL; nothing is connected yet."""
    module = import_module(f"commitrelay.stores.{dialect_of(url)}.store")
    return cast(Database, module.from_url(url, names, dict(options or {})))


def transactions(url: str) -> Transactions:
    """How a consumer's handlers get transactions on a database; nothing is connected yet."""
    module = import_module(f"commitrelay.stores.{dialect_of(url)}.transactions")
    return cast("Transactions", module.from_url(url))


def publisher(url: str, options: Mapping[str, str] | None = None) -> Publisher:
    """The publisher for a URL; nothing is connected yet."""
    name = _adapter(url, PUBLISHERS, "publish")
    module = import_module(f"commitrelay.publishers.{name}")
    return cast("Publisher", module.from_url(url, dict(options or {})))


def source(url: str, options: Mapping[str, str] | None = None) -> Source:
    """The source for a URL; nothing is connected yet."""
    name = _adapter(url, SOURCES, "source")
    module = import_module(f"commitrelay.sources.{name}")
    return cast("Source", module.from_url(url, dict(options or {})))


def _adapter(url: str, known: Mapping[str, str], noun: str) -> str:
    scheme = scheme_of(url)
    if scheme in known:
        return known[scheme]
    listed = ", ".join(f"{name}:" if name == "stdout" else f"{name}://" for name in known)
    raise ConfigError(
        f"{noun} URL {redact(url)!r} has the unknown scheme {scheme!r}"
        f"{hint(scheme, list(known))}: use one of {listed}"
    )
