"""The log and the journal as they grow, lanes as they come and go, and what is written away."""

from __future__ import annotations

from itertools import pairwise

import pytest

from commitrelay.errors import ConfigError
from commitrelay.lanes import remove_lane
from commitrelay.log import LaneFilter
from commitrelay.operations import Act
from commitrelay.testing.store_cases.scene import Scene, scenario


class Upkeep:
    # --- reading as it grows --------------------------------------------------------------

    @scenario
    async def test_added_events_are_read_lowest_first(self, scene: Scene) -> None:
        assert await scene.store.end_of_log() == (0, 0)
        first, second, third = scene.add("a", "b", "c")
        assert (await scene.store.end_of_log()).seq == third
        page = await scene.store.added(after_seq=first, limit=1)
        assert [event.seq for event in page] == [second]
        page = await scene.store.added(after_seq=0, limit=9)
        assert [(event.seq, event.payload) for event in page] == [
            (first, None),
            (second, None),
            (third, None),
        ]

    @scenario
    async def test_batches_tell_what_left_a_lane(self, scene: Scene) -> None:
        a, b, c = scene.add("a", "b", "c")
        await scene.deliver(a, c)
        await scene.deliver(b)
        first, second = await scene.store.batches(after=0, limit=9)
        assert (first.lane, first.status, first.relay, list(first.seqs)) == (
            "default",
            "published",
            "a",
            [a, c],
        )
        assert first.at.tzinfo is not None
        assert (await scene.store.end_of_log()).batch == second.id
        assert [batch.id for batch in await scene.store.batches(after=first.id, limit=9)] == [
            second.id
        ]

    @scenario
    async def test_events_are_read_with_payloads_or_without(self, scene: Scene) -> None:
        (first,) = scene.add("a", payload="héllo")
        scene.add("b")
        (event,) = await scene.store.read_events([first, 10**9])
        assert (event.seq, event.payload) == (first, "héllo".encode())
        assert [delivery.status for delivery in event.deliveries] == ["pending"]
        (light,) = await scene.store.read_events([first], payloads=False)
        assert light.payload is None
        assert list(await scene.store.read_events([])) == []

    # --- what is kept about an event ------------------------------------------------------

    @scenario
    async def test_what_is_kept_about_an_event_goes_with_it(self, scene: Scene) -> None:
        gone, kept = scene.add("a", "b")
        for seq in (gone, kept):
            await scene.fail(seq, 0)
        await scene.deliver(gone)
        scene.harness.pass_time(0.05)
        assert await scene.purge(0.01) == 1
        assert scene.query("SELECT seq FROM @attempt") == [(kept,)]

    @scenario
    async def test_an_act_counts_what_it_changed(self, scene: Scene) -> None:
        audit = await scene.store.begin_act(Act("me", "purge", None, {}))
        await scene.store.count_act(audit, 2)
        await scene.store.count_act(audit, 3)
        assert scene.query("SELECT action, events FROM @audit") == [("purge", 5)]

    # --- lanes ----------------------------------------------------------------------------

    @scenario
    async def test_lanes_are_told_as_they_were_set_up(self, scene: Scene) -> None:
        await scene.store.add_lane("paid", aggregate_types=["Order"], event_types=["A", "B"])
        scene.add("a", "b")
        default, paid = await scene.store.lanes()
        assert (default.name, default.aggregate_types, default.event_types) == (
            "default",
            None,
            None,
        )
        assert (default.waiting, default.relays, default.paused) == (2, 1, False)
        assert (paid.name, list(paid.aggregate_types or ())) == ("paid", ["Order"])
        assert list(paid.event_types or ()) == ["A", "B"]
        assert (paid.waiting, paid.relays) == (0, 0)
        assert paid.created_at.tzinfo is not None

    @scenario
    async def test_a_changed_filter_is_for_what_is_added_from_then_on(self, scene: Scene) -> None:
        lane = await scene.store.add_lane("some", aggregate_types=["Order"])
        (kept,) = scene.add("a")
        scene.add("a", aggregate_type="Cart")
        steps = (
            LaneFilter(["Order"]),
            LaneFilter(["Cart", "It's é"], ["OrderPaid"]),
            LaneFilter(None, ["CartPaid", "OrderPaid"]),
            LaneFilter([]),
            LaneFilter(),
        )
        for number, (seen, new) in enumerate(pairwise(steps)):
            assert await scene.store.set_filter("some", seen=seen, new=new)
            (told,) = [each for each in await scene.store.lanes() if each.name == "some"]
            assert told.filter.takes_the_same_as(new)
            assert not told.paused
            order, cart = scene.add("a"), scene.add("a", aggregate_type="Cart")
            other = scene.add("a", aggregate_type="It's é", event_type="Other")
            taken = {
                seq
                for (seq,) in scene.query(f"SELECT seq FROM @queue WHERE lane = {lane.id}")  # noqa: S608
            }
            assert kept in taken, "what is queued stays"
            expected = ({*cart}, {*order, *cart}, set(), {*order, *cart, *other})[number]
            assert taken & {*order, *cart, *other} == expected
        (default, _some) = await scene.store.lanes()
        assert default.filter == LaneFilter(), "the other lane has kept its own"

    @scenario
    async def test_a_filter_that_was_changed_meanwhile_is_left_alone(self, scene: Scene) -> None:
        await scene.store.add_lane("some", event_types=["A", "B"])
        new = LaneFilter(["Order"])
        for seen in (
            LaneFilter(),
            LaneFilter(None, ["A"]),
            LaneFilter(None, ["A", "B", "C"]),
            LaneFilter(None, []),
            LaneFilter([], ["A", "B"]),
        ):
            assert not await scene.store.set_filter("some", seen=seen, new=new)
        assert not await scene.store.set_filter("nowhere", seen=LaneFilter(), new=new)
        (_default, some) = await scene.store.lanes()
        assert some.filter.takes_the_same_as(LaneFilter(None, ["A", "B"]))

    @scenario
    async def test_a_paused_lane_is_filtered_like_any_other(self, scene: Scene) -> None:
        await scene.store.set_paused("default", True)
        steps = (LaneFilter(), LaneFilter([]), LaneFilter(None, []), LaneFilter(["A"], []))
        for seen, new in pairwise(steps):
            assert await scene.store.set_filter("default", seen=seen, new=new)
        assert (await scene.store.lanes())[0].paused

    @scenario
    async def test_a_closed_lane_is_not_opened_by_a_filter(self, scene: Scene) -> None:
        """Whoever removes it would wait for ever for the end of what it takes again."""
        await scene.store.add_lane("old")
        await scene.store.close_lane("old")
        (_default, old) = await scene.store.lanes()
        assert not await scene.store.set_filter("old", seen=old.filter, new=LaneFilter())
        assert await scene.store.remove_lane("old")

    @scenario
    async def test_a_lane_is_closed_emptied_and_removed(self, scene: Scene) -> None:
        lane = await scene.store.add_lane("old")
        scene.add("a", "b", "c")
        assert await scene.store.empty_lane("old", 9) == 0, "not before it is closed"
        assert not await scene.store.remove_lane("old"), "not before it is closed"
        await scene.store.close_lane("old")
        scene.add("d")
        assert await scene.store.empty_lane("old", 2) == 2
        assert not await scene.store.remove_lane("old"), "not before it is empty"
        assert await scene.store.empty_lane("old", 9) == 1, "a closed lane takes nothing"
        assert await scene.store.remove_lane("old")
        assert [each.name for each in await scene.store.lanes()] == ["default"]
        assert scene.query(f"SELECT seq FROM @queue WHERE lane = {lane.id}") == []  # noqa: S608
        assert len(await scene.seqs()) == 4, "the other lane has them all"

    @scenario
    async def test_a_lane_that_is_not_closed_keeps_its_relays(self, scene: Scene) -> None:
        assert not await scene.store.remove_lane("default")
        assert (await scene.store.lanes())[0].relays == 1

    @scenario
    async def test_removing_a_lane_tells_what_it_dropped(self, scene: Scene) -> None:
        await scene.store.add_lane("old")
        scene.add("a", "b", "c")
        (old,) = [lane for lane in await scene.store.lanes() if lane.name == "old"]
        assert await remove_lane(scene.store, old) == 3

    @scenario
    async def test_there_is_no_lane_to_close(self, scene: Scene) -> None:
        with pytest.raises(ConfigError, match="'nowhere'"):
            await scene.store.close_lane("nowhere")
