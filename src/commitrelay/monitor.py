"""Monitor: what a daemon shows and tells of itself: metrics, probes, traces and alerts.

It wraps the ports of each relay, and has a connection of its own to look at the tables.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus

from commitrelay import registry
from commitrelay.alerts import (
    NO_DUTY,
    Alerts,
    Command,
    Duty,
    Limits,
    Messenger,
    Webhook,
    duty_of,
)
from commitrelay.endpoint import Answer, Endpoint, listen
from commitrelay.errors import ConfigError
from commitrelay.metrics import CONTENT_TYPE
from commitrelay.observer import Observer, show
from commitrelay.publisher import Publisher
from commitrelay.settings import LaneSettings, Settings
from commitrelay.spans import exporting_tracing
from commitrelay.store import LaneStatus, Store
from commitrelay.telemetry import LaneMeter, MeteredPublisher, MeteredStore, Telemetry
from commitrelay.traced import TracedPublisher
from commitrelay.tracing import Tracing
from commitrelay.urls import scheme_of

logger = logging.getLogger("commitrelay.monitor")


class Monitor:
    """Of one daemon. Nothing listens and nobody looks before `open`."""

    def __init__(self, settings: Settings, lanes: Sequence[LaneSettings]) -> None:
        self._settings = settings
        self.telemetry = Telemetry()
        self._meters = {lane.name: LaneMeter(self.telemetry, lane.name) for lane in lanes}
        self._tracing: Tracing | None = exporting_tracing() if settings.tracing == "on" else None
        self._observer = Observer(_database(settings))
        self._alerts = Alerts(
            self._observer,
            _limits(settings),
            _messengers(settings),
            leases_lost=self.telemetry.lease_lost.value,
            interval_seconds=settings.alert_interval,
        )
        self._duty = NO_DUTY
        self._endpoint: Endpoint | None = None
        self._watching: asyncio.Task[None] | None = None

    # --- wrapping -----------------------------------------------------------------------------

    def store(self, lane: str, inner: Store) -> Store:
        return MeteredStore(inner, self._meters[lane])

    def publisher(self, lane: str, url: str, inner: Publisher) -> Publisher:
        if self._tracing is not None:
            inner = TracedPublisher(inner, self._tracing, scheme_of(url))
        return MeteredPublisher(inner, self._meters[lane])

    # --- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._alerts.open()
        await self._listen()
        watching = self._alerts.run(list(self._meters), self._my_duty)
        self._watching = asyncio.create_task(watching, name="alerts")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        if self._endpoint is not None:
            await self._endpoint.close()
        await self._alerts.close()
        await self._observer.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.flush)

    async def _listen(self) -> None:
        handlers = {"/livez": self._live, "/readyz": self._ready, "/metrics": self._metrics}
        self._endpoint = await listen(self._settings.metrics_listen, handlers)

    # --- answers ------------------------------------------------------------------------------

    async def _live(self) -> Answer:
        return Answer("ok\n")

    async def _ready(self) -> Answer:
        """Whether every lane's relay has reached its database and broker, and keeps its lease."""
        lines = [
            f"lane {lane}: {'ready' if meter.is_up else 'not ready'}"
            for lane, meter in self._meters.items()
        ]
        is_ready = all(meter.is_up for meter in self._meters.values())
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer("\n".join(lines) + "\n", status)

    async def _metrics(self) -> Answer:
        observation = await self._observer.glance()
        unserved = () if observation is None else self._my_duty(observation.lanes).unserved
        show(observation, self.telemetry, [*self._meters, *unserved])
        for lane, meter in self._meters.items():
            self.telemetry.up.set(int(meter.is_up), lane)
        return Answer(self.telemetry.text(), content_type=CONTENT_TYPE)

    # --- duty ---------------------------------------------------------------------------------

    def _my_duty(self, lanes: Sequence[LaneStatus]) -> Duty:
        names = {lane: meter.relay for lane, meter in self._meters.items()}
        self._duty = duty_of(names, lanes, self._duty)
        return self._duty


def _database(settings: Settings) -> registry.Database:
    options = settings.options.get("store", {})
    return registry.database(settings.required("database"), settings.names, options)


def _limits(settings: Settings) -> Limits:
    return Limits(
        lag_seconds=settings.alert_lag,
        standing_seconds=settings.alert_standing,
        table_bytes=settings.alert_table_size,
        slot_lag_bytes=settings.alert_slot_lag,
        reminder_seconds=settings.alert_reminder,
    )


def _messengers(settings: Settings) -> list[Messenger]:
    messengers: list[Messenger] = []
    if settings.alert_webhook is not None:
        if scheme_of(settings.alert_webhook) not in ("http", "https"):
            raise ConfigError("alert_webhook must be an http:// or https:// URL")
        messengers.append(Webhook(registry.publisher(settings.alert_webhook, {})))
    if settings.alert_command is not None:
        messengers.append(Command(settings.alert_command))
    return messengers
