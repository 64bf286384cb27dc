"""The fair share is a pure function of the roster."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from commitrelay.leases import ALL_BUCKETS, Leases, share
from commitrelay.store import BUCKETS, Fence, Roster


def roster(others: dict[str, frozenset[int]], mine: frozenset[int] = frozenset()) -> Roster:
    return Roster(token=1, mine=mine, others=others, strategies=frozenset(), paused=False)


@given(names=st.sets(st.text(min_size=1), min_size=1, max_size=100))
def test_shares_add_up_to_all_buckets_and_differ_by_one_at_most(names: set[str]) -> None:
    shares = [
        share("partitioned", name, roster({other: frozenset() for other in names - {name}}))
        for name in names
    ]
    assert sum(shares) == BUCKETS
    assert max(shares) - min(shares) <= 1


def test_a_leader_takes_all_if_nobody_else_has_any() -> None:
    assert share("leader", "a", roster({"b": frozenset()})) == BUCKETS
    assert share("leader", "a", roster({"b": frozenset({1})})) == 0


def test_competing_relays_own_no_bucket() -> None:
    assert share("competing", "a", roster({})) == 0


def test_free_is_what_nobody_holds() -> None:
    held = roster({"b": frozenset(range(10))}, mine=frozenset(range(10, 20)))
    assert held.free == frozenset(range(20, BUCKETS))


class _OneRelay:
    """A store in which nobody else is."""

    async def renew(self, lane: int, relay: str, **_rest: object) -> Roster:
        return roster({})

    async def acquire(self, fence: Fence, buckets: frozenset[int]) -> frozenset[int]:
        return buckets


def test_nothing_is_sent_that_may_be_answered_after_the_lease_has_ended() -> None:
    now = 100.0
    leases = Leases(
        _OneRelay(),  # type: ignore[arg-type]
        lane=1,
        relay="a",
        strategy="partitioned",
        lease_seconds=30,
        delivery_timeout_seconds=10,
        clock=lambda: now,
    )
    assert not leases.may_send()
    assert asyncio.run(leases.renew(list))
    assert leases.buckets == ALL_BUCKETS
    assert leases.may_send()
    now = 119.9
    assert leases.may_send()
    now = 120.0
    assert not leases.may_send()
    now = 100.0
    leases.lose()
    assert not leases.may_send()
