"""A relay from PostgreSQL to Kafka that refuses at random; killed and stopped by the tests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from random import Random

from commitrelay.format import Plain
from commitrelay.options import RelayOptions
from commitrelay.publisher import Publisher
from commitrelay.publishers.kafka import from_url
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.route import Route
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.testing.faults import FlakyPublisher


async def main() -> None:
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    timeout = {"delivery_timeout_seconds": settings["delivery_timeout_seconds"]}
    publisher: Publisher = from_url(settings["kafka"], timeout)
    if settings["refuse"]:
        publisher = FlakyPublisher(publisher, refuse=settings["refuse"], random=Random())
    relay = Relay(
        PostgresStore(settings["database"]),
        publisher,
        RelayOptions(
            strategy=settings.get("strategy", "partitioned"),
            lease_seconds=settings["lease_seconds"],
            batch_size=settings.get("batch_size", 100),
            retry=RetryPolicy(delays_seconds=(0.2,) * 8),
        ),
        compose=Plain(Route(settings["topic"])),
        name=os.environ["RELAY_NAME"],
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, relay.stop)
    await relay.run()


asyncio.run(main())
