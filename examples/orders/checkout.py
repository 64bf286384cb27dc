"""The shop's front: places orders 1, 2, 3, … one transaction each, and goes on where it was.

python -m examples.orders.checkout sqlite:///orders.db 1000
"""

from __future__ import annotations

import os
import sys

from examples.orders.database import execute, transaction
from examples.orders.orders import place


def price_of(number: int) -> int:
    """In cents, from 1.00 to 99.99, of which some are more than the card can pay."""
    return 100 + number * 7919 % 9900


def place_next(url: str, last: int) -> bool:
    """Place the order after the newest one; False if that was the last."""
    with transaction(url) as conn:
        newest = execute(conn, "SELECT max(id) FROM orders").fetchone()[0] or 0
        if newest >= last:
            return False
        place(conn, newest + 1, price_of(newest + 1))
    return True


def main() -> None:
    url, last = os.environ["COMMITRELAY_DATABASE"], int(sys.argv[1])
    while place_next(url, last):
        pass


if __name__ == "__main__":
    main()
