"""open_store and open_publisher: adapters by their URLs, for those who embed the relay."""

from __future__ import annotations

from commitrelay import registry
from commitrelay.publisher import Publisher
from commitrelay.sql import Names


def open_store(
    url: str, *, schema: str | None = None, prefix: str = "outbox", **options: str
) -> registry.Database:
    """The store at a URL such as ``postgresql://localhost/shop``; it connects when it is run."""
    return registry.database(url, Names(schema, prefix), options)


def open_publisher(url: str, **options: str) -> Publisher:
    """The publisher at a URL such as ``kafka://localhost:9092``; it connects when it is run."""
    return registry.publisher(url, options)
