"""AddCost: what `Outbox.add` costs over an INSERT written by hand.

Transactions of one business row and one event. The ways take turns on the same connection, so
that the machine's moods hit all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from commitrelay.bench.drain import Say
from commitrelay.bench.ground import script
from commitrelay.bench.sample import Sample
from commitrelay.bench.site import Site
from commitrelay.event import Event

TURNS, TRANSACTIONS = 7, 200
ORDER = 42
PAYLOAD = {"total": 10, "currency": "EUR", "lines": [{"sku": f"A{n}", "n": n} for n in range(20)]}

Way = Callable[[], None]


def measure(site: Site, say: Say) -> dict[str, Any]:
    plan = site.plan
    seen: dict[str, list[float]] = {}
    extra: list[float] = []
    site.ground.clear()
    connection = site.ground.place.connect()
    try:
        ways = _ways(site, connection)
        for number in range(plan.rounds):
            turns = [_turn(ways) for _ in range(TURNS)]
            for name in ways:
                seen.setdefault(name, []).append(median(turn[name] for turn in turns) * 1e6)
            extra.append(median(turn["Outbox.add"] / turn["INSERT"] for turn in turns) - 1)
            say(f"add {number + 1}/{plan.rounds}: {extra[-1]:+.1%} over an INSERT by hand")
    finally:
        connection.close()
    return {
        "over_insert": Sample.of(extra),
        "us_per_transaction": {name: Sample.of(each) for name, each in seen.items()},
    }


def _turn(ways: dict[str, Way]) -> dict[str, float]:
    """Seconds a transaction, by way."""
    seconds = {}
    for name, way in ways.items():
        began = time.perf_counter()
        for _ in range(TRANSACTIONS):
            way()
        seconds[name] = (time.perf_counter() - began) / TRANSACTIONS
    return seconds


def _ways(site: Site, connection: Any) -> dict[str, Way]:
    ground = site.ground
    place, outbox = ground.place, ground.outbox
    insert = script(ground.dialect, ground.names, "insert")
    cursor = connection.cursor()

    def without_event() -> None:
        place.advance(connection, ORDER, "paid")
        connection.commit()

    def by_hand() -> None:
        place.advance(connection, ORDER, "paid")
        cursor.execute(insert, ("Order", str(ORDER), "OrderPaid", json.dumps(PAYLOAD).encode()))
        connection.commit()

    def with_outbox() -> None:
        place.advance(connection, ORDER, "paid")
        outbox.add(connection, Event("Order", ORDER, "OrderPaid", PAYLOAD))
        connection.commit()

    return {"no event": without_event, "INSERT": by_hand, "Outbox.add": with_outbox}
