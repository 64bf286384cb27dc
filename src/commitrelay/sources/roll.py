"""Roll: who of a group is there, as far as can be heard. No I/O.

A reader that comes says hello, and everybody answers; then each says "here" once in a while. Who
has said nothing for a while is not there any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HELLO, HERE, BYE = "hello", "here", "bye"

MISSING_SECONDS = 5.0


class Roll:
    def __init__(self, me: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.me = me
        self._clock = clock
        self._heard: dict[str, float] = {}

    def word(self, kind: str) -> bytes:
        return f"{kind} {self.me}".encode()

    def hear(self, word: bytes) -> bool:
        """Whether this wants an answer."""
        kind, _, member = word.decode("utf-8", "replace").partition(" ")
        if not member or member == self.me:
            return False
        if kind == BYE:
            self._heard.pop(member, None)
        elif kind in (HELLO, HERE):
            self._heard[member] = self._clock()
        return kind == HELLO

    @property
    def members(self) -> list[str]:
        latest = self._clock() - MISSING_SECONDS
        self._heard = {member: at for member, at in self._heard.items() if at > latest}
        return [self.me, *self._heard]
