"""Leases and fences: who owns what, and that nobody else writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from commitrelay.errors import ConfigError, LeaseLost
from commitrelay.store import Failure, Fence, Roster, Settlement
from commitrelay.testing.store_cases.scene import ALL_BUCKETS, FullStore, Scene, scenario

HALF = frozenset(range(32))


async def renewed(
    scene: Scene,
    relay: str,
    keep: frozenset[int] | None = None,
    lease_seconds: float = 60,
    strategy: str = "partitioned",
) -> Roster:
    return await scene.store.renew(
        scene.lane.id, relay, strategy=strategy, keep=keep, lease_seconds=lease_seconds
    )


class Leasing:
    @scenario
    async def test_a_new_relay_joins_with_no_bucket_and_a_larger_token(self, scene: Scene) -> None:
        roster = await renewed(scene, "b")
        assert roster.token > scene.fence.token
        assert roster.mine == frozenset()
        assert roster.others == {"a": ALL_BUCKETS}
        assert roster.strategies == {"partitioned"}
        assert roster.free == frozenset()

    @scenario
    async def test_renewing_keeps_token_and_buckets(self, scene: Scene) -> None:
        roster = await renewed(scene, "a")
        assert (roster.token, roster.mine) == (scene.fence.token, ALL_BUCKETS)
        assert roster.others == {}
        assert roster.strategies == frozenset()

    @scenario
    async def test_buckets_are_given_up_and_never_gained_by_renewing(self, scene: Scene) -> None:
        roster = await renewed(scene, "a", keep=HALF)
        assert roster.mine == HALF
        assert roster.free == ALL_BUCKETS - HALF
        roster = await renewed(scene, "a", keep=ALL_BUCKETS)
        assert roster.mine == HALF
        assert (await renewed(scene, "b", keep=ALL_BUCKETS)).mine == frozenset()
        assert (await renewed(scene, "a", keep=frozenset())).mine == frozenset()

    @scenario
    async def test_only_free_buckets_are_acquired(self, scene: Scene) -> None:
        other = await scene.join("b")
        assert await scene.store.acquire(other, ALL_BUCKETS) == frozenset()
        await renewed(scene, "a", keep=HALF)
        assert await scene.store.acquire(other, frozenset({1, 40, 41})) == {40, 41}
        assert await scene.store.acquire(other, frozenset({42})) == {40, 41, 42}
        assert await scene.store.acquire(scene.fence, ALL_BUCKETS) == ALL_BUCKETS - {40, 41, 42}
        roster = await renewed(scene, "b")
        assert (roster.mine, roster.free) == (frozenset({40, 41, 42}), frozenset())

    @scenario
    async def test_relays_that_acquire_at_once_never_share_a_bucket(self, scene: Scene) -> None:
        await scene.store.leave(scene.fence)
        stores = [await scene.another_store() for _ in range(4)]

        async def scramble(store: FullStore, relay: str) -> frozenset[int]:
            fence = await scene.join(relay, store=store)
            held: frozenset[int] = frozenset()
            for bucket in range(64):
                held = await store.acquire(fence, frozenset({bucket, 63 - bucket}))
            return held

        names = ("w", "x", "y", "z")
        held = await asyncio.gather(*map(scramble, stores, names))
        assert sum(map(len, held)) == 64
        assert frozenset().union(*held) == ALL_BUCKETS
        roster = await renewed(scene, "a")
        assert roster.others == dict(zip(names, held, strict=True))

    @scenario
    async def test_an_expired_lease_is_taken_over(self, scene: Scene) -> None:
        other = await scene.join("b")
        assert await scene.store.acquire(other, ALL_BUCKETS) == frozenset()
        await renewed(scene, "a", lease_seconds=0.05)
        scene.harness.pass_time(0.1)
        roster = await renewed(scene, "b")
        assert roster.others == {}
        assert await scene.store.acquire(other, roster.free) == ALL_BUCKETS
        back = await renewed(scene, "a")
        assert back.token > other.token, "tokens only grow"
        assert back.mine == frozenset()

    @scenario
    async def test_a_lease_that_has_expired_counts_until_somebody_removes_it(
        self, scene: Scene
    ) -> None:
        (seq,) = scene.add("a")
        await renewed(scene, "a", lease_seconds=0.05)
        scene.harness.pass_time(0.1)
        assert await scene.deliver(seq) == 1
        roster = await renewed(scene, "a")
        assert (roster.token, roster.mine) == (scene.fence.token, ALL_BUCKETS)

    @scenario
    async def test_leaving_frees_the_buckets_at_once(self, scene: Scene) -> None:
        other = await scene.join("b")
        await scene.store.leave(scene.fence)
        assert await scene.store.acquire(other, ALL_BUCKETS) == ALL_BUCKETS
        await scene.store.leave(scene.fence)  # twice is harmless
        back = await scene.join("a")
        assert back.token > other.token > scene.fence.token

    @scenario
    async def test_a_stale_fence_cannot_end_the_lease_of_its_successor(self, scene: Scene) -> None:
        await scene.store.leave(scene.fence)
        again = await scene.join("a")
        await scene.store.leave(scene.fence)
        assert await scene.store.acquire(again, HALF) == HALF

    @scenario
    async def test_strategies_of_the_others_are_told(self, scene: Scene) -> None:
        roster = await renewed(scene, "b", strategy="leader")
        assert roster.strategies == {"partitioned"}
        assert (await renewed(scene, "a")).strategies == {"leader"}

    @scenario
    async def test_a_pause_is_seen_at_the_next_renewal(self, scene: Scene) -> None:
        assert not (await renewed(scene, "a")).paused
        await scene.store.set_paused("default", True)
        assert (await renewed(scene, "a")).paused
        assert (await scene.store.lane("default")).paused
        await scene.store.set_paused("default", False)
        assert not (await renewed(scene, "a")).paused

    @scenario
    async def test_leases_of_one_lane_do_not_concern_another(self, scene: Scene) -> None:
        audit = await scene.store.add_lane("audit")
        roster = await scene.store.renew(
            audit.id, "a", strategy="leader", keep=None, lease_seconds=60
        )
        assert roster.others == {}
        fence = Fence(audit.id, "a", roster.token)
        assert await scene.store.acquire(fence, ALL_BUCKETS) == ALL_BUCKETS

    # --- fencing --------------------------------------------------------------------------

    @scenario
    async def test_a_stale_token_changes_no_row(self, scene: Scene) -> None:
        head, follower, plain = scene.add("a", "a", "b")
        await scene.fail(head, 0)
        await scene.park(follower)
        await scene.deliver(head)
        before = scene.queue()
        stale = scene.fence
        await scene.store.leave(stale)
        successor = await scene.join("a")
        wrong_relay = Fence(stale.lane, "b", successor.token)
        for fence in (stale, wrong_relay, Fence(stale.lane, "a", 0)):
            for write in self._writes(scene.store, fence, plain, follower):
                with pytest.raises(LeaseLost, match="lease"):
                    await write()
        assert scene.queue() == before
        assert scene.journalled() == 1
        roster = await renewed(scene, "a")
        assert (roster.token, roster.mine) == (successor.token, frozenset())

    def _writes(
        self, store: FullStore, fence: Fence, seq: int, parked: int
    ) -> list[Callable[[], Awaitable[object]]]:
        """Every way in which a relay can change the queue or the leases."""
        settlements = [
            Settlement(delivered=[seq]),
            Settlement(failures=[Failure(seq, "no", 1.0)]),
            Settlement(delivered=[seq], failures=[Failure(parked, "no", None)]),
            Settlement(parked=[seq]),
            Settlement(released=[seq]),
            Settlement(delivered=[seq], parked=[parked], released=[seq]),
        ]
        writes: list[Callable[[], Awaitable[object]]] = [
            lambda settlement=settlement: store.settle(fence, settlement)  # type: ignore[misc]
            for settlement in settlements
        ]
        writes.append(lambda: store.unpark(fence, ALL_BUCKETS, 100))
        writes.append(lambda: store.acquire(fence, ALL_BUCKETS))
        if store.capabilities.competing:
            writes.append(lambda: store.claim_heads(fence, 100, 60))
        return writes

    @scenario
    async def test_an_unknown_lane_is_an_error_that_names_it(self, scene: Scene) -> None:
        with pytest.raises(ConfigError, match="nowhere"):
            await scene.store.lane("nowhere")
        with pytest.raises(ConfigError, match="nowhere"):
            await scene.store.set_paused("nowhere", True)
