"""A relay that polls every millisecond, beside an application with a direct pass."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys

from commitrelay import (
    Plain,
    Relay,
    RelayOptions,
    RetryPolicy,
    Route,
    open_publisher,
    open_store,
)


async def main() -> None:
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    timeout = {"delivery_timeout_seconds": settings.get("delivery_timeout_seconds", "10")}
    relay = Relay(
        open_store(settings["database"]),
        open_publisher(settings["broker"], **timeout),
        RelayOptions(
            strategy=settings.get("strategy", "partitioned"),
            poll_seconds=0.001,
            retry=RetryPolicy(delays_seconds=(0.2,) * 8),
        ),
        compose=Plain(Route(settings.get("topic", "orders"))),
        name="relay",
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
    await relay.run()


asyncio.run(main())
