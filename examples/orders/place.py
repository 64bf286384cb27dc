"""Where the example lives: three databases and a broker, made for one run and removed after it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from commitrelay import StoreError, open_publisher, open_store
from commitrelay.urls import redact
from examples.orders import orders, payments, shipping
from examples.orders.database import execute, transaction

SERVICES = {"orders": orders, "payments": payments, "shipping": shipping}

NEXT = {
    "Order.OrderPlaced": "payments",
    "Order.PaymentTaken": "shipping",
    "Order.PaymentRefused": "orders",
    "Order.OrderShipped": "orders",
}
"""Which service an event goes to. The key is always the order's id."""


@dataclass(frozen=True)
class Place:
    """URLs and files of one run."""

    directory: Path
    databases: dict[str, str]
    publish: str
    sources: dict[str, str]
    server: str | None  # where the databases were made, if not in files

    @property
    def config(self) -> Path:
        return self.directory / "commitrelay.toml"


def make(database: str | None, broker: str | None) -> Place:
    """Databases in files or on a PostgreSQL server, and a topic per service."""
    run = f"shop_{uuid4().hex[:8]}"
    directory = Path(tempfile.gettempdir()) / f"commitrelay-orders-{run}"
    topics = {name: f"{run}.{name}" for name in SERVICES}
    publish, sources = _broker(broker or (directory / "topics").as_uri(), topics)
    open_publisher(publish)  # what is wrong with its URL is said before anything is made
    if database is None:
        databases = {name: f"sqlite:///{directory / name}.db" for name in SERVICES}
    else:
        databases = {name: _created(database, f"{run}_{name}") for name in SERVICES}
    directory.mkdir()
    place = Place(directory, databases, publish, sources, database)
    routes = "\n".join(f'"{event}" = "{topics[name]}"' for event, name in NEXT.items())
    place.config.write_text(f"[routes]\n{routes}\n", "utf-8")
    for name, url in databases.items():
        asyncio.run(_initialise(url))
        with transaction(url) as conn:
            for statement in SERVICES[name].TABLES:
                execute(conn, statement)
    return place


async def _initialise(url: str) -> None:
    store = open_store(url)
    await store.initialise()
    await store.close()


def remove(place: Place) -> None:
    """Take down what `make` has made. Topics and queues of a broker stay."""
    if place.server is not None:
        for url in place.databases.values():
            _on_server(place.server, f"DROP DATABASE {_name_of(url)} WITH (FORCE)")
    shutil.rmtree(place.directory, ignore_errors=True)


def _broker(url: str, topics: dict[str, str]) -> tuple[str, dict[str, str]]:
    """What the relays publish to, and what each service reads."""
    scheme = urlsplit(url).scheme
    if scheme == "kafka":
        # A member with a name of its own gets its partitions back at once when it is restarted.
        reads = f"{url}?create_topics=true&partitions=6&group.instance.id={{name}}&topic={{topic}}"
        publish = f"{url}?create_topics=true&partitions=6"
    elif scheme in ("amqp", "amqps"):
        reads, publish = f"{url}?declare=classic&queue={{topic}}", f"{url}?declare=classic"
    else:
        reads, publish = f"{url}?topic={{topic}}", url
    sources = {name: reads.format(name=name, topic=topic) for name, topic in topics.items()}
    return publish, sources


def _created(server: str, name: str) -> str:
    _on_server(server, f"CREATE DATABASE {name}")
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def _on_server(server: str, statement: str) -> None:
    import psycopg  # noqa: PLC0415

    try:
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(statement)
    except psycopg.Error as error:
        raise StoreError(f"{redact(server)}: {' '.join(str(error).split())}") from None


def _name_of(url: str) -> str:
    return json.dumps(urlsplit(url).path.removeprefix("/"))
