"""The payment service: charges an order, or refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commitrelay import Consumer, Event, Outbox, Received
from examples.orders.database import execute

TABLES = (
    "CREATE TABLE IF NOT EXISTS charge (order_id INTEGER, cents INTEGER)",
    "CREATE TABLE IF NOT EXISTS refusal (order_id INTEGER, reason TEXT)",
)

LIMIT_CENTS = 90_00

outbox = Outbox()
consumer = Consumer("payments")


@dataclass
class OrderPlaced:
    cents: int


@consumer.on("OrderPlaced")
def charge(conn: Any, event: Received[OrderPlaced]) -> None:
    """The charge and the news of it are one transaction, and so is the mark in the inbox."""
    number, cents = int(event.aggregate_id), event.payload.cents
    if cents > LIMIT_CENTS:
        reason = f"the card's limit is {LIMIT_CENTS / 100:.2f}"
        execute(conn, "INSERT INTO refusal VALUES (?, ?)", number, reason)
        outbox.add(conn, Event("Order", number, "PaymentRefused", {"reason": reason}))
    else:
        execute(conn, "INSERT INTO charge VALUES (?, ?)", number, cents)
        outbox.add(conn, Event("Order", number, "PaymentTaken", {"cents": cents}))
