"""The shipping service: sends what was paid for."""

from __future__ import annotations

from typing import Any

from commitrelay import Consumer, Event, Outbox, Received
from examples.orders.database import execute

TABLES = ("CREATE TABLE IF NOT EXISTS shipment (order_id INTEGER)",)

outbox = Outbox()
consumer = Consumer("shipping")


@consumer.on("PaymentTaken")
def ship(conn: Any, event: Received) -> None:
    number = int(event.aggregate_id)
    execute(conn, "INSERT INTO shipment VALUES (?)", number)
    outbox.add(conn, Event("Order", number, "OrderShipped", {}))
