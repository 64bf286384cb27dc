"""Sample: one figure measured several times, with its spread, and what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

FEWEST_ROUNDS = 3
ROUNDS_WITH_QUARTILES = 5
"""From so many on the spread is that of their middle half: one bad round is no verdict."""

WIDEST_SPREAD = 0.25
"""What varies more between rounds, relative to the median, is not concluded from."""


@dataclass(frozen=True, slots=True)
class Sample:
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float | None:
        """How far the rounds lie apart, relative to the median; None if there was only one."""
        if len(self.values) < 2 or not self.median:
            return None
        low, high = min(self.values), max(self.values)
        if len(self.values) >= ROUNDS_WITH_QUARTILES:
            low, _, high = quantiles(self.values, n=4, method="inclusive")
        return (high - low) / abs(self.median)

    @property
    def is_steady(self) -> bool:
        """Whether there were enough rounds, and close enough to each other, to conclude."""
        spread = self.spread
        enough = len(self.values) >= FEWEST_ROUNDS
        return enough and spread is not None and spread <= WIDEST_SPREAD

    def to_json(self) -> dict[str, Any]:
        spread = self.spread
        return {
            "median": _short(self.median),
            "spread": None if spread is None else round(spread, 3),
            "steady": self.is_steady,
            "values": [_short(value) for value in self.values],
        }


def ratio(ours: Sample, theirs: Sample) -> Sample:
    """Round by round: what slowed both of a round down cancels out."""
    return Sample(tuple(a / b for a, b in zip(ours.values, theirs.values, strict=True) if b))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _short(value: float) -> float:
    """Four digits: more would be made up."""
    return float(f"{value:.4g}")
