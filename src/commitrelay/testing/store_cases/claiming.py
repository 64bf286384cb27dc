"""What `claim` returns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from commitrelay.store import BUCKETS, ClaimRequest, Failure, Queued, Settlement, State
from commitrelay.testing.store_cases.scene import ALL_BUCKETS, Scene, scenario


class Claiming:
    @scenario
    async def test_an_inserted_event_is_claimed_as_it_was_written(self, scene: Scene) -> None:
        scene.add(
            "42",
            payload='{"a":  1, "ü": "\u2603"}',
            headers='{"traceparent": "00-ab-cd-01"}',
            idempotency_key="pay-42",
            content_type="application/json",
            event_type="OrderPaid",
        )
        (row,) = await scene.claim()
        assert isinstance(row, Queued)
        assert row.payload == '{"a":  1, "ü": "\u2603"}'.encode()
        assert (row.aggregate_type, row.aggregate_id, row.event_type) == (
            "Order",
            "42",
            "OrderPaid",
        )
        assert row.headers == '{"traceparent": "00-ab-cd-01"}'
        assert row.idempotency_key == "pay-42"
        assert (row.state, row.attempts, bool(row.blocked)) == (State.PENDING, 0, False)
        assert 0 <= row.bucket < BUCKETS

    @scenario
    async def test_defaults_of_a_plain_insert(self, scene: Scene) -> None:
        scene.add("1", payload="")
        (row,) = await scene.claim()
        assert row.payload == b""
        assert (row.content_type, row.headers, row.idempotency_key) == (
            "application/json",
            "{}",
            None,
        )
        assert len(row.id) == 36
        assert row.created_at[10] == "T" and row.created_at.endswith("Z"), row.created_at

    @scenario
    async def test_in_seq_order_up_to_the_limit(self, scene: Scene) -> None:
        added = scene.add(*"abcdeabcde")
        assert await scene.seqs(limit=4) == added[:4]
        assert await scene.seqs() == added

    @scenario
    async def test_changes_no_row(self, scene: Scene) -> None:
        scene.add("a", "b")
        before = scene.queue()
        await scene.claim()
        assert scene.queue() == before
        assert len(await scene.claim()) == 2

    @scenario
    async def test_a_rolled_back_event_is_never_seen(self, scene: Scene) -> None:
        connection = scene.harness.connect()
        scene.add("a", connection=connection)
        connection.rollback()
        connection.close()
        assert await scene.claim() == []
        assert scene.queue() == []

    @scenario
    async def test_only_the_leased_buckets(self, scene: Scene) -> None:
        scene.add(*(str(number) for number in range(200)))
        rows = await scene.claim(limit=1000)
        some = frozenset(range(0, BUCKETS, 3))
        expected = [row.seq for row in rows if row.bucket in some]
        assert 0 < len(expected) < 200
        assert await scene.seqs(limit=1000, buckets=some) == expected
        assert await scene.seqs(limit=1000, buckets=frozenset()) == []

    @scenario
    async def test_keys_are_spread_over_the_buckets_and_a_key_has_one(self, scene: Scene) -> None:
        with scene.connected() as connection:
            for _round in range(2):
                scene.add(*(str(number) for number in range(640)), connection=connection)
        rows = await scene.claim(limit=2000)
        buckets: dict[int | str, set[int]] = {}
        for row in rows:
            buckets.setdefault(row.key, set()).add(row.bucket)
        assert len(buckets) == 640
        assert all(len(found) == 1 for found in buckets.values())
        sizes = [0] * BUCKETS
        for (bucket,) in buckets.values():
            sizes[bucket] += 1
        assert min(sizes) > 0
        assert max(sizes) < 640 / BUCKETS * 4

    @scenario
    async def test_same_id_of_another_type_is_another_key(self, scene: Scene) -> None:
        scene.add("1", aggregate_type="Order")
        scene.add("1", aggregate_type="Invoice")
        first, second = await scene.claim()
        assert first.key != second.key

    @scenario
    async def test_above_the_floor_only(self, scene: Scene) -> None:
        added = scene.add(*"abcdef")
        assert await scene.seqs(limit=3) == added[:3]
        assert await scene.seqs(above_seq=added[2]) == added[3:]

    @scenario
    async def test_what_the_relay_has_in_hand_is_left_out(self, scene: Scene) -> None:
        added = scene.add(*"abcabc")
        rows = await scene.claim()
        key_of_b = rows[1].key
        assert await scene.seqs(exclude_seqs=added[:2]) == added[2:]
        assert await scene.seqs(exclude_keys={key_of_b}) == [added[i] for i in (0, 2, 3, 5)]
        assert await scene.seqs(exclude_seqs=[added[0]], exclude_keys=[key_of_b], limit=2) == [
            added[2],
            added[3],
        ]
        assert await scene.seqs(limit=1) == added[:1]
        floored = {"above_seq": added[0], "exclude_seqs": [added[3]], "exclude_keys": [key_of_b]}
        assert await scene.seqs(**floored) == [added[2], added[5]]

    @scenario
    async def test_a_late_commit_with_a_lower_seq_is_found_by_the_next_sweep(
        self, scene: Scene
    ) -> None:
        with self._late_writer(scene) as late:
            (lower,) = scene.add("late", connection=late)
            (higher,) = scene.add("early")
            assert higher > lower
            assert await scene.seqs(limit=1) == [higher]
            await scene.deliver(higher)
            late.commit()
            assert await scene.seqs(above_seq=higher) == []
        assert await scene.seqs() == [lower]

    @scenario
    async def test_a_sweep_does_not_see_what_was_committed_since(self, scene: Scene) -> None:
        with self._late_writer(scene) as late:
            (lower,) = scene.add("k", connection=late)
            others = scene.add("x", "y")
            assert await scene.seqs(limit=2) == others
            late.commit()
        (later,) = scene.add("k")
        assert await scene.seqs(above_seq=others[-1]) == []
        assert await scene.seqs() == [lower, *others, later]

    @contextmanager
    def _late_writer(self, scene: Scene) -> Iterator[Any]:
        """A connection whose transaction is open while others commit."""
        if not scene.store.capabilities.competing:
            pytest.skip("this database has one writer at a time: seq order is commit order")
        late = scene.harness.connect()
        try:
            yield late
        finally:
            late.close()

    # --- due events -----------------------------------------------------------------------

    @scenario
    async def test_due_events_come_first_by_due_time(self, scene: Scene) -> None:
        a, b, c, d = scene.add(*"abcd")
        await scene.fail(d, 0)
        await scene.fail(b, 0.001)
        scene.harness.pass_time(0.01)
        assert await scene.seqs() == [d, b, a, c]
        assert await scene.seqs(limit=3) == [d, b, a]
        assert await scene.seqs(limit=1) == [d]

    @scenario
    async def test_due_events_only_in_a_sweep_from_the_start(self, scene: Scene) -> None:
        a, b = scene.add(*"ab")
        await scene.fail(b, 0)
        scene.harness.pass_time(0.01)
        assert await scene.seqs(above_seq=a) == []
        assert await scene.seqs() == [b, a]

    @scenario
    async def test_due_events_of_leased_buckets_that_are_not_in_hand(self, scene: Scene) -> None:
        a, b = scene.add("1", "2")
        rows = await scene.claim()
        await scene.fail(a, 0)
        await scene.fail(b, 0)
        scene.harness.pass_time(0.01)
        assert set(await scene.seqs()) == {a, b}
        assert await scene.seqs(exclude_seqs=[a]) == [b]
        assert await scene.seqs(exclude_keys=[rows[0].key]) == [b]
        assert await scene.seqs(buckets=ALL_BUCKETS - {rows[0].bucket}) == [b]

    @scenario
    async def test_never_before_the_retry_time(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        await scene.fail(seq, 3600)
        assert await scene.claim() == []
        scene.harness.pass_time(0.05)
        assert await scene.claim() == []

    @scenario
    async def test_never_before_deliver_at(self, scene: Scene) -> None:
        (later,) = scene.add("a", deliver_at=scene.harness.moment(1))
        (never,) = scene.add("b", deliver_at=scene.harness.moment(3600))
        assert scene.states() == {later: State.SCHEDULED, never: State.SCHEDULED}
        assert await scene.seqs() == []
        scene.harness.pass_time(1.1)
        (row,) = await scene.claim()
        assert (row.seq, row.state, bool(row.blocked)) == (later, State.SCHEDULED, False)
        await scene.deliver(later)
        assert scene.states() == {never: State.SCHEDULED}

    @scenario
    async def test_deliver_at_in_the_past_means_now(self, scene: Scene) -> None:
        (seq,) = scene.add("a", deliver_at=scene.harness.moment(-60))
        assert await scene.seqs() == [seq]

    @scenario
    async def test_a_scheduled_event_does_not_block_its_key(self, scene: Scene) -> None:
        scene.add("a", deliver_at=scene.harness.moment(3600))
        (seq,) = scene.add("a")
        (row,) = await scene.claim()
        assert (row.seq, bool(row.blocked)) == (seq, False)

    # --- blocked keys ---------------------------------------------------------------------

    @scenario
    async def test_followers_of_a_failed_event_are_blocked(self, scene: Scene) -> None:
        for retry_in in (3600, None):
            head, follower = scene.add("a", "a")
            (other,) = scene.add("b")
            await scene.fail(head, retry_in)
            blocked = {row.seq: bool(row.blocked) for row in await scene.claim()}
            assert blocked == {follower: True, other: False}
            await scene.deliver(head, follower, other)

    @scenario
    async def test_many_keys_are_blocked_at_once(self, scene: Scene) -> None:
        keys = [str(number) for number in range(130)]
        heads, followers = scene.add(*keys), scene.add(*keys)
        free = scene.add("x", "y", "x")
        failures = [Failure(seq, "no", None) for seq in heads]
        await scene.store.settle(scene.fence, Settlement(failures=failures))
        blocked = {row.seq: bool(row.blocked) for row in await scene.claim(limit=1000)}
        assert blocked == {**dict.fromkeys(followers, True), **dict.fromkeys(free, False)}
        await scene.deliver(*heads[:120])
        blocked = {row.seq: bool(row.blocked) for row in await scene.claim(limit=1000)}
        assert [seq for seq, is_blocked in blocked.items() if is_blocked] == followers[120:]

    @scenario
    async def test_a_due_retry_is_not_blocked_by_itself(self, scene: Scene) -> None:
        head, follower = scene.add("a", "a")
        await scene.fail(head, 0)
        scene.harness.pass_time(0.01)
        rows = await scene.claim()
        assert [(row.seq, bool(row.blocked)) for row in rows] == [(head, False), (follower, True)]
        assert rows[0].attempts == 1

    @scenario
    async def test_followers_of_a_skipped_event_pass(self, scene: Scene) -> None:
        head, follower = scene.add("a", "a")
        await scene.fail(head, None, blocks=False)
        assert scene.states()[head] == State.SKIPPED
        (row,) = await scene.claim()
        assert (row.seq, bool(row.blocked)) == (follower, False)

    @scenario
    async def test_an_earlier_event_is_not_blocked_by_a_later_one(self, scene: Scene) -> None:
        first, second = scene.add("a", "a")
        await scene.fail(second, None)
        (row,) = await scene.claim()
        assert (row.seq, bool(row.blocked)) == (first, False)

    @scenario
    async def test_two_claims_at_once_do_not_disturb_each_other(self, scene: Scene) -> None:
        added = scene.add(*"abcdefgh")
        request = ClaimRequest(limit=100, buckets=ALL_BUCKETS)
        results = await asyncio.gather(*(scene.store.claim(scene.fence, request) for _ in range(5)))
        assert all([row.seq for row in rows] == added for rows in results)
