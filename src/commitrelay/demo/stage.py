"""Stage: shop, relay and consumer put together, run, and taken down again."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from commitrelay import registry
from commitrelay.admin import initialise
from commitrelay.demo.cleanup import tolerant
from commitrelay.demo.consumer import Consumer
from commitrelay.demo.file_topic import FileTopic
from commitrelay.demo.ledger import Ledger
from commitrelay.demo.place import Place, place_of
from commitrelay.demo.relay_thread import RelayThread
from commitrelay.demo.shop import Shop
from commitrelay.demo.sqlite_place import SqlitePlace
from commitrelay.demo.topic import Topic, topic_of
from commitrelay.errors import CommitrelayError, StoreError
from commitrelay.settings import Settings
from commitrelay.sql import Names
from commitrelay.urls import scrub

REFRESH_SECONDS = 0.25
PATIENCE_SECONDS = 30.0
"""How long the end waits for an event to arrive while none does; then the rest is lost."""


@dataclass(frozen=True, slots=True)
class Script:
    """What to perform."""

    database: str | None
    publish: str | None
    directory: str | None
    seconds: float | None  # None: until stopped
    events_per_second: float  # 0: as fast as it goes
    writers: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one sees at a moment."""

    phase: str
    seconds: float
    added: int
    rolled_back: int
    backlog: int
    published: int
    consumed: int
    duplicates: int
    out_of_order: int
    lag_ms_p50: float
    lag_ms_p99: float


@dataclass(frozen=True, slots=True)
class Report:
    """What it came to. Everything but the counts of work should be 0."""

    added: int
    published: int
    consumed: int
    rolled_back: int
    duplicates: int
    out_of_order: int
    lost: int
    delivered_after_rollback: int
    events_per_second: float
    lag_ms_p50: float
    lag_ms_p99: float
    seconds: float
    writers: int
    database: str
    publisher: str

    @property
    def ok(self) -> bool:
        wrong = self.lost + self.duplicates + self.out_of_order + self.delivered_after_rollback
        return wrong == 0


class Stage:
    """`with Stage(script) as stage: stage.play(show)`: leaves nothing behind but its result."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.finish = threading.Event()
        self._undo = ExitStack()
        self._ledger = Ledger()
        run = uuid4().hex[:10]
        self._directory, self._temporary = _directory(script, run)
        self._place: Place = (
            SqlitePlace(f"sqlite:///{self._directory / 'orders.db'}", Names())
            if script.database is None
            else place_of(script.database, f"commitrelay_demo_{run}")
        )
        self._topic: Topic = (
            FileTopic((self._directory / "topics").as_uri(), "orders")
            if script.publish is None
            else topic_of(script.publish, f"commitrelay-demo-{run}")
        )
        self._relay = RelayThread(self._settings())
        self._consumer = Consumer(self._topic, self._ledger)
        self._shop = Shop(
            self._place,
            self._ledger,
            writers=script.writers,
            events_per_second=script.events_per_second,
            after_commit=self._relay.wake,
        )

    @property
    def database_title(self) -> str:
        return self._place.title

    @property
    def topic_title(self) -> str:
        return self._topic.title

    @property
    def kept(self) -> dict[str, str]:
        """What stays behind, and where."""
        if self._temporary:
            return {}
        places = {"database": self._place.url, "topics": self._topic.url}
        if self.script.database is not None:
            del places["database"]
        if self.script.publish is not None:
            del places["topics"]
        return places

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._directory.mkdir(parents=True, exist_ok=True)
            if self._temporary:
                undo.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._place.prepare()
            if self.script.database is not None:
                undo.callback(tolerant, self._place.remove)
            asyncio.run(initialise(registry.database(self._place.url, self._place.names)))
            self._place.create_orders()
            self._topic.prepare()
            if self.script.publish is not None:
                undo.callback(tolerant, self._topic.remove)
            undo.callback(tolerant, self._topic.close)
            self._topic.subscribe()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._undo:
            self._shop.stop()
            self._relay.stop()
            self._consumer.stop()

    def play(self, show: Callable[[Snapshot], None]) -> Report:
        """Run until the time is over or `finish` is set, then drain and count."""
        started = time.monotonic()
        self._relay.start()
        self._consumer.start()
        self._shop.start()
        while not self._over(time.monotonic() - started):
            show(self._snapshot("running", started))
            self.finish.wait(REFRESH_SECONDS)
        self._shop.stop()
        self._drain(lambda: show(self._snapshot("draining", started)))
        seconds = time.monotonic() - started
        self._relay.stop()
        self._consumer.stop()
        self._raise_failure()
        show(self._snapshot("done", started))
        return self._report(seconds)

    def _settings(self) -> Settings:
        return Settings(
            database=self._place.url,
            schema=self._place.names.schema,
            table_prefix=self._place.names.prefix,
            publish=self._topic.url,
            topic=self._topic.name,
            poll=0.05,
            retention=None,
            inbox_retention=None,
        )

    def _over(self, seconds: float) -> bool:
        limit = self.script.seconds
        timed_out = limit is not None and seconds >= limit
        failed = self._shop.failure or self._relay.failure or self._consumer.failure
        return timed_out or failed is not None or self.finish.is_set()

    def _drain(self, show: Callable[[], None]) -> None:
        left, progress_at = self._ledger.backlog, time.monotonic()
        while left and time.monotonic() - progress_at < PATIENCE_SECONDS:
            if self._relay.failure or self._consumer.failure:
                return
            show()
            self._ledger.wait_for_room(1, REFRESH_SECONDS)
            if self._ledger.backlog < left:
                left, progress_at = self._ledger.backlog, time.monotonic()

    def _raise_failure(self) -> None:
        failure = self._shop.failure or self._relay.failure or self._consumer.failure
        if isinstance(failure, CommitrelayError):
            raise failure
        if failure is not None:
            raise StoreError(f"the demo broke off: {scrub(str(failure))}") from failure

    def _snapshot(self, phase: str, started: float) -> Snapshot:
        ledger = self._ledger
        lags = ledger.take_recent_lags()
        return Snapshot(
            phase=phase,
            seconds=time.monotonic() - started,
            added=ledger.added,
            rolled_back=ledger.rolled_back,
            backlog=ledger.backlog,
            published=self._relay.published,
            consumed=ledger.consumed,
            duplicates=ledger.duplicates,
            out_of_order=ledger.out_of_order,
            lag_ms_p50=lags.percentile_ms(0.5),
            lag_ms_p99=lags.percentile_ms(0.99),
        )

    def _report(self, seconds: float) -> Report:
        ledger = self._ledger
        return Report(
            added=ledger.added,
            published=self._relay.published,
            consumed=ledger.consumed,
            rolled_back=ledger.rolled_back,
            duplicates=ledger.duplicates,
            out_of_order=ledger.out_of_order,
            lost=ledger.lost,
            delivered_after_rollback=ledger.delivered_after_rollback,
            events_per_second=round(ledger.consumed / seconds, 1),
            lag_ms_p50=round(ledger.lags.percentile_ms(0.5), 1),
            lag_ms_p99=round(ledger.lags.percentile_ms(0.99), 1),
            seconds=round(seconds, 2),
            writers=self.script.writers,
            database=self._place.title,
            publisher=self._topic.title,
        )


def _directory(script: Script, run: str) -> tuple[Path, bool]:
    """Where this run's files are, and whether they go away with it."""
    if script.directory is not None:
        return Path(script.directory).absolute() / f"commitrelay-demo-{run}", False
    return Path(tempfile.gettempdir()) / f"commitrelay-demo-{run}", True
