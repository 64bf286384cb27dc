"""Delivering: the relay as `commitrelay run` would run it, with a stopwatch around its ports."""

from __future__ import annotations

import asyncio

from commitrelay import registry
from commitrelay.bench.job import Job
from commitrelay.bench.meter import Meter, metered
from commitrelay.daemon import Until, relay_options
from commitrelay.format import Plain
from commitrelay.relay import Relay
from commitrelay.route import Route
from commitrelay.settings import LaneSettings, Settings


async def deliver(job: Job, meter: Meter, enough: asyncio.Event) -> None:
    """One relay for each lane, until `enough` is set or, if so asked, nothing is left."""
    relays = [_relay(job, lane, meter) for lane in job.lanes]
    async with asyncio.TaskGroup() as tasks:
        stopping = tasks.create_task(_stop_after(enough, relays))
        await asyncio.gather(*(tasks.create_task(relay.run()) for relay in relays))
        stopping.cancel()


async def _stop_after(enough: asyncio.Event, relays: list[Relay]) -> None:
    await enough.wait()
    for relay in relays:
        relay.stop()


def _relay(job: Job, lane: str, meter: Meter) -> Relay:
    settings = Settings(
        database=job.database,
        schema=job.schema,
        table_prefix=job.prefix,
        order=job.order,
        strategy=job.strategy,
        batch_size=job.batch_size,
        window=job.window,
        poll=job.poll_seconds,
        retention=None,
    )
    store, publisher = metered(
        registry.database(job.database, settings.names),
        registry.publisher(job.publish, job.publisher_options),
        meter,
    )
    until: Until = "drained" if job.until_drained else "stopped"
    options = relay_options(LaneSettings(lane, settings), until, purges=False)
    return Relay(store, publisher, options, compose=Plain(Route(job.topic)))
