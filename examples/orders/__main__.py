"""Run the example::

python -m examples.orders                                   # SQLite and files
python -m examples.orders --orders 5000 --kill-every 0.5    # on a bad day
python -m examples.orders --database postgresql://… --broker kafka://…
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from commitrelay import CommitrelayError
from examples.orders import place
from examples.orders.stage import Stage

if TYPE_CHECKING:
    from collections import Counter

    from examples.orders.audit import Audit

COLUMNS = ("placed", "paid", "shipped", "refused", "compensated", "under_way", "wrong")


def main() -> int:
    options = _options()
    if options.kill_every is not None and options.kill_every <= 0:
        print("--kill-every is a number of seconds above 0", file=sys.stderr)
        return 2
    try:
        where = place.make(options.database, options.broker)
    except CommitrelayError as error:
        print(error, file=sys.stderr)
        return 1
    began = time.monotonic()
    try:
        if not options.json:
            print(_introduction(options))
        with Stage(
            where, options.orders, kill_every=options.kill_every, seed=options.seed
        ) as stage:
            seen = stage.play(_show if sys.stdout.isatty() and not options.json else _nothing)
    finally:
        if not options.keep:
            place.remove(where)
    seconds = time.monotonic() - began
    is_right = seen.right == options.orders and not seen.wrong
    report = {
        "orders": options.orders,
        **seen.counts(),
        "kills": stage.kills.total(),
        "seconds": round(seconds, 1),
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(f"\n{_verdict(seen, options.orders, stage.kills, seconds)}")
        if options.keep:
            print(f"Databases, topics and logs are in {where.directory}")
    return 0 if is_right else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders",
        description="Orders, payments and shipping, each with its own database; one effect each.",
    )
    parser.add_argument("--orders", type=int, default=200, metavar="N")
    parser.add_argument("--kill-every", type=float, metavar="SECONDS", help="SIGKILL at random")
    parser.add_argument("--database", metavar="URL", help="PostgreSQL server; default: SQLite")
    parser.add_argument("--broker", metavar="URL", help="kafka:// or amqp://; default: files")
    parser.add_argument("--seed", type=int, metavar="N", help="of the kills")
    parser.add_argument("--keep", action="store_true", help="leave databases and logs")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _introduction(options: argparse.Namespace) -> str:
    header = ""
    if sys.stdout.isatty():
        header = "\n\n" + "".join(f"{name.replace('_', ' '):>13}" for name in (*COLUMNS, "kills"))
    kills = ""
    if options.kill_every is not None:
        kills = (
            f"\nEvery {options.kill_every:g} s or so one of the 7 processes is killed (SIGKILL)."
        )
    return (
        "checkout → [orders] → payments → [payments] → shipping → [shipping] → orders\n"
        f"Three services, three relays, {options.orders:,} orders.{kills}{header}"
    )


def _show(seen: Audit, kills: Counter[str]) -> None:
    counts = seen.counts()
    line = "".join(f"{counts[name]:>13,}" for name in COLUMNS)
    print(f"\r{line}{kills.total():>13,}", end="", flush=True)


def _nothing(seen: Audit, kills: Counter[str]) -> None:
    pass


def _verdict(seen: Audit, orders: int, kills: Counter[str], seconds: float) -> str:
    if seen.wrong:
        listed = ", ".join(map(str, seen.wrong[:10]))
        return f"WRONG: {len(seen.wrong)} orders are not as they should be: {listed}"
    if seen.right < orders:
        return f"NOT DONE: {orders - seen.right:,} of {orders:,} orders are not at their end."
    died = f", though processes were killed {kills.total():,} times" if kills else ""
    return (
        f"{seen.right:,} orders in {seconds:.0f} s{died}: "
        f"{seen.shipped:,} charged once and shipped once, "
        f"{seen.compensated:,} refused once and compensated once."
    )


if __name__ == "__main__":
    sys.exit(main())
