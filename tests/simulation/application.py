"""An application process with a direct pass: it claims what it commits, and may die at any time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from random import Random

from commitrelay.claim import Claim, claim_added
from commitrelay.conversation import converse
from commitrelay.direct_worker import DirectStats, DirectWorker
from commitrelay.format import Plain
from commitrelay.publisher import Publisher
from commitrelay.route import Route
from commitrelay.sql import Names
from tests.simulation.faults import Gate
from tests.simulation.store import UnreliableStore

CLAIM_SECONDS = 3.0


class Application:
    def __init__(
        self,
        name: str,
        connection: sqlite3.Connection,
        store: UnreliableStore,
        publisher: Publisher,
        gate: Gate,
        *,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self.name = name
        self.store = store
        self.gate = gate
        self.stats = DirectStats()
        self._connection = connection
        self._clock = clock
        self._token = -random.getrandbits(62) - 1
        self._worker = DirectWorker(
            store,  # type: ignore[arg-type]
            publisher,
            lane="default",
            compose=Plain(Route()),
            name=name,
            token=self._token,
            stats=self.stats,
            on_ended=Claim.end,
            clock=asyncio.get_running_loop().time,
            random=random,
        )
        self.task = asyncio.create_task(self._worker.run())

    def claim(self, ids: Sequence[str]) -> Claim | None:
        """Just before the transaction on the connection ends."""
        if not self._worker.is_ready or not self.gate.is_open:
            return None
        now = asyncio.get_running_loop().time()
        claim = Claim(ids, now, "default", self._token, CLAIM_SECONDS)
        claim.count = converse(
            lambda text, values: self._connection.execute(text, values).rowcount,
            claim_added(claim, Names(), "sqlite", "qmark", self._clock),
        )
        return claim

    def ended(self, claim: Claim) -> None:
        """Just after it."""
        if claim.count:
            self._worker.hand_over(claim)

    def stop(self) -> None:
        self._worker.stop()
