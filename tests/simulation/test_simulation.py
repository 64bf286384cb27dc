"""The engine under a virtual clock, in many worlds. Replay one: scripts/simulate SEED."""

from __future__ import annotations

import logging
import os

import pytest

from tests.simulation.invariants import check
from tests.simulation.world import DARK_SECONDS, DarkWorld, simulate

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


@pytest.mark.parametrize("seed", [0, 10, 20, 30, 50, 120])
def test_an_hour_without_a_broker_kills_loses_and_doubles_nothing(seed: int) -> None:
    logging.disable(logging.ERROR)
    try:
        world = simulate(seed, DarkWorld)
        check(world)
    finally:
        logging.disable(logging.NOTSET)
    assert world.healed_at > DARK_SECONDS
    assert world.broker.faults_seen > 0, "the outage was noticed"
    assert world.queue() == {}, "nothing is dead, nor left"
    arrived = [arrival.event_id for arrival in world.broker.log]
    committed = [event.id for event in world.written if event.committed_at is not None]
    assert sorted(arrived) == sorted(committed)


def test_a_seed_always_gives_the_same_world() -> None:
    logging.disable(logging.ERROR)
    try:
        once, twice = simulate(7), simulate(7)
    finally:
        logging.disable(logging.NOTSET)
    assert once.broker.log == twice.broker.log
    assert once.written == twice.written
