"""Replay worlds by their seeds, with the relays' log lines: scripts/simulate SEED [COUNT]."""

from __future__ import annotations

import logging
import sys
from collections import Counter

from tests.simulation.invariants import check
from tests.simulation.world import simulate


def main() -> None:
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    logging.basicConfig(
        level=logging.INFO if count == 1 else logging.CRITICAL, format="%(message)s"
    )
    failures: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            world = simulate(seed)
            check(world)
        except Exception as error:
            failures[str(seed)] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
            if count == 1:
                raise
        else:
            if count == 1:
                print(
                    f"seed {seed}: {len(world.written)} written, {len(world.broker.log)} arrived, "
                    f"{world.crashes} crashes, options {world.options}"
                )
    print(f"{count - len(failures)} worlds in order, {len(failures)} not")
    sys.exit(1 if failures else 0)


main()
