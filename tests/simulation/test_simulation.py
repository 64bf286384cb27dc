"""The engine under a virtual clock, in many worlds. Replay one: scripts/simulate SEED."""

from __future__ import annotations

import logging
import os

import pytest

from tests.simulation.invariants import check
from tests.simulation.world import simulate

SEEDS = int(os.environ.get("COMMITRELAY_SIMULATION_SEEDS", "1000"))
CHUNK = 100


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_invariant_holds(first: int) -> None:
    logging.disable(logging.ERROR)
    try:
        for seed in range(first, first + CHUNK):
            try:
                check(simulate(seed))
            except BaseException as error:
                error.add_note(f"replay it: scripts/simulate {seed}")
                raise
    finally:
        logging.disable(logging.NOTSET)


def test_a_seed_always_gives_the_same_world() -> None:
    logging.disable(logging.ERROR)
    try:
        once, twice = simulate(7), simulate(7)
    finally:
        logging.disable(logging.NOTSET)
    assert once.broker.log == twice.broker.log
    assert once.written == twice.written
