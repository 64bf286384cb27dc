"""The order service: takes orders and reserves stock; finishes what was shipped, cancels what
could not be paid.

No table has a unique constraint that would hide a double effect: an effect that happens twice is
there twice, and the audit finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commitrelay import Consumer, Event, Outbox, Received
from examples.orders.database import execute

TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, cents INTEGER, status TEXT)",
    "CREATE TABLE IF NOT EXISTS stock_move (order_id INTEGER, pieces INTEGER)",
)

outbox = Outbox()
consumer = Consumer("orders")


@dataclass
class PaymentRefused:
    reason: str


def place(conn: Any, number: int, cents: int) -> None:
    """Take an order: the row, the reserved piece and the event, or none of them."""
    execute(conn, "INSERT INTO orders VALUES (?, ?, 'placed')", number, cents)
    execute(conn, "INSERT INTO stock_move VALUES (?, -1)", number)
    outbox.add(conn, Event("Order", number, "OrderPlaced", {"cents": cents}))


@consumer.on("OrderShipped")
def finish(conn: Any, event: Received) -> None:
    execute(conn, "UPDATE orders SET status = 'shipped' WHERE id = ?", int(event.aggregate_id))


@consumer.on("PaymentRefused")
def cancel(conn: Any, event: Received[PaymentRefused]) -> None:
    """The compensation: what was reserved goes back, once."""
    number = int(event.aggregate_id)
    execute(conn, "UPDATE orders SET status = 'cancelled' WHERE id = ?", number)
    execute(conn, "INSERT INTO stock_move VALUES (?, 1)", number)
