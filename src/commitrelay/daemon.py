"""Daemon: one process that relays every lane of its settings until it is told to stop.

The first SIGTERM or SIGINT lets each relay finish what is at its broker and settle it; the second
one cancels. A lane that the settings file declares is created if the database lacks it; if its
filter is another one there, that is said.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar

from commitrelay import registry
from commitrelay.archive import FileArchive
from commitrelay.dead_letters import BuryingStore, DeadLetters
from commitrelay.errors import ConfigError, StoreUnreachable
from commitrelay.format.choice import composer
from commitrelay.lanes import described, filter_command
from commitrelay.log import LaneFilter
from commitrelay.monitor import Monitor
from commitrelay.options import RelayOptions
from commitrelay.publisher import Publisher
from commitrelay.relay import Relay
from commitrelay.retry import Backoff, RetryPolicy
from commitrelay.route import Route
from commitrelay.settings import LaneSettings, Settings
from commitrelay.store import Store
from commitrelay.systemd import Systemd
from commitrelay.urls import redact, scheme_of

logger = logging.getLogger("commitrelay.daemon")

Until = Literal["stopped", "once", "drained"]
COUNTERS = ("published", "refused", "unreachable", "retried", "dead", "lease_lost")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
COLLECT_AFTER = 50_000
"""So many objects more than before are made before Python looks for cycles among them."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Totals:
    """What a daemon did in its life, over all its lanes."""

    counts: dict[str, int]
    cancelled: bool


class Daemon:
    """The relays of one process. Made from settings alone; nothing is connected before `run`."""

    def __init__(self, settings: Settings, *, until: Until = "stopped") -> None:
        self._settings = settings
        self._lanes = settings.lanes()
        self._monitor = Monitor(settings, self._lanes)
        self._is_job = until != "stopped"  # nobody scrapes a job, and it tells by its exit code
        self._relays = [
            relay_of(lane, until, purges=number == 0, monitor=self._monitor)
            for number, lane in enumerate(self._lanes)
        ]
        self._systemd = Systemd()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._running: list[Relay] = []
        self._cancelled = False

    def stop(self) -> None:
        """Ask once to stop gracefully; ask again to cancel."""
        if self._stopping.is_set():
            logger.warning("stopping at once: events in flight may be delivered again later")
            self._cancelled = True
            for task in self._tasks:
                task.cancel()
            return
        logger.info("stopping: finishing what is in flight; signal again to cancel")
        self._systemd.stopping()
        self._stop_relays()

    async def run(self) -> Totals:
        """Relay until stopped or, for jobs, until done; the first failure stops every lane."""
        self._log_start()
        watchdog = asyncio.create_task(self._systemd.watch(), name="watchdog")
        try:
            with stop_signals(self.stop):
                await self._run_lanes()
        finally:
            watchdog.cancel()
            await self._monitor.close()
        totals = self._totals()
        logger.info("relay stopped", extra=totals.counts)
        return totals

    async def _run_lanes(self) -> None:
        if not self._is_job:
            await self._monitor.open()
        self._tasks = [
            asyncio.create_task(self._run_lane(lane, relay), name=f"lane {lane.name}")
            for lane, relay in zip(self._lanes, self._relays, strict=True)
        ]
        self._systemd.ready(f"relaying {len(self._lanes)} lanes")
        await self._finish()

    async def _finish(self) -> None:
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        self._stop_relays()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _run_lane(self, lane: LaneSettings, relay: Relay) -> None:
        if lane.declared:
            await self._ensure(lane)
        if not self._stopping.is_set():
            self._running.append(relay)
            await relay.run()

    def _stop_relays(self) -> None:
        self._stopping.set()
        for relay in self._running:
            relay.stop()

    async def _ensure(self, lane: LaneSettings) -> None:
        """Create the lane if need be; while the database does not answer, wait."""
        backoff = Backoff(Random(), first_seconds=0.2, most_seconds=10.0)  # noqa: S311
        told = False
        while not self._stopping.is_set():
            try:
                await _create_missing(lane)
            except StoreUnreachable as error:
                if not told:
                    logger.warning("%s; waiting for the database", error)
                    told = True
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), backoff.seconds())
            else:
                return

    def _log_start(self) -> None:
        about = {
            "database": redact(self._settings.required("database")),
            "lanes": ", ".join(_described(lane) for lane in self._lanes),
            "strategy": ", ".join(dict.fromkeys(lane.settings.strategy for lane in self._lanes)),
        }
        logger.info("relay started", extra=about)

    def _totals(self) -> Totals:
        counts = {
            name: sum(getattr(relay.stats, name) for relay in self._relays) for name in COUNTERS
        }
        return Totals(counts, self._cancelled)


