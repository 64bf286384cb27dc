"""What monitoring reads."""

from __future__ import annotations

import asyncio

from commitrelay.store import BLOCKED_CAP, Failure, OpenCircuit, Settlement
from commitrelay.testing.store_cases.scene import Scene, scenario


class Monitoring:
    @scenario
    async def test_vitals_of_an_empty_outbox(self, scene: Scene) -> None:
        vitals = await scene.store.vitals()
        assert vitals.blocked_keys == {"default": 0}
        assert vitals.table_bytes > 0

    @scenario
    async def test_vitals_count_keys_behind_a_refused_event(self, scene: Scene) -> None:
        await scene.store.add_lane("other")
        retrying, dead, skipped, _free = scene.add("a", "b", "c", "d")
        waiting = [scene.add("a")[0], scene.add("a")[0], scene.add("b")[0]]
        failures = [
            Failure(retrying, "no", 60.0),
            Failure(dead, "no", None),
            Failure(skipped, "no", None, blocks=False),
        ]
        settlement = Settlement(failures=failures, parked=waiting)
        await scene.store.settle(scene.fence, settlement)
        assert (await scene.store.vitals()).blocked_keys == {"default": 2, "other": 0}

    @scenario
    async def test_vitals_do_not_count_without_end(self, scene: Scene) -> None:
        keys = [str(number) for number in range(BLOCKED_CAP + 5)]
        seqs = scene.add(*keys)
        failures = [Failure(seq, "no", 60.0) for seq in seqs]
        await scene.store.settle(scene.fence, Settlement(failures=failures))
        assert (await scene.store.vitals()).blocked_keys["default"] == BLOCKED_CAP

    @scenario
    async def test_status_tells_who_holds_off_and_why(self, scene: Scene) -> None:
        await scene.store.add_lane("other")
        away = OpenCircuit(90.0, "cannot reach the broker: 'refused' \x00 \ud800")
        for relay in ("a", "has no lease"):
            await scene.store.tell_circuit(scene.lane.id, relay, away, valid_seconds=60)
        default, other = await scene.store.status()
        assert list(default.open_circuits) == ["a", "has no lease"]
        told = default.open_circuits["a"]
        assert 90 <= told.open_seconds < 150
        assert told.error == "cannot reach the broker: 'refused'  ?"
        assert list(default.relays) == ["a"]
        assert other.open_circuits == {}

    @scenario
    async def test_a_circuit_is_what_its_relay_said_last(self, scene: Scene) -> None:
        for seconds, error in ((3000.0, "refused"), (600.0, "timed out")):
            circuit = OpenCircuit(seconds, error)
            await scene.store.tell_circuit(scene.lane.id, "a", circuit, valid_seconds=60)
        (status,) = await scene.store.status()
        assert status.open_circuits["a"].error == "timed out"
        assert 600 <= status.open_circuits["a"].open_seconds < 660
        await scene.store.tell_circuit(scene.lane.id, "a", None, valid_seconds=60)
        await scene.store.tell_circuit(scene.lane.id, "never open", None, valid_seconds=60)
        (status,) = await scene.store.status()
        assert status.open_circuits == {}

    @scenario
    async def test_relays_that_lose_one_broker_tell_it_at_once(self, scene: Scene) -> None:
        """They do not get into each other's way, nor do the remains of those that died."""
        away = OpenCircuit(0.0, "away")
        stores = {name: await scene.another_store() for name in "bcde"}
        for _ in range(5):
            for number in range(3):
                await scene.store.tell_circuit(scene.lane.id, f"{number}", away, valid_seconds=0)
            for circuit in (away, None):
                await asyncio.gather(
                    *(
                        store.tell_circuit(scene.lane.id, name, circuit, valid_seconds=60)
                        for name, store in stores.items()
                    )
                )
        (status,) = await scene.store.status()
        assert status.open_circuits == {}

    @scenario
    async def test_the_word_of_a_dead_relay_expires(self, scene: Scene) -> None:
        away = OpenCircuit(0.0, "x" * 100_000)
        await scene.join("dead", lease_seconds=0.05)
        await scene.store.tell_circuit(scene.lane.id, "dead", away, valid_seconds=0.05)
        scene.harness.pass_time(0.1)
        (status,) = await scene.store.status()
        assert status.open_circuits == {}
        assert list(status.relays) == ["a"]
        await scene.store.tell_circuit(scene.lane.id, "a", away, valid_seconds=60)
        ((relay, error),) = scene.query("SELECT relay, error FROM @circuit")
        assert (relay, len(error)) == ("a", 2000)
