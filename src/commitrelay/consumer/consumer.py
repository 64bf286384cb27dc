"""Consumer: handles events exactly once in effect, in order per aggregate."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from commitrelay import registry
from commitrelay.consumer.database import Begin, Database
from commitrelay.consumer.dead_letters import DeadLetters
from commitrelay.consumer.engine import Engine
from commitrelay.consumer.handlers import Handlers
from commitrelay.consumer.marks import Marks
from commitrelay.consumer.options import ConsumerOptions, ConsumerStats, Health
from commitrelay.errors import ConfigError
from commitrelay.format.binding import binding_of
from commitrelay.format.reading import reader
from commitrelay.inbox import Inbox
from commitrelay.maintenance import purge_forever
from commitrelay.publisher import Publisher
from commitrelay.source import Source
from commitrelay.sql import Names
from commitrelay.urls import redact, scheme_of

logger = logging.getLogger("commitrelay.consumer")

F = TypeVar("F", bound=Callable[[Any, Any], Any])

NOT_RUNNING = Health(
    running=False,
    database_answers=True,
    last_error=None,
    last_error_at=None,
    stopped=(),
    oldest_in_hand_seconds=0.0,
)


class Consumer:
    """Reads events and passes each, in a transaction of your database, to its handler::

        consumer = Consumer(
            "billing",
            source="kafka://localhost:9092?topic=order.events",
            database="postgresql://localhost/billing",
        )

        @consumer.on("OrderPaid")
        def charge(connection, event: Received[OrderPaid]) -> None:
            connection.execute("UPDATE account …")
            outbox.add(connection, Event(…))  # the next step, in the same transaction

        await consumer.run()

    ``name`` is the consumer's name in the inbox, and its group at the broker unless the URL says
    otherwise. ``database`` is a URL, or a callable that returns a transaction as a context manager
    (``sessionmaker.begin``); its value is what handlers get. ``source``, ``database`` and
    ``dead_letter`` may be given later, as attributes or on the command line.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str | Source | None = None,
        database: str | Begin | None = None,
        options: ConsumerOptions | None = None,
        dead_letter: str | Publisher | None = None,
        dead_letter_topic: str = "{topic}.dead",
        schema: str | None = None,
        prefix: str = "outbox",
    ) -> None:
        self.name = name
        self.group: str | None = None
        self.source = source
        self.database = database
        self.options = options or ConsumerOptions()
        self.dead_letter = dead_letter
        self.dead_letter_topic = dead_letter_topic
        self.stats = ConsumerStats()
        self.place(Names(schema, prefix))
        self._handlers = Handlers()
        self._engine: Engine | None = None
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def place(self, names: Names) -> None:
        """Where the tables are."""
        self.names = names
        self._inbox = Inbox(self.name, schema=names.schema, prefix=names.prefix)

    def on(self, *event_types: str, payload: Any = None) -> Callable[[F], F]:
        """Handle events of these types with the decorated function; "*" is for all the rest.

        It gets the transaction's handle and a `Received`. An ordinary function runs in a thread, an
        ``async def`` in the event loop. ``payload`` is the type of the payload, if the annotation
        ``Received[…]`` does not say it.
        """

        def register(function: F) -> F:
            self._handlers.add(function, event_types, payload)
            return function

        return register

    async def run(self) -> None:
        """Consume until `stop` is called, or all was handled (`ConsumerOptions.until`).

        While the broker or the database is away, it waits.
        """
        self._engine = self._made()
        logger.info("consumer started", extra=self._described())
        purging = asyncio.create_task(self._purge())
        try:
            if self._stopped:
                self._engine.stop()
            await self._engine.run()
        finally:
            self._stopped = False
            purging.cancel()
            await asyncio.gather(purging, return_exceptions=True)

    def stop(self) -> None:
        """Let running handlers end, acknowledge, and end `run`. Call it in the loop's thread."""
        self._stopped = True
        if self._engine is not None:
            self._engine.stop()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"consumer {self.name}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self.stop()
        await self._task

    async def lag(self) -> int | None:
        """How many events wait at the broker for this consumer, if the broker can tell."""
        return None if self._engine is None else await self._engine.lag()

    @property
    def abandoned(self) -> int:
        """Handlers that were still running when `run` ended. Their threads may run on."""
        return 0 if self._engine is None else self._engine.abandoned

    def health(self) -> Health:
        """Whether it runs, what went wrong last, and which keys stand still."""
        return NOT_RUNNING if self._engine is None else self._engine.health()

    # --- wiring ---------------------------------------------------------------------------

    def _made(self) -> Engine:
        if not self._handlers:
            raise ConfigError(f"consumer {self.name!r} has no handler: decorate one with on(…)")
        source, binding = self._made_source()
        letters = self._made_dead_letters()
        options = self._chosen_options(letters)
        marks = Marks(self._inbox.consumer, _reader_name(), self.names)
        database = self._made_database(marks, options)
        return Engine(
            source,
            database,
            self._handlers,
            marks=marks,
            read=reader(options.format, binding),
            options=options,
            stats=self.stats,
            dead_letters=letters,
            check=self._check_schema if isinstance(self.database, str) else None,
        )

    def _made_source(self) -> tuple[Source, str]:
        if self.source is None:
            raise ConfigError(f"consumer {self.name!r} has no source: pass source=, or --from")
        if not isinstance(self.source, str):
            return self.source, "none"
        given = {"group": self.group or self.name}
        return registry.source(self.source, given), binding_of(scheme_of(self.source))

    def _made_database(self, marks: Marks, options: ConsumerOptions) -> Database:
        if self.database is None:
            raise ConfigError(
                f"consumer {self.name!r} has no database: pass database=, or --database"
            )
        how = (
            registry.transactions(self.database)
            if isinstance(self.database, str)
            else (self.database)
        )
        return Database(how, self._inbox, marks, threads=options.concurrency)

    def _made_dead_letters(self) -> DeadLetters | None:
        if self.dead_letter is None:
            return None
        publisher = self.dead_letter
        if isinstance(publisher, str):
            publisher = registry.publisher(publisher)
        return DeadLetters(publisher, self.dead_letter_topic, self.name)

    def _chosen_options(self, letters: DeadLetters | None) -> ConsumerOptions:
        chosen = self.options.on_failure or ("stop" if letters is None else "dead_letter")
        if chosen == "dead_letter" and letters is None:
            raise ConfigError(
                f"consumer {self.name!r} has no place for dead letters: pass dead_letter=, "
                'or on_failure="stop"'
            )
        return replace(self.options, on_failure=chosen)

    def _described(self) -> dict[str, str]:
        given = {"source": self.source, "database": self.database, "dead_letter": self.dead_letter}
        urls = {name: redact(value) for name, value in given.items() if isinstance(value, str)}
        return {"consumer": self.name, **urls}

    async def _check_schema(self) -> None:
        store = registry.database(str(self.database), self.names)
        try:
            await store.open()
        finally:
            await store.close()

    async def _purge(self) -> None:
        """Marks that are older than any replay go; nothing else does here."""
        retention = self.options.inbox_retention_seconds
        if not isinstance(self.database, str) or retention is None:
            return
        store = registry.database(self.database, self.names)
        try:
            await purge_forever(
                store,
                retention_seconds=None,
                inbox_retention_seconds=retention,
                is_my_duty=lambda: True,
            )
        finally:
            await store.close()


def _reader_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