def start(settings: Settings, *, until: Until = "stopped") -> Totals:
    """Run a daemon to its end, on uvloop where it is installed."""

    async def main() -> Totals:
        return await Daemon(settings, until=until).run()

    return run_async(main())


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on the fastest event loop there is."""
    _collect_rarely()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def _collect_rarely() -> None:
    """Events in hand are thousands of objects without cycles: to look for some is lost time."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def relay_options(lane: LaneSettings, until: Until, *, purges: bool) -> RelayOptions:
    """The settings of a lane in the engine's terms."""
    chosen = lane.settings
    return RelayOptions(
        lane=lane.name,
        strategy=chosen.strategy,
        order=chosen.order,
        on_dead=chosen.on_dead,
        retry=RetryPolicy(delays_seconds=chosen.retry_delays, jitter=chosen.retry_jitter),
        batch_size=chosen.batch_size,
        window=chosen.window,
        poll_seconds=chosen.poll,
        lease_seconds=chosen.lease,
        until=until,
        retention_seconds=chosen.retention if purges else None,
        inbox_retention_seconds=chosen.inbox_retention if purges else None,
    )


def relay_of(
    lane: LaneSettings,
    until: Until = "stopped",
    *,
    purges: bool = True,
    monitor: Monitor | None = None,
) -> Relay:
    """The relay of one lane, with a database adapter and a publisher of its own."""
    chosen = lane.settings
    # What [routes] does not name goes where `topic` says.
    route = Route({"*": chosen.topic, **chosen.routes})
    url = chosen.required("publish")
    database = _database(lane)
    store: Store = database
    publisher = registry.publisher(url, chosen.publisher_options())
    letters = _dead_letters(lane, publisher)
    if monitor is not None:
        store = monitor.store(lane.name, store)
        publisher = monitor.publisher(lane.name, url, publisher)
    if letters is not None:
        store = BuryingStore(store, letters, archive=database)
    return Relay(
        store,
        publisher,
        relay_options(lane, until, purges=purges),
        compose=composer(chosen.format, route, scheme=scheme_of(url), options=chosen.options),
        name=chosen.relay_name,
        archive=archive_of(chosen, database) if purges else None,
    )


def archive_of(settings: Settings, database: registry.Database) -> FileArchive | None:
    """Where deleted events go before, if the settings name a folder."""
    if settings.archive is None:
        return None
    return FileArchive(database, Path(settings.archive), settings.archive_format)


def _dead_letters(lane: LaneSettings, publisher: Publisher) -> DeadLetters | None:
    chosen = lane.settings
    if chosen.dead_letter_topic is None:
        return None
    if chosen.dead_letter_publish is not None:
        chosen = replace(chosen, publish=chosen.dead_letter_publish)
    elif publisher.capabilities.one_owner:
        raise ConfigError(
            f"{publisher} lets only one sender at a time in: name another one for dead letters "
            "with dead_letter_publish"
        )
    other = registry.publisher(chosen.required("publish"), chosen.publisher_options())
    return DeadLetters(other, lane.settings.dead_letter_topic or "", lane.name)


def _database(lane: LaneSettings) -> registry.Database:
    chosen = lane.settings
    return registry.database(
        chosen.required("database"), chosen.names, chosen.options.get("store", {})
    )


async def _create_missing(lane: LaneSettings) -> None:
    store = _database(lane)
    await store.open()
    try:
        await store.lane(lane.name)
    except ConfigError:
        await store.add_lane(
            lane.name, aggregate_types=lane.aggregate_types, event_types=lane.event_types
        )
        logger.info("created lane %s: it gets what is added from now on", lane.name)
    else:
        await _compare_filter(store, lane)
    finally:
        await store.close()


async def _compare_filter(store: registry.Database, lane: LaneSettings) -> None:
    """Say so if the database has another filter; an entry that names none leaves it to that."""
    wanted = LaneFilter(lane.aggregate_types, lane.event_types)
    if wanted == LaneFilter():
        return
    for known in await store.lanes():
        if known.name == lane.name and not known.filter.takes_the_same_as(wanted):
            logger.warning(
                "lane %s takes %s, but the settings say %s: the database's filter is used; "
                "change it with: %s",
                lane.name,
                described(known.filter),
                described(wanted),
                filter_command(lane.name, wanted),
            )


def _described(lane: LaneSettings) -> str:
    return f"{lane.name} → {redact(lane.settings.required('publish'))}"


class stop_signals:  # noqa: N801
    """While it is open, SIGTERM and SIGINT call `handle` in the running loop."""

    def __init__(self, handle: Callable[[], None]) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
