"""Check: one thing that may be wrong, and how to see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from commitrelay.doctor.patient import Patient


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and the remedy."""

    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Check:
    """A name as people write it, what holds if all is well, and the look itself.

    `dialects` are the databases that it makes sense on, `brokers` the schemes of publish URLs;
    empty: whichever.
    """

    name: str
    about: str
    examine: Callable[[Patient], Awaitable[Sequence[Finding]]]
    dialects: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()

    def applies(self, patient: Patient) -> bool:
        if self.dialects and patient.dialect not in self.dialects:
            return False
        return not self.brokers or any(lane.scheme in self.brokers for lane in patient.lanes)
