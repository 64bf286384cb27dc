"""The competing strategy: claims on key heads, for stores that can."""

from __future__ import annotations

import asyncio

import pytest

from commitrelay.errors import ConfigError
from commitrelay.store import Failure, Fence, Queued, Settlement, State
from commitrelay.testing.store_cases.scene import Scene, scenario


async def compete(scene: Scene, relay: str = "c") -> Fence:
    if not scene.store.capabilities.competing:
        with pytest.raises(ConfigError, match="competing"):
            await scene.store.claim_heads(scene.fence, 10, 60)
        pytest.skip("this store does not compete, and says so")
    await scene.store.leave(scene.fence)
    return await scene.join(relay, strategy="competing")


async def heads(scene: Scene, fence: Fence, limit: int = 100, seconds: float = 60) -> list[int]:
    return [row.seq for row in await scene.store.claim_heads(fence, limit, seconds)]


class Competing:
    @scenario
    async def test_one_event_per_key_in_seq_order(self, scene: Scene) -> None:
        fence = await compete(scene)
        added = scene.add(*"abab", "c")
        rows = await scene.store.claim_heads(fence, 100, 60)
        assert [row.seq for row in rows] == [added[0], added[1], added[4]]
        assert all(isinstance(row, Queued) and row.state == State.CLAIMED for row in rows)
        assert rows[0].payload.startswith(b'{"number"')
        assert await heads(scene, fence) == []
        await scene.store.settle(fence, Settlement(delivered=[added[0]]))
        assert await heads(scene, fence) == [added[2]]

    @scenario
    async def test_at_most_the_limit(self, scene: Scene) -> None:
        fence = await compete(scene)
        added = scene.add(*"abcdef")
        assert await heads(scene, fence, limit=2) == added[:2]
        assert await heads(scene, fence, limit=2) == added[2:4]

    @scenario
    async def test_no_event_is_claimed_twice_by_relays_at_once(self, scene: Scene) -> None:
        await compete(scene)
        keys = [str(number) for number in range(300)]
        with scene.connected() as connection:
            added = scene.add(*keys, *keys, connection=connection)

        async def drain(relay: str) -> list[int]:
            store = await scene.another_store()
            fence = await scene.join(relay, strategy="competing", store=store)
            mine: list[int] = []
            while rows := await store.claim_heads(fence, 20, 60):
                seqs = [row.seq for row in rows]
                assert len({row.key for row in rows}) == len(rows)
                assert await store.settle(fence, Settlement(delivered=seqs)) == len(seqs)
                mine += seqs
            return mine

        results = await asyncio.gather(*(drain(f"r{number}") for number in range(4)))
        assert sorted(seq for mine in results for seq in mine) == sorted(added)
        assert scene.journalled() == 600

    @scenario
    async def test_a_failed_head_holds_its_followers_back(self, scene: Scene) -> None:
        fence = await compete(scene)
        head, follower, other = scene.add("a", "a", "b")
        assert await heads(scene, fence, limit=1) == [head]
        failed = Settlement(failures=[Failure(head, "no", 1.0)])
        assert await scene.store.settle(fence, failed) == 1
        assert await heads(scene, fence) == [other]
        assert scene.states()[follower] == State.PARKED
        scene.harness.pass_time(1.1)
        assert await heads(scene, fence) == [head]
        await scene.store.settle(fence, Settlement(delivered=[head]))
        assert await scene.store.unpark(fence, frozenset(range(64)), 10) == 1
        assert await heads(scene, fence) == [follower]

    @scenario
    async def test_released_events_are_pending_again_with_no_attempt_spent(
        self, scene: Scene
    ) -> None:
        fence = await compete(scene)
        (seq,) = scene.add("a")
        await heads(scene, fence)
        assert await scene.store.settle(fence, Settlement(released=[seq])) == 1
        (row,) = await scene.store.claim_heads(fence, 10, 60)
        assert (row.seq, row.attempts) == (seq, 0)

    @scenario
    async def test_an_expired_claim_is_claimable_and_its_first_claimer_fenced(
        self, scene: Scene
    ) -> None:
        first = await compete(scene, "c")
        second = await scene.join("d", strategy="competing")
        (seq,) = scene.add("a")
        assert await heads(scene, first, seconds=0.5) == [seq]
        scene.harness.pass_time(0.6)
        assert await heads(scene, second) == [seq]
        before = scene.queue()
        for settlement in (
            Settlement(delivered=[seq]),
            Settlement(failures=[Failure(seq, "no", None)]),
            Settlement(released=[seq]),
        ):
            assert await scene.store.settle(first, settlement) == 0
        assert scene.queue() == before
        await scene.store.settle(second, Settlement(failures=[Failure(seq, "no", 60.0)]))
        before = scene.queue()
        assert await scene.store.settle(first, Settlement(delivered=[seq])) == 0
        assert await scene.store.settle(first, Settlement(failures=[Failure(seq, "n", None)])) == 0
        assert scene.queue() == before

    @scenario
    async def test_settling_what_was_never_claimed_changes_nothing(self, scene: Scene) -> None:
        fence = await compete(scene)
        (seq,) = scene.add("a")
        assert await scene.store.settle(fence, Settlement(delivered=[seq])) == 0
        assert scene.states() == {seq: State.PENDING}

    @scenario
    async def test_many_events_behind_a_dead_one_do_not_hide_the_others(self, scene: Scene) -> None:
        fence = await compete(scene)
        (head,) = scene.add("a")
        await heads(scene, fence)
        await scene.store.settle(fence, Settlement(failures=[Failure(head, "no", None)]))
        with scene.connected() as connection:
            scene.add(*["a"] * 9000, connection=connection)
            (other,) = scene.add("b", connection=connection)
        assert await heads(scene, fence) == [other]

    @scenario
    async def test_abandoned_claims_are_freed_for_another_strategy(self, scene: Scene) -> None:
        fence = await compete(scene)
        (seq,) = scene.add("a")
        await heads(scene, fence, seconds=0.05)
        await scene.store.leave(fence)
        scene.fence = await scene.join("p", strategy="partitioned")
        assert await scene.claim() == []
        scene.harness.pass_time(0.1)
        assert await scene.unpark() == 1
        assert await scene.seqs() == [seq]
        assert await scene.deliver(seq) == 1

    @scenario
    async def test_the_story_tells_who_has_claimed_an_event(self, scene: Scene) -> None:
        fence = await compete(scene)
        first, second = scene.add("a", "a")
        await heads(scene, fence, seconds=30)
        await scene.join("d", strategy="competing")
        (claimed,) = (await scene.store.story(first)).holds
        assert (claimed.lane, claimed.kind, claimed.relay) == ("default", "claimed", "c")
        assert claimed.ends_in_seconds is not None and 10 < claimed.ends_in_seconds <= 30
        (free,) = (await scene.store.story(second)).holds
        assert free == ("default", "unclaimed", None, None)
        await scene.store.leave(fence)
        (orphan,) = (await scene.store.story(first)).holds
        assert (orphan.kind, orphan.relay) == ("claimed", None)
