"""Writing: threads that change an order and add its events in the same transaction."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from random import Random

from commitrelay.bench.job import Job
from commitrelay.bench.meter import SAMPLED
from commitrelay.demo.place import Place, place_of
from commitrelay.demo.shop import ORDERS
from commitrelay.event import Event
from commitrelay.outbox import Outbox

CATCHING_UP_SECONDS = 0.25


@dataclass
class Writing:
    """`run` writes until `enough` is set; what was committed when is kept."""

    job: Job
    committed: dict[str, float] = field(default_factory=dict)
    events: int = 0
    began_at: float = 0.0
    ended_at: float = 0.0
    failure: Exception | None = None

    def run(self, enough: threading.Event) -> None:
        name = self.job.schema or self.job.prefix
        place = place_of(self.job.database, name)
        threads = [
            threading.Thread(target=self._write, args=(place, number, enough))
            for number in range(self.job.writers)
        ]
        self.began_at = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.ended_at = time.monotonic()
        if self.failure is not None:
            raise self.failure

    def _write(self, place: Place, number: int, enough: threading.Event) -> None:
        try:
            self._trade(place, Random(number), enough)  # noqa: S311
        except Exception as error:
            self.failure = error
            enough.set()

    def _trade(self, place: Place, random: Random, enough: threading.Event) -> None:
        job = self.job
        outbox = Outbox(schema=job.schema, prefix=job.prefix)
        pause = 0.0
        if job.events_per_second:
            pause = job.writers * job.events_per_transaction / job.events_per_second
        payload = {
            "filling": secrets.token_hex(job.payload_bytes)[: max(0, job.payload_bytes - 16)]
        }
        connection = place.connect()
        due = time.monotonic() + random.random() * pause
        while not enough.is_set():
            place.advance(connection, random.randint(1, ORDERS), "paid")
            events = [
                Event("Order", random.randrange(job.keys), "OrderPaid", payload)
                for _ in range(job.events_per_transaction)
            ]
            added = outbox.add(connection, *events)
            connection.commit()
            self._note([str(each) for each in added])
            # A writer that fell behind catches up for a while, not for ever.
            due = max(due, time.monotonic() - CATCHING_UP_SECONDS) + pause
            time.sleep(max(0.0, due - time.monotonic()))
        connection.close()

    def _note(self, event_ids: list[str]) -> None:
        now = time.monotonic()
        self.events += len(event_ids)
        for event_id in event_ids:
            if self.job.notes_every_event or event_id[-1] == SAMPLED:
                self.committed[event_id] = now
