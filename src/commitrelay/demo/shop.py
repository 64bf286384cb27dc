"""Shop: writer threads that change orders and add the events of it in the same transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

from commitrelay.demo.ledger import Ledger
from commitrelay.demo.place import Place
from commitrelay.event import Event
from commitrelay.outbox import Outbox

ORDERS = 500
MAX_ORDERS_PER_TRANSACTION = 4
ROLLED_BACK_SHARE = 0.1
MAX_UNDER_WAY = 20_000
"""Writers pause while so many events wait, so that the demo never runs away from its relay."""

STEPS = (("placed", "OrderPlaced"), ("paid", "OrderPaid"), ("shipped", "OrderShipped"))


class Shop:
    """The order service. `start` it, `stop` it; `failure` holds what ended a writer early."""

    def __init__(
        self,
        place: Place,
        ledger: Ledger,
        *,
        writers: int,
        events_per_second: float,
        after_commit: Callable[[], None],
    ) -> None:
        self.failure: Exception | None = None
        self._place = place
        self._ledger = ledger
        self._outbox = Outbox(schema=place.names.schema, prefix=place.names.prefix)
        self._seconds_per_event = writers / events_per_second if events_per_second else 0.0
        self._after_commit = after_commit
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number,), name=f"writer {number}")
            for number in range(1, writers + 1)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every writer finish its transaction, and wait for that."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _write(self, number: int) -> None:
        try:
            connection = self._place.connect()
            try:
                self._trade(connection, Random(number))  # noqa: S311
            finally:
                connection.close()
        except Exception as error:
            self.failure = self.failure or error
            self._stopping.set()

    def _trade(self, connection: Any, random: Random) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            if not self._ledger.wait_for_room(MAX_UNDER_WAY, timeout_seconds=0.2):
                continue
            events = self._transaction(connection, random)
            # A writer that fell behind catches up for a quarter of a second at most.
            due = max(due, time.monotonic() - 0.25) + events * self._seconds_per_event
            pause = due - time.monotonic()
            if pause > 0:
                self._stopping.wait(pause)

    def _transaction(self, connection: Any, random: Random) -> int:
        # In the order of their ids, so that two writers cannot wait for each other.
        number = random.randint(1, MAX_ORDERS_PER_TRANSACTION)
        orders = sorted(random.sample(range(1, ORDERS + 1), number))
        events = [self._change(connection, order, random) for order in orders]
        added = [str(event_id) for event_id in self._outbox.add(connection, *events)]
        if random.random() < ROLLED_BACK_SHARE:
            connection.rollback()
            self._ledger.rolled(added)
        else:
            connection.commit()
            self._ledger.committed(added)
            self._after_commit()
        return len(added)

    def _change(self, connection: Any, order: int, random: Random) -> Event:
        status, event_type = random.choice(STEPS)
        version = self._place.advance(connection, order, status)
        payload = {"order": order, "version": version, "status": status, "at": time.time()}
        return Event("Order", order, event_type, payload)
