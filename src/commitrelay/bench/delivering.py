"""Delivering: the relay as `commitrelay run` would run it, with a stopwatch around its ports."""

from __future__ import annotations

import asyncio

from commitrelay import registry
from commitrelay.bench.job import Job
from commitrelay.bench.meter import Meter, metered
from commitrelay.daemon import relay_options
from commitrelay.format import Plain
from commitrelay.relay import Relay
from commitrelay.route import Route
from commitrelay.settings import LaneSettings, Settings

TRANSACTIONAL_ID = "transactional.id"


async def deliver(job: Job, meter: Meter, enough: asyncio.Event) -> None:
    """One relay for each lane, until `enough` is set."""
    relays = [_relay(job, lane, meter) for lane in job.lanes]
    async with asyncio.TaskGroup() as tasks:
        for relay in relays:
            tasks.create_task(relay.run())
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
        registry.publisher(job.publish, _options(job, lane)),
        meter,
    )
    options = relay_options(LaneSettings(lane, settings), "stopped", purges=False)
    return Relay(store, publisher, options, compose=Plain(Route(job.topic)))


def _options(job: Job, lane: str) -> dict[str, str]:
    """Lanes that shared a transactional id would shut each other out."""
    name = job.publisher_options.get(TRANSACTIONAL_ID)
    own = {} if name is None else {TRANSACTIONAL_ID: f"{name}-{lane}"}
    return {**job.publisher_options, **own}
