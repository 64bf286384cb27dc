"""The direct pass: claims made in the producer's own transaction, for stores that can."""

from __future__ import annotations

import time
from typing import Any

import pytest

from commitrelay.claim import Claim, claim_added
from commitrelay.handles import run_on
from commitrelay.store import Fence, State
from commitrelay.testing.store_cases.scene import Scene, scenario

TOKEN = -4_611_686_018_427_387_904


def direct_store(scene: Scene) -> tuple[Any, Fence]:
    if not hasattr(scene.store, "take_claimed"):
        pytest.skip("this store has no direct pass")
    return scene.store, Fence(scene.lane.id, "direct", TOKEN)


def claim(
    scene: Scene, connection: Any, seqs: list[int], *, token: int = TOKEN, seconds: float = 60
) -> tuple[list[str], int]:
    """Claim these events in the connection's transaction; their ids, and how many were claimed."""
    wanted = ", ".join(map(str, seqs))
    query = f"SELECT id FROM @event WHERE seq IN ({wanted}) ORDER BY seq"  # noqa: S608
    rows = connection.execute(scene.harness.names.fill(query)).fetchall()
    ids = [str(row[0]) for row in rows]
    clock = getattr(scene.harness, "clock", time.time)
    made = Claim(ids, 0.0, scene.lane.name, token, seconds)
    names = scene.harness.names
    count = run_on(
        connection, lambda dialect, style: claim_added(made, names, dialect, style, clock)
    )
    return ids, count


def add_and_claim(scene: Scene, *keys: str, seconds: float = 60) -> tuple[list[int], list[str]]:
    with scene.connected() as connection:
        seqs = scene.add(*keys, connection=connection)
        ids, count = claim(scene, connection, seqs, seconds=seconds)
    assert count == len(keys)
    return seqs, ids


