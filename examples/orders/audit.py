"""The audit: what became of every order, read from the three databases."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from examples.orders.database import execute, transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

ORDERS = """
    SELECT o.id, o.status,
           count(CASE WHEN m.pieces < 0 THEN 1 END), count(CASE WHEN m.pieces > 0 THEN 1 END)
    FROM orders AS o LEFT JOIN stock_move AS m ON m.order_id = o.id
    GROUP BY o.id, o.status
"""
"""One statement, which sees one moment: a cancelled order and the piece that went back."""

ENDS = (("shipped", 1, 1, 1, 0, 0), ("cancelled", 1, 0, 0, 1, 1))
"""Status, and how often: reserved, charged, shipped, refused, returned."""


@dataclass(frozen=True)
class Audit:
    """`right` orders have one charge and one shipment, or one refusal and one compensation."""

    placed: int
    paid: int
    refused: int
    shipped: int
    compensated: int
    right: int
    under_way: int  # right so far, and not at their end yet
    wrong: tuple[int, ...]

    def counts(self) -> dict[str, int]:
        numbers = {name: value for name, value in asdict(self).items() if name != "wrong"}
        return {**numbers, "wrong": len(self.wrong)}


def audit(databases: Mapping[str, str]) -> Audit:
    """What the three services have done so far."""
    # Backwards through the workflow, so that no effect is read without its cause.
    with transaction(databases["orders"]) as conn:
        orders = execute(conn, ORDERS).fetchall()
    shipments = _numbers(databases["shipping"], "SELECT order_id FROM shipment")
    charges = _numbers(databases["payments"], "SELECT order_id FROM charge")
    refusals = _numbers(databases["payments"], "SELECT order_id FROM refusal")
    known = _numbers(databases["orders"], "SELECT id FROM orders")
    right, under_way, wrong = 0, 0, []
    for number, status, reserved, returned in orders:
        effects = (charges[number], shipments[number], refusals[number], returned)
        if (status, reserved, *effects) in ENDS:
            right += 1
        elif status == "placed" and reserved == 1 and _may_go_on(*effects):
            under_way += 1
        else:
            wrong.append(number)
    unknown = {*charges, *shipments, *refusals} - known.keys()
    return Audit(
        placed=len(orders),
        paid=sum(charges.values()),
        refused=sum(refusals.values()),
        shipped=sum(shipments.values()),
        compensated=sum(returned for _number, _status, _reserved, returned in orders),
        right=right,
        under_way=under_way,
        wrong=(*wrong, *sorted(unknown)),
    )


def _may_go_on(charges: int, shipments: int, refusals: int, returned: int) -> bool:
    return charges + refusals <= 1 and shipments <= charges and not returned


def _numbers(url: str, query: str) -> Counter[int]:
    with transaction(url) as conn:
        return Counter(row[0] for row in execute(conn, query).fetchall())
