"""Lanes, waking, and what operators read."""

from __future__ import annotations

import asyncio
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from commitrelay.errors import ConfigError
from commitrelay.store import ClaimRequest, EventFilter, Fence, Settlement, State
from commitrelay.testing.store_cases.scene import ALL_BUCKETS, Scene, scenario


class Operating:
    # --- schema and lanes -----------------------------------------------------------------

    @scenario
    async def test_initialising_again_changes_nothing(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        assert list(await scene.store.initialise()) == []
        assert await scene.seqs() == [seq]

    @scenario
    async def test_lanes_get_what_passes_their_filter(self, scene: Scene) -> None:
        orders = await scene.store.add_lane("orders", aggregate_types=["Order", "Cart"])
        paid = await scene.store.add_lane(
            "paid", aggregate_types=["Order"], event_types=["OrderPaid"]
        )
        nothing = await scene.store.add_lane("nothing", event_types=[])
        (order,) = scene.add("1", aggregate_type="Order", event_type="OrderPaid")
        (cart,) = scene.add("1", aggregate_type="Cart", event_type="OrderPaid")
        (shipped,) = scene.add("1", aggregate_type="Order", event_type="OrderShipped")
        (user,) = scene.add("1", aggregate_type="User", event_type="UserAdded")
        expected = {
            scene.lane.id: [order, cart, shipped, user],
            orders.id: [order, cart, shipped],
            paid.id: [order],
            nothing.id: [],
        }
        for lane, seqs in expected.items():
            request = ClaimRequest(limit=10, buckets=ALL_BUCKETS)
            rows = await scene.store.claim(Fence(lane, "x", 0), request)
            assert [row.seq for row in rows] == seqs

    @scenario
    async def test_a_new_lane_gets_only_what_is_added_from_now_on(self, scene: Scene) -> None:
        scene.add("a")
        lane = await scene.store.add_lane("late")
        assert lane.name == "late" and not lane.paused
        assert await scene.store.lane("late") == lane
        (seq,) = scene.add("b")
        assert scene.query(f"SELECT seq FROM @queue WHERE lane = {lane.id}") == [(seq,)]  # noqa: S608

    @scenario
    async def test_a_lane_is_added_once(self, scene: Scene) -> None:
        await scene.store.add_lane("x")
        with pytest.raises(ConfigError, match="'x'"):
            await scene.store.add_lane("x")

    @scenario
    async def test_a_failure_in_one_lane_leaves_the_other_alone(self, scene: Scene) -> None:
        audit = await scene.store.add_lane("audit")
        head, follower = scene.add("a", "a")
        await scene.fail(head, None)
        await scene.park(follower)
        rows = await scene.store.claim(Fence(audit.id, "x", 0), ClaimRequest(10, ALL_BUCKETS))
        assert [(row.seq, bool(row.blocked)) for row in rows] == [(head, False), (follower, False)]

    # --- sleeping -------------------------------------------------------------------------

    @scenario
    async def test_sleep_ends_after_its_time(self, scene: Scene) -> None:
        for _nap in range(3):
            async with asyncio.timeout(10):
                await scene.store.sleep(0.02)

    @scenario
    async def test_wake_ends_a_sleep_from_another_thread(self, scene: Scene) -> None:
        store = scene.store
        await store.sleep(0.001)  # a store may return at once from its first sleeps
        await store.sleep(0.001)
        waking = threading.Event()

        def wake() -> None:
            waking.set()
            store.wake()

        threading.Timer(0.1, wake).start()
        async with asyncio.timeout(20):
            while not waking.is_set():
                await store.sleep(30)

    @scenario
    async def test_wake_before_a_sleep_is_not_lost(self, scene: Scene) -> None:
        scene.store.wake()
        async with asyncio.timeout(10):
            await scene.store.sleep(60)

    # --- what operators read --------------------------------------------------------------

    @scenario
    async def test_status_counts_by_state(self, scene: Scene) -> None:
        added = scene.add(*"abcdefaf")
        scene.add("s", deliver_at=scene.harness.moment(3600))
        await scene.deliver(added[4])
        await scene.fail(added[0], None, error="too large")
        await scene.fail(added[1], 3600, error="no such topic")
        await scene.fail(added[2], None, blocks=False)
        await scene.park(added[6])
        (status,) = await scene.store.status()
        assert (status.lane, status.paused) == ("default", False)
        assert status.counts == {
            "pending": 3,
            "retrying": 1,
            "scheduled": 1,
            "parked": 1,
            "dead": 1,
            "skipped": 1,
            "claimed": 0,
        }
        assert status.capped_at > 1000
        assert status.published_last_minute == 1
        assert status.last_published_at is not None
        assert status.last_error == "no such topic"
        assert status.oldest_pending_seconds is not None
        assert list(status.relays) == ["a"]
        assert status.relays["a"].buckets == 64
        assert 0 < status.relays["a"].lease_expires_in_seconds <= 60

    @scenario
    async def test_status_of_an_empty_outbox(self, scene: Scene) -> None:
        await scene.store.leave(scene.fence)
        await scene.store.set_paused("default", True)
        (status,) = await scene.store.status()
        assert status.paused
        assert set(status.counts.values()) == {0}
        assert status.oldest_pending_seconds is None
        assert status.last_published_at is None
        assert status.last_error is None
        assert status.published_last_minute == 0
        assert status.relays == {}

    @scenario
    async def test_list_newest_first_by_pages(self, scene: Scene) -> None:
        added = scene.add(*"abcde")
        page = await scene.store.list_events(EventFilter(), before_seq=None, limit=3)
        assert [event.seq for event in page] == added[:1:-1]
        assert all(event.payload is None for event in page)
        rest = await scene.store.list_events(EventFilter(), before_seq=page[-1].seq, limit=3)
        assert [event.seq for event in rest] == [added[1], added[0]]
        newest = await scene.store.list_events(
            EventFilter(), before_seq=None, limit=10, above_seq=added[2]
        )
        assert [event.seq for event in newest] == [added[4], added[3]]

    @scenario
    async def test_list_by_filter(self, scene: Scene) -> None:
        audit = await scene.store.add_lane("audit", aggregate_types=["User"])
        a1, a2, b1 = scene.add("a", "a", "b")
        (user,) = scene.add("u", aggregate_type="User", event_type="UserAdded")
        await scene.deliver(b1)
        await scene.fail(a1, None)
        await scene.park(a2)

        async def found(**where: Any) -> list[int]:
            above_seq = where.pop("above_seq", 0)
            rows = await scene.store.list_events(
                EventFilter(**where), before_seq=None, limit=10, above_seq=above_seq
            )
            return [row.seq for row in rows]

        assert await found(status="dead", above_seq=a1) == []
        assert await found(status="parked", above_seq=a1) == [a2]
        assert await found(status="published", above_seq=b1) == []
        assert await found(aggregate_id="a", above_seq=a1) == [a2]
        assert await found(status="dead") == [a1]
        assert await found(status="parked") == [a2]
        assert await found(status="pending") == [user]
        assert await found(status="published") == [b1]
        assert await found(status="discarded") == []
        assert await found(aggregate_type="User") == [user]
        assert await found(aggregate_id="a") == [a2, a1]
        assert await found(aggregate_id="a", status="dead") == [a1]
        assert await found(event_type="UserAdded") == [user]
        assert await found(lane="audit") == [user]
        assert await found(lane="audit", status="pending") == [user]
        assert await found(lane="audit", status="published") == []
        assert await found(lane="default") == [user, b1, a2, a1]
        assert audit.name == "audit"
        for wrong in ({"status": "nonsense"}, {"lane": "nowhere"}):
            with pytest.raises(ConfigError, match=r"nonsense|nowhere"):
                await found(**wrong)

    @scenario
    async def test_dead_lists_skipped_events_too(self, scene: Scene) -> None:
        blocking, skipped = scene.add("a", "b")
        await scene.fail(blocking, None)
        await scene.fail(skipped, None, blocks=False)
        rows = await scene.store.list_events(EventFilter("dead"), before_seq=None, limit=10)
        assert [row.seq for row in rows] == [skipped, blocking]

    @scenario
    async def test_show_tells_an_events_story(self, scene: Scene) -> None:
        await scene.store.add_lane("audit")
        head, follower = scene.add("a", "a", headers='{"x": "y"}', payload="héllo")
        ids = [event_id for (event_id,) in scene.query("SELECT id FROM @event ORDER BY seq")]
        await scene.fail(head, 3600, error="too large")
        await scene.park(follower)
        event = await scene.store.show_event(str(ids[1]))
        assert event is not None
        assert (event.seq, event.payload, event.headers) == (
            follower,
            "héllo".encode(),
            {"x": "y"},
        )
        assert event.created_at.tzinfo is not None
        parked, audit = event.deliveries
        assert (parked.lane, parked.status, parked.waits_for_seq) == ("default", "parked", head)
        assert (audit.lane, audit.status, audit.waits_for_seq) == ("audit", "pending", None)
        failed = await scene.store.show_event(str(ids[0]))
        assert failed is not None
        retrying = failed.deliveries[0]
        assert (retrying.status, retrying.attempts, retrying.last_error) == (
            "retrying",
            1,
            "too large",
        )
        assert retrying.due_at is not None
        await scene.deliver(head)
        delivered = await scene.store.show_event(str(ids[0]))
        assert delivered is not None
        by_lane = {delivery.lane: delivery for delivery in delivered.deliveries}
        assert (by_lane["default"].status, by_lane["default"].relay) == ("published", "a")
        published_at = by_lane["default"].published_at
        assert published_at is not None
        assert by_lane["audit"].status == "pending"

    @scenario
    async def test_show_of_an_unknown_event(self, scene: Scene) -> None:
        assert await scene.store.show_event(str(uuid.uuid4())) is None
        assert await scene.store.show_event("no uuid at all") is None

    @scenario
    async def test_the_view_is_the_outbox_that_everybody_knows(self, scene: Scene) -> None:
        await scene.store.add_lane("users", aggregate_types=["User"])
        states = {"a": "published", "b": "dead", "c": "retrying", "d": "pending", "e": "dead"}
        a, b, c, _d, e = scene.add(*states)
        scene.add("f", deliver_at=scene.harness.moment(3600))
        (parked,) = scene.add("b")
        await scene.deliver(a)
        await scene.fail(b, None, error="no")
        await scene.fail(c, 3600)
        await scene.fail(e, None, blocks=False)
        await scene.park(parked)
        scene.add("g", aggregate_type="User")
        rows = scene.query("SELECT aggregate_id, lane, status, retry_count, last_error FROM @view")
        found = {(row[0], row[1], row[2]) for row in rows}
        expected = {(key, "default", status) for key, status in states.items()}
        expected |= {("b", "default", "parked"), ("f", "default", "scheduled")}
        expected |= {("g", "default", "pending"), ("g", "users", "pending")}
        assert found == expected
        assert len(rows) == len(expected)
        published = scene.query("SELECT aggregate_id FROM @view WHERE published_at IS NOT NULL")
        assert published == [("a",)]

    @scenario
    async def test_view_and_show_tell_completed_from_published(self, scene: Scene) -> None:
        done, published, waiting, begun = scene.add(*"abcd")
        await scene.deliver(done, published, begun)
        now = scene.harness.moment(0)
        complete = "INSERT INTO @completion (event_id, completed_at) SELECT id, {} FROM @event"
        for seq, moment in ((done, f"'{now}'"), (waiting, f"'{now}'"), (begun, "NULL")):
            scene.run(f"{complete.format(moment)} WHERE seq = {seq}")
        rows = scene.query(
            "SELECT aggregate_id, status, published_at, completed_at FROM @view ORDER BY 1"
        )
        found = [(key, status, bool(sent), bool(done)) for key, status, sent, done in rows]
        assert found == [
            ("a", "completed", True, True),
            ("b", "published", True, False),
            ("c", "pending", False, True),
            ("d", "published", True, False),
        ]
        listed = await scene.store.list_events(EventFilter(), before_seq=None, limit=10)
        shown = [await scene.store.show_event(event.id) for event in listed]
        for event, (_key, status, _sent, completed) in zip(shown, reversed(found), strict=True):
            assert event is not None
            assert event.deliveries[0].status == status
            assert (event.completed_at is not None) is completed

    @scenario
    async def test_an_event_that_no_lane_takes_is_unrouted(self, scene: Scene) -> None:
        with scene.connected() as connection:
            fill = scene.harness.names.fill
            connection.execute(fill("DELETE FROM @lane"))
        scene.add("a")
        assert scene.queue() == []
        assert scene.query("SELECT aggregate_id, lane, status FROM @view") == [
            ("a", None, "unrouted")
        ]

    @scenario
    async def test_times_are_told_in_utc(self, scene: Scene) -> None:
        (seq,) = scene.add("a", deliver_at="2020-02-29T12:00:00.123456+02:00")
        (event,) = await scene.store.list_events(EventFilter(), before_seq=None, limit=1)
        assert event.deliver_at is not None
        assert event.deliver_at == datetime(2020, 2, 29, 10, 0, 0, 123456, tzinfo=UTC)
        assert event.created_at.utcoffset() == timedelta(0)
        assert scene.states()[seq] in (State.PENDING, State.SCHEDULED)
        await scene.store.settle(scene.fence, Settlement(delivered=[seq]))
