"""open_store, open_publisher and open_source: adapters by their URLs, for those who embed."""

from __future__ import annotations

from commitrelay import registry
from commitrelay.publisher import Publisher
from commitrelay.source import Source
from commitrelay.sql import Names


def open_store(
    url: str, *, schema: str | None = None, prefix: str = "outbox", **options: str
) -> registry.Database:
    """The store at a URL such as ``postgresql://localhost/shop``; it connects when it is run."""
    return registry.database(url, Names(schema, prefix), options)


def open_publisher(url: str, **options: str) -> Publisher:
    """The publisher at a URL such as ``kafka://localhost:9092``; it connects when it is run."""
    return registry.publisher(url, options)


def open_source(url: str, **options: str) -> Source:
    """The source at a URL such as ``kafka://localhost:9092?topic=orders``, for a consumer."""
    return registry.source(url, options)
