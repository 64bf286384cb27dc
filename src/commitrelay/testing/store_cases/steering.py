"""What operators change: compare-and-set, audited, and never in the way of order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from commitrelay.errors import ConfigError
from commitrelay.operations import Act, Batch, Hold, Target, Version
from commitrelay.store import EventFilter, Fence, Settlement, State, Verdict
from commitrelay.testing.store_cases.scene import ALL_BUCKETS, Scene, scenario

DEAD = (State.DEAD, State.SKIPPED)
ANY = tuple(State)


async def begin(scene: Scene, action: str = "test", **detail: Any) -> int:
    return await scene.store.begin_act(Act("alice", action, "default", detail))


async def targets(
    scene: Scene, *states: State, ids: Sequence[str] | None = None, **where: Any
) -> list[Target]:
    found = await scene.store.find_targets(
        EventFilter(**where), ids=ids, states=states or ANY, limit=100
    )
    return sorted(found, key=lambda target: (target.lane, target.seq))


def ids_of(scene: Scene) -> dict[int, str]:
    return {int(seq): str(text) for seq, text in scene.query("SELECT seq, id FROM @event")}


def batch(scene: Scene, state: State, *seqs: int) -> Batch:
    return Batch(scene.lane.id, state, seqs)


async def head_and_followers(scene: Scene) -> tuple[int, int, int]:
    """A dead event and two that are parked behind it."""
    head, second, third = scene.add("a", "a", "a")
    await scene.fail(head, None, error="too large")
    await scene.park(second, third)
    return head, second, third


class Steering:
    # --- which events ---------------------------------------------------------------------

    @scenario
    async def test_targets_by_state_and_filter(self, scene: Scene) -> None:
        await scene.store.add_lane("audit", aggregate_types=["User"])
        a, b, c = scene.add("a", "b", "c")
        (user,) = scene.add("u", aggregate_type="User", event_type="UserAdded")
        await scene.fail(a, None, error="Too LARGE by far")
        await scene.fail(b, None, blocks=False, error="no such topic")
        await scene.fail(c, 3600, error="no such topic")

        async def found(*states: State, **where: Any) -> list[int]:
            return [target.seq for target in await targets(scene, *states, **where)]

        assert await found(*DEAD) == [a, b]
        assert await found(State.RETRYING) == [c]
        assert await found(State.PENDING) == [user, user]
        assert await found(State.PENDING, lane="audit") == [user]
        assert await found(*DEAD, error="too large") == [a]
        assert await found(error="SUCH TOPIC") == [b, c]
        assert await found(aggregate_id="a") == [a]
        assert await found(aggregate_type="User", lane="default") == [user]
        assert await found(event_type="UserAdded", lane="default") == [user]
        now = datetime.now(UTC)
        assert await found(*DEAD, since=now - timedelta(hours=1)) == [a, b]
        assert await found(*DEAD, since=now + timedelta(hours=1)) == []
        assert await found(*DEAD, until=now - timedelta(hours=1)) == []
        limited = await scene.store.find_targets(EventFilter(), ids=None, states=ANY, limit=2)
        assert len(limited) == 2
        with pytest.raises(ConfigError, match="nowhere"):
            await found(lane="nowhere")

    @scenario
    async def test_targets_by_id(self, scene: Scene) -> None:
        await scene.store.add_lane("audit")
        a, b = scene.add("a", "b")
        await scene.fail(a, None)
        ids = ids_of(scene)
        found = await targets(scene, ids=[ids[a], ids[b]])
        assert [(target.seq, target.state) for target in found] == [
            (a, State.DEAD),
            (b, State.PENDING),
            (a, State.PENDING),
            (b, State.PENDING),
        ]
        assert [target.seq for target in await targets(scene, *DEAD, ids=[ids[a], ids[b]])] == [a]
        assert len(await targets(scene, ids=[ids[a]], lane="audit")) == 1
        assert await targets(scene, ids=[]) == []

    @scenario
    async def test_lists_by_error_and_time(self, scene: Scene) -> None:
        added = scene.add(*"abcde")
        await scene.fail(added[0], None, error="too large")
        await scene.fail(added[1], 3600, error="no such topic")

        async def found(**where: Any) -> list[int]:
            rows = await scene.store.list_events(EventFilter(**where), before_seq=None, limit=10)
            return [row.seq for row in rows]

        assert await found(error="LARGE") == [added[0]]
        assert await found(error="o") == [added[1], added[0]]
        assert await found(error="topic", status="dead") == []
        with pytest.raises(ConfigError, match="has no error"):
            await found(error="topic", status="published")
        hour, now = timedelta(hours=1), datetime.now(UTC)
        await scene.deliver(added[4])
        for status in (None, "pending", "published"):
            everything = await found(status=status)
            assert everything
            assert await found(status=status, since=now - hour) == everything
            assert await found(status=status, since=now + hour) == []
            assert await found(status=status, until=now + hour) == everything
            assert await found(status=status, until=now - hour) == []

    @scenario
    async def test_a_time_in_the_middle_of_the_log_is_found(self, scene: Scene) -> None:
        now = datetime.now(UTC)
        hours = range(40, 0, -1)
        seqs = {}
        for hour in hours:
            at = scene.harness.moment(-hour * 3600)
            (seqs[hour],) = scene.add("a", created_at=at)

        async def found(**where: Any) -> list[int]:
            rows = await scene.store.list_events(EventFilter(**where), before_seq=None, limit=100)
            return [row.seq for row in rows]

        half = timedelta(minutes=30)
        for hour in (1, 7, 20, 39, 40):
            since = now - timedelta(hours=hour) - half
            assert await found(since=since) == [seqs[newer] for newer in range(1, hour + 1)]
            assert await found(until=since) == [seqs[older] for older in range(hour + 1, 41)]
        window = {
            "since": now - timedelta(hours=5) - half,
            "until": now - timedelta(hours=3) - half,
        }
        assert await found(**window) == [seqs[4], seqs[5]]
        # Gaps in the log mislead nobody.
        with scene.connected() as connection:
            table = scene.harness.names.qualified("event")
            connection.execute(f"DELETE FROM {table} WHERE seq < {seqs[30]}")  # noqa: S608
            middle = f"seq > {seqs[20]} AND seq < {seqs[5]}"
            connection.execute(f"DELETE FROM {table} WHERE {middle}")  # noqa: S608
        assert await found(since=now - timedelta(hours=10)) == [seqs[h] for h in range(1, 6)]

    # --- retry ----------------------------------------------------------------------------

    @scenario
    async def test_a_dead_event_is_retried_and_never_becomes_pending(self, scene: Scene) -> None:
        """A sweep under way may have read past it: a later event of its key would overtake it."""
        head, second, third = await head_and_followers(scene)
        audit = await begin(scene, "retry")
        assert await scene.store.retry_events(audit, batch(scene, State.DEAD, head)) == 1
        assert scene.states() == {
            head: State.RETRYING,
            second: State.PARKED,
            third: State.PARKED,
        }
        scene.harness.pass_time(0.01)
        (row,) = await scene.claim()
        assert (row.seq, row.attempts) == (head, 0)
        await scene.deliver(head)
        await scene.unpark()
        assert await scene.seqs() == [second, third]

    @scenario
    async def test_a_skipped_event_and_one_that_waits_are_retried_now(self, scene: Scene) -> None:
        skipped, waiting = scene.add("a", "b")
        await scene.fail(skipped, None, blocks=False)
        await scene.fail(waiting, 3600)
        audit = await begin(scene, "retry")
        assert await scene.store.retry_events(audit, batch(scene, State.SKIPPED, skipped)) == 1
        assert await scene.store.retry_events(audit, batch(scene, State.RETRYING, waiting)) == 1
        scene.harness.pass_time(0.01)
        assert {(row.seq, row.attempts) for row in await scene.claim()} == {
            (skipped, 0),
            (waiting, 0),
        }

    @scenario
    async def test_what_a_relay_may_have_in_hand_is_not_retried(self, scene: Scene) -> None:
        pending, due = scene.add("a", "b")
        await scene.fail(due, 0)
        scene.harness.pass_time(0.01)
        before = scene.queue()
        audit = await begin(scene, "retry")
        for state in State:
            assert await scene.store.retry_events(audit, batch(scene, state, pending, due)) == 0
        assert scene.queue() == before

    @scenario
    async def test_an_event_that_was_changed_meanwhile_is_left_alone(self, scene: Scene) -> None:
        seen, gone = scene.add("a", "b")
        await scene.fail(seen, None)
        await scene.fail(gone, None)
        found = await targets(scene, *DEAD)
        other = await begin(scene, "retry")
        await scene.store.retry_events(other, batch(scene, State.DEAD, seen))
        await scene.fail(seen, 3600)
        await scene.store.remove_events(other, batch(scene, State.DEAD, gone), Verdict.DISCARDED)
        before = scene.queue()
        audit = await begin(scene, "discard")
        again = batch(scene, State.DEAD, *(target.seq for target in found))
        assert await scene.store.retry_events(audit, again) == 0
        assert await scene.store.remove_events(audit, again, Verdict.DISCARDED) == 0
        assert scene.queue() == before
        acts = await scene.store.list_audit(before_id=None, limit=10)
        assert [(act.action, act.events) for act in acts] == [("discard", 0), ("retry", 2)]

    # --- discard and resolve --------------------------------------------------------------

    @scenario
    async def test_a_discarded_head_frees_its_key_in_order(self, scene: Scene) -> None:
        head, second, third = await head_and_followers(scene)
        audit = await begin(scene, "discard")
        removed = batch(scene, State.DEAD, head)
        assert await scene.store.remove_events(audit, removed, Verdict.DISCARDED) == 1
        assert scene.states() == {second: State.PARKED, third: State.PARKED}
        await scene.unpark()
        assert await scene.seqs() == [second, third]
        rows = await scene.store.list_events(EventFilter("discarded"), before_seq=None, limit=10)
        assert [row.seq for row in rows] == [head]
        (delivery,) = rows[0].deliveries
        assert (delivery.status, delivery.relay, delivery.published_at) == (
            "discarded",
            "alice",
            None,
        )

    @scenario
    async def test_a_resolved_event_has_a_verdict_of_its_own(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        await scene.fail(seq, None)
        audit = await begin(scene, "resolve")
        await scene.store.remove_events(audit, batch(scene, State.DEAD, seq), Verdict.RESOLVED)
        for status, found in (("resolved", [seq]), ("discarded", []), ("published", [])):
            rows = await scene.store.list_events(EventFilter(status), before_seq=None, limit=10)
            assert [row.seq for row in rows] == found
        assert scene.query("SELECT status, published_at FROM @view") == [("resolved", None)]

    @scenario
    async def test_what_a_relay_may_have_in_hand_is_not_discarded(self, scene: Scene) -> None:
        pending, due, later = scene.add("a", "b", "c")
        (scheduled,) = scene.add("d", deliver_at=scene.harness.moment(3600))
        await scene.fail(due, 0)
        await scene.fail(later, 3600)
        scene.harness.pass_time(0.01)
        audit = await begin(scene, "discard")

        async def discard(state: State, *seqs: int) -> int:
            return await scene.store.remove_events(
                audit, batch(scene, state, *seqs), Verdict.DISCARDED
            )

        assert await discard(State.PENDING, pending) == 0
        assert await discard(State.RETRYING, due, later) == 1
        assert await discard(State.SCHEDULED, scheduled) == 1
        assert list(scene.states()) == [pending, due]
        await scene.store.leave(scene.fence)
        assert await discard(State.PENDING, pending) == 1
        assert await discard(State.RETRYING, due) == 1
        assert scene.states() == {}

    @scenario
    async def test_what_is_being_sent_is_never_touched(self, scene: Scene) -> None:
        if not scene.store.capabilities.competing:
            pytest.skip("this store has no competing strategy")
        (seq,) = scene.add("a")
        fence = await scene.join("c", strategy="competing")
        await scene.store.claim_heads(fence, 10, 60)
        await scene.store.leave(scene.fence)
        before = scene.queue()
        audit = await begin(scene)
        claimed = batch(scene, State.CLAIMED, seq)
        assert await scene.store.retry_events(audit, claimed) == 0
        assert await scene.store.remove_events(audit, claimed, Verdict.DISCARDED) == 0
        assert scene.queue() == before

    # --- edit -----------------------------------------------------------------------------

    @scenario
    async def test_a_dead_event_is_edited_and_its_old_version_kept(self, scene: Scene) -> None:
        (seq,) = scene.add("a", payload="old", headers='{"x": "1"}', content_type="text/plain")
        await scene.fail(seq, None)
        (target,) = await targets(scene, *DEAD)
        new = Version(b"n\x00\xff'w", "application/octet-stream", '{"x": "é\'2"}')
        audit = await begin(scene, "edit")
        assert await scene.store.edit_event(audit, target, new, edits=0)
        event = await scene.store.show_event(ids_of(scene)[seq])
        assert event is not None
        assert (event.payload, event.content_type) == (b"n\x00\xff'w", "application/octet-stream")
        assert event.headers == {"x": "é'2"}
        (edit,) = (await scene.store.story(seq)).edits
        assert edit.actor == "alice"
        assert edit.old == Version(b"old", "text/plain", '{"x": "1"}')
        await scene.store.retry_events(await begin(scene), batch(scene, State.DEAD, seq))
        scene.harness.pass_time(0.01)
        (row,) = await scene.claim()
        assert (bytes(row.payload), row.content_type) == (new.payload, new.content_type)

    @scenario
    async def test_two_who_edit_at_once_do_not_undo_each_other(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        await scene.fail(seq, None)
        (target,) = await targets(scene, *DEAD)
        audits = {await begin(scene, "edit"): await scene.another_store() for _ in range(3)}
        new = Version(b"{}", "application/json", "{}")
        results = await asyncio.gather(
            *(store.edit_event(audit, target, new, edits=0) for audit, store in audits.items())
        )
        assert sorted(results) == [False, False, True]
        assert len((await scene.store.story(seq)).edits) == 1
        assert dict(await scene.store.count_edits([seq])) == {seq: 1}
        assert await scene.store.edit_event(await begin(scene), target, new, edits=1)

    @scenario
    async def test_edits_are_counted_for_each_event(self, scene: Scene) -> None:
        once, twice, never, other = scene.add(*"abcd")
        for seq in (once, twice, other):
            await scene.fail(seq, None)
        new = Version(b"{}", "application/json", "{}")
        audits = [await begin(scene, "edit") for _ in range(2)]
        for audit, seqs in zip(audits, ((once, twice, other), (twice,)), strict=True):
            for seq in seqs:
                target = Target(seq, scene.lane.id, State.DEAD)
                edits = audits.index(audit)
                assert await scene.store.edit_event(audit, target, new, edits=edits)
        counted = await scene.store.count_edits([once, twice, never])
        assert (counted[once], counted[twice], counted.get(never, 0)) == (1, 2, 0)
        assert other not in counted

    @scenario
    async def test_only_what_is_dead_is_edited(self, scene: Scene) -> None:
        (seq,) = scene.add("a", payload="old")
        audit = await begin(scene, "edit")
        new = Version(b"new", "application/json", "{}")
        for state in State:
            assert not await scene.store.edit_event(
                audit, Target(seq, scene.lane.id, state), new, edits=0
            )
        event = await scene.store.show_event(ids_of(scene)[seq])
        assert event is not None
        assert event.payload == b"old"

    # --- replay ---------------------------------------------------------------------------

    @scenario
    async def test_replayed_events_are_parked_then_delivered_in_order(self, scene: Scene) -> None:
        a1, b1, a2 = scene.add("a", "b", "a")
        await scene.deliver(a1, b1, a2)
        (a3,) = scene.add("a")
        audit = await begin(scene, "replay")
        assert await scene.store.replay_events(audit, scene.lane, [a1, b1, a2, a3]) == 3
        assert scene.states() == {
            a1: State.PARKED,
            b1: State.PARKED,
            a2: State.PARKED,
            a3: State.PENDING,
        }
        (blocked,) = await scene.claim()
        assert (blocked.seq, bool(blocked.blocked)) == (a3, True)
        await scene.unpark()
        rows = await scene.claim()
        assert [row.seq for row in rows] == [a1, b1, a2, a3]
        assert len({(row.key, row.bucket) for row in rows}) == 2
        await scene.deliver(a1, b1, a2, a3)
        assert [settled.status for settled in (await scene.store.story(a1)).settled] == [
            "published",
            "published",
        ]

    @scenario
    async def test_replay_into_another_lane(self, scene: Scene) -> None:
        a, b = scene.add("a", "b")
        lane = await scene.store.add_lane("again", event_types=[])
        audit = await begin(scene, "replay")
        assert await scene.store.replay_events(audit, lane, [a, b, 10**9]) == 2
        assert await scene.store.replay_events(await begin(scene), lane, [a, b]) == 0
        roster = await scene.store.renew(
            lane.id, "a", strategy="partitioned", keep=None, lease_seconds=60
        )
        fence = Fence(lane.id, "a", roster.token)
        await scene.store.acquire(fence, ALL_BUCKETS)
        assert await scene.store.unpark(fence, ALL_BUCKETS, 100) == 2
        assert await scene.store.settle(fence, Settlement(delivered=[a, b])) == 2
        assert scene.states() == {a: State.PENDING, b: State.PENDING}

    @scenario
    async def test_the_log_is_searched_from_below(self, scene: Scene) -> None:
        await scene.store.add_lane("users", aggregate_types=["User"])
        a1, b1, a2 = scene.add("a", "b", "a")
        (user,) = scene.add("u", aggregate_type="User", event_type="UserAdded")
        ids = ids_of(scene)

        async def found(
            ids: list[str] | None = None, above_seq: int = 0, limit: int = 10, **where: Any
        ) -> list[int]:
            return list(
                await scene.store.find_in_log(
                    EventFilter(**where), ids=ids, above_seq=above_seq, limit=limit
                )
            )

        assert await found() == [a1, b1, a2, user]
        assert await found(limit=2) == [a1, b1]
        assert await found(above_seq=b1) == [a2, user]
        assert await found(aggregate_id="a") == [a1, a2]
        assert await found(aggregate_type="User", event_type="UserAdded") == [user]
        assert await found(ids=[ids[a2], ids[a1]]) == [a1, a2]
        assert await found(ids=[ids[a2], ids[a1]], above_seq=a1) == [a2]
        now, hour = datetime.now(UTC), timedelta(hours=1)
        assert await found(since=now - hour, until=now + hour) == [a1, b1, a2, user]
        assert await found(since=now + hour) == []
        assert await found(lane="default") == [], "nothing has left it"
        await scene.deliver(a1, user)
        assert await found(lane="default") == [a1, user]
        assert await found(lane="users") == []
        assert await found(lane="default", ids=[ids[a2], ids[a1]]) == [a1]

    # --- what stands still ----------------------------------------------------------------

    @scenario
    async def test_blocked_keys_with_what_waits_behind_them(self, scene: Scene) -> None:
        head, second, third = await head_and_followers(scene)
        retrying, skipped, fine = scene.add("b", "c", "d")
        await scene.fail(retrying, 3600, error="no such topic")
        await scene.fail(skipped, None, blocks=False)
        blocked = {key.aggregate_id: key for key in await scene.store.blocked_keys(None, limit=10)}
        assert set(blocked) == {"a", "b"}
        a, b = blocked["a"], blocked["b"]
        assert (a.seq, a.state, a.attempts, a.waiting, a.last_error) == (
            head,
            "dead",
            1,
            2,
            "too large",
        )
        assert (a.lane, a.aggregate_type, a.event_type) == ("default", "Order", "OrderPaid")
        assert a.id == ids_of(scene)[head]
        assert (b.seq, b.state, b.waiting, b.last_error) == (
            retrying,
            "retrying",
            0,
            "no such topic",
        )
        assert b.due_at is not None
        assert a.since.tzinfo is not None
        assert len(await scene.store.blocked_keys("default", limit=1)) == 1
        with pytest.raises(ConfigError, match="nowhere"):
            await scene.store.blocked_keys("nowhere", limit=1)
        audit = await begin(scene)
        await scene.store.remove_events(audit, batch(scene, State.DEAD, head), Verdict.DISCARDED)
        left = await scene.store.blocked_keys("default", limit=10)
        assert [key.aggregate_id for key in left] == ["b"], "parked behind nothing is not stuck"
        assert second < third < fine

    @scenario
    async def test_what_nobody_has_parked_yet_waits_too(self, scene: Scene) -> None:
        head, *_followers = await head_and_followers(scene)
        other, *_ = scene.add("b", "a", "c", "a", "b")
        await scene.fail(other, 3600)
        blocked = {key.seq: key for key in await scene.store.blocked_keys("default", limit=10)}
        assert {seq: key.waiting for seq, key in blocked.items()} == {head: 4, other: 1}
        assert not any(key.more_may_wait for key in blocked.values())

    @scenario
    async def test_blocked_keys_of_every_lane(self, scene: Scene) -> None:
        other = await scene.store.add_lane("other")
        (seq,) = scene.add("a")
        await scene.fail(seq, None)
        roster = await scene.store.renew(
            other.id, "a", strategy="partitioned", keep=None, lease_seconds=60
        )
        assert [key.lane for key in await scene.store.blocked_keys(None, limit=10)] == ["default"]
        assert await scene.store.blocked_keys("other", limit=10) == []
        assert roster.token

    # --- the story ------------------------------------------------------------------------

    @scenario
    async def test_the_whole_story_of_an_event(self, scene: Scene) -> None:
        head, follower = scene.add("a", "a", payload="old")
        await scene.fail(head, 0, error="first")
        await scene.fail(head, None, error="second")
        await scene.park(follower)
        edit = await begin(scene, "edit", reason="typing error")
        (target,) = await targets(scene, *DEAD)
        await scene.store.edit_event(edit, target, Version(b"n", "text/plain", "{}"), edits=0)
        retry = await begin(scene, "retry")
        await scene.store.retry_events(retry, batch(scene, State.DEAD, head))
        stuck = await scene.store.story(follower)
        (behind,) = stuck.stuck_behind
        assert (behind.lane, behind.seq, behind.id) == ("default", head, ids_of(scene)[head])
        assert (behind.state, behind.last_error) == ("retrying", "second")
        assert (stuck.attempts, stuck.settled, stuck.edits, stuck.acts) == ([], [], [], [])
        await scene.deliver(head)
        story = await scene.store.story(head)
        assert [
            (tried.lane, tried.attempt, tried.relay, tried.error) for tried in story.attempts
        ] == [
            ("default", 1, "a", "first"),
            ("default", 2, "a", "second"),
        ]
        assert [(done.lane, done.status, done.by) for done in story.settled] == [
            ("default", "published", "a")
        ]
        assert [(act.id, act.actor, act.action, act.lane) for act in story.acts] == [
            (edit, "alice", "edit", "default"),
            (retry, "alice", "retry", "default"),
        ]
        assert story.acts[0].detail == {"reason": "typing error"}
        assert [changed.old.payload for changed in story.edits] == [b"old"]
        assert story.stuck_behind == []
        assert story.completed_at is None
        moments = [tried.at for tried in story.attempts] + [story.settled[0].at]
        assert moments == sorted(moments)
        assert all(moment.utcoffset() == timedelta(0) for moment in moments)

    @scenario
    async def test_the_story_tells_which_relay_has_the_event(self, scene: Scene) -> None:
        await scene.store.add_lane("other")
        (seq,) = scene.add("a")

        async def holds() -> list[Hold]:
            return list((await scene.store.story(seq)).holds)

        held, unheld = await holds()
        assert (held.lane, held.kind, held.relay) == ("default", "leased", "a")
        assert held.ends_in_seconds is not None and 30 < held.ends_in_seconds <= 60
        assert unheld == Hold("other", "unheld", None, None)
        buckets = scene.query("SELECT bucket FROM @queue")
        of_the_event = frozenset(int(bucket) for (bucket,) in buckets)
        await scene.store.renew(
            scene.lane.id,
            "a",
            strategy="partitioned",
            keep=ALL_BUCKETS - of_the_event,
            lease_seconds=60,
        )
        assert [hold.kind for hold in await holds()] == ["unheld", "unheld"]
        heir = await scene.join("b", lease_seconds=0.5)
        await scene.store.acquire(heir, of_the_event)
        assert [(hold.kind, hold.relay) for hold in await holds()] == [
            ("leased", "b"),
            ("unheld", None),
        ]
        scene.harness.pass_time(0.6)
        assert [hold.kind for hold in await holds()] == ["unheld", "unheld"], "it has expired"
        await scene.fail(seq, None)
        assert [hold.lane for hold in await holds()] == ["other"], "what is dead is an operator's"
        await scene.deliver(seq)
        assert [hold.lane for hold in await holds()] == ["other"]

    @scenario
    async def test_completion_is_part_of_the_story(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        event_id, at = ids_of(scene)[seq], scene.harness.moment(0)
        with scene.connected() as connection:
            table = scene.harness.names.qualified("completion")
            connection.execute(
                f"INSERT INTO {table} (event_id, completed_at) VALUES ('{event_id}', '{at}')"  # noqa: S608
            )
        completed_at = (await scene.store.story(seq)).completed_at
        assert completed_at is not None
        assert abs(completed_at - datetime.now(UTC)) < timedelta(hours=1)

    @scenario
    async def test_a_failure_that_is_told_twice_is_one_attempt(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        assert await scene.fail(seq, 0) == 1
        await scene.store.leave(scene.fence)
        with pytest.raises(Exception, match="lost its lease"):
            await scene.fail(seq, 0)
        assert len((await scene.store.story(seq)).attempts) == 1

    # --- the audit ------------------------------------------------------------------------

    @scenario
    async def test_an_act_is_written_down_before_it_happens(self, scene: Scene) -> None:
        audit = await begin(scene, "discard", error="it's", ids=["é"])
        reader = await scene.another_store()
        (row,) = await reader.list_audit(before_id=None, limit=10)
        assert (row.id, row.actor, row.action, row.lane, row.events) == (
            audit,
            "alice",
            "discard",
            "default",
            0,
        )
        assert row.detail == {"error": "it's", "ids": ["é"]}
        assert abs(row.at - datetime.now(UTC)) < timedelta(hours=1)

    @scenario
    async def test_the_audit_newest_first_by_pages(self, scene: Scene) -> None:
        acts = [await begin(scene, f"act{number}") for number in range(5)]
        page = await scene.store.list_audit(before_id=None, limit=3)
        assert [row.id for row in page] == acts[:1:-1]
        rest = await scene.store.list_audit(before_id=page[-1].id, limit=3)
        assert [row.id for row in rest] == [acts[1], acts[0]]
