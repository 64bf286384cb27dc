"""AddCost: what `Outbox.add` costs over an INSERT written by hand.

Transactions of one business row and one event. The ways take turns on the same connection, each
being first now and then, so that the machine's moods hit all of them.
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

TURNS, TRANSACTIONS = 15, 100
ORDER = 42
PAYLOAD = {"total": 10, "currency": "EUR", "lines": [{"sku": f"A{n}", "n": n} for n in range(20)]}

Way = Callable[[], None]


def measure(site: Site, say: Say) -> dict[str, Any]:
    plan = site.plan
    seen: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    extra: list[float] = []
    site.ground.clear()
    connection = site.ground.place.connect()
    try:
        ways = _ways(site, connection)
        for number in range(plan.rounds):
            turns = [_turn(ways, first=turn) for turn in range(TURNS)]
            for name in ways:
                seconds, cpu_seconds = zip(*(turn[name] for turn in turns), strict=True)
                seen.setdefault(name, []).append(median(seconds) * 1e6)
                used.setdefault(name, []).append(median(cpu_seconds) * 1e6)
            extra.append(median(turn["Outbox.add"][0] / turn["INSERT"][0] for turn in turns) - 1)
            say(f"add {number + 1}/{plan.rounds}: {extra[-1]:+.1%} over an INSERT by hand")
    finally:
        connection.close()
    return {
        "over_insert": Sample.of(extra),
        "us_per_transaction": {name: Sample.of(each) for name, each in seen.items()},
        "cpu_us_per_transaction": {name: Sample.of(each) for name, each in used.items()},
    }


def _turn(ways: dict[str, Way], first: int) -> dict[str, tuple[float, float]]:
    """Seconds a transaction, and this process's share of them in CPU time, by way."""
    names = list(ways)
    found = {}
    for place in range(len(names)):
        name = names[(first + place) % len(names)]
        way, began, used = ways[name], time.perf_counter(), time.process_time()
        for _ in range(TRANSACTIONS):
            way()
        cpu_seconds, seconds = time.process_time() - used, time.perf_counter() - began
        found[name] = (seconds / TRANSACTIONS, cpu_seconds / TRANSACTIONS)
    return found


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
