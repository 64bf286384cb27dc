"""What monitoring reads."""

from __future__ import annotations

from commitrelay.store import BLOCKED_CAP, Failure, Settlement
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
