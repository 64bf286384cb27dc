"""What `settle`, `unpark` and a purge change."""

from __future__ import annotations

from commitrelay.store import Failure, Settlement, State
from commitrelay.testing.store_cases.scene import ALL_BUCKETS, Scene, scenario


class Settling:
    @scenario
    async def test_delivered_events_leave_the_queue_for_the_journal(self, scene: Scene) -> None:
        added = scene.add(*"abcab")
        assert await scene.deliver(*added[:3]) == 3
        assert list(scene.states()) == added[3:]
        assert scene.journalled() == 3
        assert await scene.seqs() == added[3:]

    @scenario
    async def test_what_is_gone_already_is_not_counted_nor_journalled(self, scene: Scene) -> None:
        a, b = scene.add("a", "b")
        assert await scene.deliver(a) == 1
        assert await scene.deliver(a, b) == 1
        assert await scene.deliver(a, b) == 0
        assert await scene.deliver(10**9) == 0
        assert scene.journalled() == 2

    @scenario
    async def test_an_empty_settlement_is_harmless(self, scene: Scene) -> None:
        assert await scene.store.settle(scene.fence, Settlement()) == 0

    @scenario
    async def test_a_refused_event_is_retried_with_its_error_kept(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        assert await scene.fail(seq, 0, error="too large") == 1
        assert scene.states() == {seq: State.RETRYING}
        assert scene.query("SELECT attempts, last_error FROM @queue") == [(1, "too large")]
        scene.harness.pass_time(0.01)
        await scene.fail(seq, 0)
        scene.harness.pass_time(0.01)
        (row,) = await scene.claim()
        assert (row.seq, row.attempts, row.state) == (seq, 2, State.RETRYING)

    @scenario
    async def test_a_failure_that_is_told_twice_counts_once(self, scene: Scene) -> None:
        """The reply to the first may have been lost."""
        (seq,) = scene.add("a")
        failure = Failure(seq, "no", 0.0, attempts=0)
        changed = [
            await scene.store.settle(scene.fence, Settlement(failures=[failure])) for _ in range(2)
        ]
        assert changed == [1, 0]
        scene.harness.pass_time(0.01)
        (row,) = await scene.claim()
        assert row.attempts == 1

    @scenario
    async def test_out_of_attempts_is_dead_and_not_claimed(self, scene: Scene) -> None:
        dead, skipped = scene.add("a", "b")
        await scene.fail(dead, None)
        await scene.fail(skipped, None, blocks=False)
        assert scene.states() == {dead: State.DEAD, skipped: State.SKIPPED}
        assert await scene.claim() == []
        assert scene.journalled() == 0

    @scenario
    async def test_an_awkward_error_text_is_stored(self, scene: Scene) -> None:
        (seq,) = scene.add("a")
        await scene.fail(seq, 0, error="a\x00b \ud800 ' \\ %s {} ü" + "x" * 5000)
        ((error,),) = scene.query("SELECT last_error FROM @queue")
        assert error.startswith("ab ? ' \\ %s {} ü")
        assert len(error) <= 2000

    @scenario
    async def test_everything_at_once_is_one_transaction(self, scene: Scene) -> None:
        a1, b1, c1, a2, b2, c2 = scene.add(*"abcabc")
        settlement = Settlement(
            delivered=[a1],
            failures=[Failure(b1, "no", 60.0), Failure(c1, "never", None)],
            parked=[a2, b2, c2],
        )
        assert await scene.store.settle(scene.fence, settlement) == 5
        assert scene.states() == {
            b1: State.RETRYING,
            c1: State.DEAD,
            a2: State.PENDING,  # nothing blocks it: a1 was delivered
            b2: State.PARKED,
            c2: State.PARKED,
        }

    @scenario
    async def test_conservation(self, scene: Scene) -> None:
        added = scene.add(*(str(number % 7) for number in range(70)))
        await scene.deliver(*added[::3])
        await scene.fail(added[1], None)
        await scene.fail(added[2], 60)
        await scene.park(*added)
        await scene.unpark()
        await scene.deliver(*added[::2])
        assert scene.added() == 70 == len(scene.queue()) + scene.journalled()

    @scenario
    async def test_many_rows_in_one_settlement(self, scene: Scene) -> None:
        with scene.connected() as connection:
            added = scene.add(*(str(number) for number in range(3000)), connection=connection)
        assert await scene.deliver(*added) == 3000
        assert scene.journalled() == 3000
        assert await scene.claim() == []

    # --- parking --------------------------------------------------------------------------

    @scenario
    async def test_parked_events_leave_the_scan(self, scene: Scene) -> None:
        head, second, third = scene.add("a", "a", "a")
        await scene.fail(head, None)
        assert await scene.park(second, third) == 2
        assert await scene.claim() == []
        assert scene.states() == {head: 4, second: 3, third: 3}

    @scenario
    async def test_nothing_is_parked_that_nothing_blocks(self, scene: Scene) -> None:
        head, second = scene.add("a", "a")
        (scheduled,) = scene.add("a", deliver_at=scene.harness.moment(3600))
        assert await scene.park(head, second) == 0
        await scene.fail(head, 60)
        assert await scene.park(head, scheduled) == 0
        assert scene.states() == {head: 1, second: 0, scheduled: 2}

    @scenario
    async def test_a_due_event_behind_a_blocked_one_can_be_parked(self, scene: Scene) -> None:
        (head,) = scene.add("a")
        (scheduled,) = scene.add("a", deliver_at=scene.harness.moment(-1))
        await scene.fail(head, None)
        (row,) = await scene.claim()
        assert (row.seq, bool(row.blocked)) == (scheduled, True)
        assert await scene.park(scheduled) == 1
        assert await scene.claim() == []

    @scenario
    async def test_unpark_waits_for_the_blocking_event(self, scene: Scene) -> None:
        head, second, third = scene.add("a", "a", "a")
        await scene.fail(head, 60)
        await scene.park(second, third)
        assert await scene.unpark() == 0
        await scene.deliver(head)
        assert await scene.unpark() == 2
        assert [(row.seq, bool(row.blocked)) for row in await scene.claim()] == [
            (second, False),
            (third, False),
        ]
        assert await scene.unpark() == 0

    @scenario
    async def test_unpark_in_chunks_keeps_the_order(self, scene: Scene) -> None:
        head, *followers = scene.add(*["a"] * 8)
        await scene.fail(head, 60)
        await scene.park(*followers)
        await scene.deliver(head)
        assert await scene.unpark(limit=3) == 3
        (newest,) = scene.add("a")
        blocked = {row.seq: bool(row.blocked) for row in await scene.claim()}
        assert blocked == {**dict.fromkeys(followers[:3], False), newest: True}
        assert await scene.park(newest) == 1
        assert await scene.unpark(limit=3) == 3
        assert await scene.seqs() == followers[:6]
        assert await scene.unpark() == 2
        assert await scene.seqs() == [*followers, newest]

    @scenario
    async def test_unpark_stops_at_the_next_blocking_event(self, scene: Scene) -> None:
        first, second, third, fourth = scene.add(*"aaaa")
        await scene.fail(first, 60)
        await scene.fail(third, None)
        await scene.park(second, fourth)
        await scene.deliver(first)
        assert await scene.unpark() == 1
        assert scene.states() == {second: 0, third: 4, fourth: 3}

    @scenario
    async def test_unpark_of_many_keys_within_the_limit(self, scene: Scene) -> None:
        keys = [str(number) for number in range(10)]
        heads = scene.add(*keys)
        followers = scene.add(*keys) + scene.add(*keys)
        for head in heads:
            await scene.fail(head, 60)
        await scene.park(*followers)
        await scene.deliver(*heads[:6])
        assert await scene.unpark(limit=5) == 5
        assert await scene.unpark(limit=100) == 7
        assert await scene.unpark(limit=100) == 0

    @scenario
    async def test_unpark_only_in_the_leased_buckets(self, scene: Scene) -> None:
        head, follower = scene.add("a", "a")
        (row, _) = await scene.claim()
        await scene.fail(head, 60)
        await scene.park(follower)
        await scene.deliver(head)
        assert await scene.unpark(buckets=ALL_BUCKETS - {row.bucket}) == 0
        assert await scene.unpark(buckets=frozenset({row.bucket})) == 1

    @scenario
    async def test_attempts_survive_parking(self, scene: Scene) -> None:
        first, second = scene.add("a", "a")
        await scene.fail(second, 0)
        await scene.fail(first, 60)
        scene.harness.pass_time(0.01)
        assert await scene.park(second) == 1
        await scene.deliver(first)
        await scene.unpark()
        (row,) = await scene.claim()
        assert (row.seq, row.attempts) == (second, 1)

    # --- idle -----------------------------------------------------------------------------

    @scenario
    async def test_idle_when_nothing_can_be_delivered_any_more(self, scene: Scene) -> None:
        idle = scene.store.idle
        assert await idle(scene.lane.id)
        head, follower = scene.add("a", "a")
        scene.add("s", deliver_at=scene.harness.moment(3600))
        assert not await idle(scene.lane.id)
        await scene.fail(head, 3600)
        await scene.park(follower)
        assert not await idle(scene.lane.id), "a retry will come"
        await scene.fail(head, None)
        assert await idle(scene.lane.id), "dead, parked and scheduled events do not count"
        await scene.deliver(head)
        assert not await idle(scene.lane.id), "nothing blocks the parked event any more"

    # --- purge ----------------------------------------------------------------------------

    @scenario
    async def test_purge_deletes_what_is_settled_and_old(self, scene: Scene) -> None:
        delivered, dead, pending = scene.add("a", "b", "c")
        await scene.deliver(delivered)
        await scene.fail(dead, None)
        assert await scene.purge(3600) == 0
        scene.harness.pass_time(0.05)
        assert await scene.purge(0.01) == 1
        assert scene.query("SELECT seq FROM @event ORDER BY seq") == [(dead,), (pending,)]
        assert list(scene.states()) == [dead, pending]

    @scenario
    async def test_purge_keeps_what_another_lane_has_not_delivered(self, scene: Scene) -> None:
        await scene.store.add_lane("audit")
        (seq,) = scene.add("a")
        await scene.deliver(seq)
        scene.harness.pass_time(0.05)
        assert await scene.purge(0.01) == 0
        assert scene.added() == 1

    @scenario
    async def test_purge_in_pages_and_the_journal_with_it(self, scene: Scene) -> None:
        added = scene.add(*"abcdefg")
        await scene.deliver(*added[:2])
        await scene.deliver(*added[2:5])
        scene.harness.pass_time(0.05)
        settled = await scene.store.settled(older_than_seconds=0.01, after_seq=0, limit=3)
        assert (settled.seqs, settled.last_seq, settled.is_last) == (added[:3], added[2], False)
        assert await scene.store.delete_settled(settled.seqs) == 3
        assert await scene.store.trim_journal(older_than_seconds=0.01, limit=9) == 1
        assert scene.journalled() == 3, "a batch stays as long as one of its events does"
        assert await scene.purge(0.01, page=2) == 2
        assert scene.journalled() == 0
        assert scene.query("SELECT seq FROM @event ORDER BY seq") == [(added[5],), (added[6],)]
        assert await scene.purge(0.01, page=2) == 0

    @scenario
    async def test_purge_passes_what_is_in_its_way(self, scene: Scene) -> None:
        dead, *others = scene.add(*"abcdefgh")
        await scene.fail(dead, None)
        await scene.deliver(*others[3:])
        scene.harness.pass_time(0.05)
        assert await scene.purge(0.01, page=2) == len(others) - 3

    @scenario
    async def test_purge_finds_what_is_old_behind_what_is_not(self, scene: Scene) -> None:
        """Times need not follow the seqs."""
        old = scene.harness.moment(-3600)
        first, young, last = (
            scene.add(key, created_at=moment)[0]
            for key, moment in (("a", old), ("b", scene.harness.moment(0)), ("c", old))
        )
        await scene.deliver(first, young, last)
        assert await scene.purge(60, page=2) == 2
        assert scene.query("SELECT seq FROM @event") == [(young,)]

    @scenario
    async def test_purge_looks_no_further_than_events_get_old(self, scene: Scene) -> None:
        seqs = scene.add(*"abcd")
        await scene.deliver(*seqs)
        page = await scene.store.settled(older_than_seconds=3600, after_seq=0, limit=2)
        assert (page.seqs, page.last_seq, page.is_last) == ([], seqs[1], True)

    @scenario
    async def test_what_was_queued_again_meanwhile_is_not_deleted(self, scene: Scene) -> None:
        kept, gone = scene.add("a", "b")
        await scene.deliver(kept, gone)
        scene.harness.pass_time(0.05)
        page = await scene.store.settled(older_than_seconds=0.01, after_seq=0, limit=9)
        assert page.seqs == [kept, gone]
        (again,) = scene.add("c")
        with scene.connected() as connection:
            fill = scene.harness.names.fill
            connection.execute(fill(f"UPDATE @queue SET seq = {kept} WHERE seq = {again}"))  # noqa: S608
        assert await scene.store.delete_settled(page.seqs) == 1
        assert scene.query("SELECT seq FROM @event ORDER BY seq") == [(kept,), (again,)]

    @scenario
    async def test_purge_takes_completions_along(self, scene: Scene) -> None:
        delivered, pending = scene.add("a", "b")
        scene.run("INSERT INTO @completion (event_id) SELECT id FROM @event")
        await scene.deliver(delivered)
        scene.harness.pass_time(0.05)
        assert await scene.purge(0.01) == 1
        left = "SELECT seq FROM @event JOIN @completion ON event_id = id"
        assert scene.query(left) == [(pending,)]
        assert scene.query("SELECT count(*) FROM @completion") == [(1,)]

    @scenario
    async def test_the_inbox_forgets_the_oldest_first_in_chunks(self, scene: Scene) -> None:
        mark = "INSERT INTO @inbox (consumer, event_id, token) VALUES ('billing', '{}', 1)"
        for name in "abcd":
            scene.run(mark.format(name))
            scene.harness.pass_time(0.02)
        purge = scene.store.purge_inbox
        assert await purge(older_than_seconds=3600, limit=100) == 0
        assert await purge(older_than_seconds=0.001, limit=3) == 3
        ((left,),) = scene.query("SELECT event_id FROM @inbox")
        assert left in ("d", b"d")
        assert await purge(older_than_seconds=0.001, limit=3) == 1
        assert await purge(older_than_seconds=0.001, limit=3) == 0