class Passing:
    @scenario
    async def test_what_is_claimed_in_its_own_transaction_is_never_seen_pending(
        self, scene: Scene
    ) -> None:
        store, fence = direct_store(scene)
        seqs, ids = add_and_claim(scene, "a", "b")
        assert scene.states() == dict.fromkeys(seqs, State.CLAIMED)
        assert await scene.claim() == []
        rows = sorted(await store.take_claimed(fence, ids))
        assert [(row.seq, row.id, row.aggregate_id) for row in rows] == [
            (seqs[0], ids[0], "a"),
            (seqs[1], ids[1], "b"),
        ]
        assert rows[0].payload.startswith(b'{"number"')
        assert await store.settle_claimed(fence, delivered=seqs) == 2
        assert scene.states() == {}
        assert scene.journalled() == 2

    @scenario
    async def test_a_claim_is_not_seen_before_its_transaction_is_committed(
        self, scene: Scene
    ) -> None:
        store, fence = direct_store(scene)
        connection = scene.harness.connect()
        seqs = scene.add("a", connection=connection)
        ids, count = claim(scene, connection, seqs)
        assert count == 1
        assert await store.take_claimed(fence, ids) == []
        connection.rollback()
        connection.close()
        assert await store.take_claimed(fence, ids) == []

    @scenario
    async def test_only_the_head_of_a_key_can_be_claimed(self, scene: Scene) -> None:
        direct_store(scene)
        (pending,) = scene.add("a")
        with scene.connected() as connection:
            behind, head = scene.add("a", "b", connection=connection)
            assert claim(scene, connection, [behind, head])[1] == 1
        assert scene.states() == {
            pending: State.PENDING,
            behind: State.PENDING,
            head: State.CLAIMED,
        }

    @scenario
    async def test_whatever_blocks_a_key_keeps_its_followers_from_being_claimed(
        self, scene: Scene
    ) -> None:
        direct_store(scene)
        retrying, dead, parked = scene.add("retrying", "dead", "dead")
        await scene.fail(retrying, 60.0)
        await scene.fail(dead, None)
        await scene.park(parked)
        add_and_claim(scene, "claimed")
        with scene.connected() as connection:
            seqs = scene.add("retrying", "dead", "claimed", connection=connection)
            assert claim(scene, connection, seqs)[1] == 0

    @scenario
    async def test_a_scheduled_event_is_not_claimed_and_blocks_nothing(self, scene: Scene) -> None:
        direct_store(scene)
        with scene.connected() as connection:
            later = scene.harness.moment(3600)
            (scheduled,) = scene.add("a", connection=connection, deliver_at=later)
            (head,) = scene.add("a", connection=connection)
            assert claim(scene, connection, [scheduled, head])[1] == 1
        assert scene.states() == {scheduled: State.SCHEDULED, head: State.CLAIMED}

    @scenario
    async def test_events_of_one_key_are_claimed_together(self, scene: Scene) -> None:
        store, fence = direct_store(scene)
        seqs, ids = add_and_claim(scene, *"aba")
        assert sorted(row.seq for row in await store.take_claimed(fence, ids)) == seqs

    @scenario
    async def test_nothing_is_claimed_behind_a_backlog(self, scene: Scene) -> None:
        direct_store(scene)
        with scene.connected() as connection:
            scene.add(*(f"old-{number}" for number in range(201)), connection=connection)
        with scene.connected() as connection:
            assert claim(scene, connection, scene.add("a", connection=connection))[1] == 0

    @scenario
    async def test_nothing_is_claimed_in_a_paused_lane(self, scene: Scene) -> None:
        direct_store(scene)
        await scene.store.set_paused("default", True)
        with scene.connected() as connection:
            assert claim(scene, connection, scene.add("a", connection=connection))[1] == 0

    @scenario
    async def test_followers_wait_for_a_claimed_event(self, scene: Scene) -> None:
        store, fence = direct_store(scene)
        seqs, _ids = add_and_claim(scene, "a")
        (follower,) = scene.add("a")
        (row,) = await scene.claim()
        assert (row.seq, bool(row.blocked)) == (follower, True)
        assert await scene.park(follower) == 1
        assert await scene.unpark() == 0
        await store.settle_claimed(fence, delivered=seqs)
        assert await scene.unpark() == 1
        assert await scene.seqs() == [follower]

    @scenario
    async def test_what_is_let_go_is_due_at_once_and_holds_its_followers_back(
        self, scene: Scene
    ) -> None:
        store, fence = direct_store(scene)
        (first, second), _ids = add_and_claim(scene, "a", "a")
        assert not await scene.store.idle(scene.lane.id)
        changed = await store.settle_claimed(
            fence, released=[first], parked=[second], error="the broker is away"
        )
        assert changed == 2
        assert scene.states() == {first: State.RETRYING, second: State.PARKED}
        scene.harness.pass_time(0.01)
        (row,) = await scene.claim()
        assert (row.seq, row.attempts, bool(row.blocked)) == (first, 0, False)
        assert await scene.deliver(first) == 1
        assert await scene.unpark() == 1
        assert await scene.seqs() == [second]

    @scenario
    async def test_an_abandoned_claim_is_the_relays_and_its_claimer_fenced(
        self, scene: Scene
    ) -> None:
        store, fence = direct_store(scene)
        seqs, ids = add_and_claim(scene, *"aab", seconds=0.2)
        assert await scene.unpark() == 0
        assert not await scene.store.idle(scene.lane.id)
        scene.harness.pass_time(0.3)
        assert await scene.unpark() == 3
        assert await scene.seqs() == seqs
        before = scene.queue()
        assert await store.take_claimed(fence, ids) == []
        changed = await store.settle_claimed(
            fence, delivered=seqs[:1], released=seqs[1:2], parked=seqs[2:]
        )
        assert changed == 0
        assert scene.queue() == before
        assert scene.journalled() == 0

    @scenario
    async def test_an_abandoned_claim_waits_for_the_relay_of_its_bucket(self, scene: Scene) -> None:
        direct_store(scene)
        add_and_claim(scene, "a", seconds=0.05)
        scene.harness.pass_time(0.1)
        (bucket,) = [int(row[0]) for row in scene.query("SELECT bucket FROM @queue")]
        assert await scene.unpark(buckets=frozenset(range(64)) - {bucket}) == 0
        assert await scene.unpark(buckets=frozenset({bucket})) == 1

    @scenario
    async def test_another_token_takes_and_settles_nothing(self, scene: Scene) -> None:
        store, _fence = direct_store(scene)
        seqs, ids = add_and_claim(scene, "a")
        other = Fence(scene.lane.id, "other", TOKEN + 1)
        before = scene.queue()
        assert await store.take_claimed(other, ids) == []
        assert await store.settle_claimed(other, delivered=seqs) == 0
        assert await store.settle_claimed(other, released=seqs) == 0
        assert await store.settle_claimed(other, parked=seqs) == 0
        assert await scene.deliver(*seqs) == 0
        assert scene.queue() == before

    @scenario
    async def test_the_story_tells_that_a_direct_pass_has_claimed_an_event(
        self, scene: Scene
    ) -> None:
        direct_store(scene)
        (seq,), _ids = add_and_claim(scene, "a", seconds=30)
        (hold,) = (await scene.store.story(seq)).holds
        assert (hold.lane, hold.kind, hold.relay) == ("default", "direct", None)
        assert hold.ends_in_seconds is not None and 10 < hold.ends_in_seconds <= 30
