"""Leases: which buckets of a lane this relay owns. Share, renew, yield, fence.

Every relay of a lane keeps one lease row alive. The fair share follows from the roster alone,
so relays need not talk to each other: whoever has too many stops claiming from some buckets,
finishes what it has in hand of them, and gives them up; whoever has too few takes what is
free. A relay that dies loses all its buckets when its lease expires by the database's clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from commitrelay.errors import ConfigError, LeaseLost
from commitrelay.store import BUCKETS, Fence, Roster, Store

logger = logging.getLogger("commitrelay.relay")

ALL_BUCKETS = frozenset(range(BUCKETS))
RENEW_SECONDS = 3.0
MIN_LEASE_SHARE = 1.5
"""A lease must be at least so many times as long as a delivery may take."""


def share(strategy: str, relay: str, roster: Roster) -> int:
    """How many buckets this relay should own, given who else is there."""
    if strategy == "competing":
        return 0
    if strategy == "leader":
        return 0 if any(roster.others.values()) else BUCKETS
    names = sorted([relay, *roster.others])
    each, left_over = divmod(BUCKETS, len(names))
    return each + (1 if names.index(relay) < left_over else 0)


class Leases:
    """One relay's share of one lane."""

    def __init__(
        self,
        store: Store,
        *,
        lane: int,
        relay: str,
        strategy: str,
        lease_seconds: float,
        delivery_timeout_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._lane = lane
        self._relay = relay
        self._strategy = strategy
        self._lease_seconds = lease_seconds
        self._delivery_timeout_seconds = delivery_timeout_seconds
        self._clock = clock
        self._held: frozenset[int] = frozenset()
        self._expires_at = 0.0  # by our own monotonic clock, from before the renewal was sent
        self.yielding: frozenset[int] = frozenset()
        self.fence = Fence(lane, relay, token=0)
        self.paused = False
        self.leads = False  # true for one relay of the lane: it does what is to be done once
        self.settled_down = False  # this relay has its fair share

    @property
    def buckets(self) -> frozenset[int]:
        """What to claim from: the buckets held, less those about to be given up."""
        return self._held - self.yielding

    def may_send(self) -> bool:
        """Whether a message sent now is surely answered before the lease can be taken over."""
        return self._clock() + self._delivery_timeout_seconds < self._expires_at

    @property
    def renew_in_seconds(self) -> float:
        """Short while buckets are changing hands, calm otherwise."""
        if self.settled_down:
            return min(RENEW_SECONDS, self._lease_seconds / 3)
        return min(RENEW_SECONDS, self._lease_seconds / 3) / 5

    async def renew(self, in_hand: Callable[[], Collection[int]]) -> bool:
        """Extend the lease and move towards the fair share; False if the old lease was lost.

        `in_hand` names the buckets of which this relay still has events.
        """
        started = self._clock()
        keep = self._held - (self.yielding - frozenset(in_hand()))
        roster = await self._store.renew(
            self._lane,
            self._relay,
            strategy=self._strategy,
            keep=keep,
            lease_seconds=self._lease_seconds,
        )
        self._refuse_mixed_strategies(roster)
        if self.fence.token not in (0, roster.token):
            self.lose()
            return False
        self.fence = Fence(self._lane, self._relay, roster.token)
        self._expires_at = started + self._lease_seconds
        self._held = roster.mine
        self.paused = roster.paused
        self.leads = all(self._relay < other for other in roster.others)
        await self._rebalance(roster)
        return True

    async def leave(self) -> None:
        self._expires_at = 0.0
        self._held = frozenset()
        await self._store.leave(self.fence)

    def lose(self) -> None:
        """The store has told us that our lease is gone: own nothing until the next renewal."""
        self._expires_at = 0.0
        self._held = self.yielding = frozenset()
        self.fence = Fence(self._lane, self._relay, token=0)
        self.leads = self.settled_down = False

    async def _rebalance(self, roster: Roster) -> None:
        target = share(self._strategy, self._relay, roster)
        missing = target - len(self._held)
        if missing > 0 and roster.free:
            wanted = frozenset(sorted(roster.free)[:missing])
            try:
                self._held = await self._store.acquire(self.fence, wanted)
            except LeaseLost:
                self.lose()
                return
        surplus = max(0, len(self._held) - target) if self._strategy == "partitioned" else 0
        self.yielding = frozenset(sorted(self._held)[len(self._held) - surplus :])
        self.settled_down = len(self._held) == target

    def _refuse_mixed_strategies(self, roster: Roster) -> None:
        different = roster.strategies - {self._strategy}
        if different:
            raise ConfigError(
                f"strategy {self._strategy!r}: another relay of this lane runs with "
                f"{'/'.join(sorted(different))!r}: order would be lost; use one for all of them"
            )
