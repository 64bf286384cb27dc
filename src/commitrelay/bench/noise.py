"""Noise: whether a machine was quiet enough while it was measured to conclude anything."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from commitrelay.bench import usage
from commitrelay.bench.sample import FEWEST_ROUNDS, WIDEST_SPREAD, Sample

MOST_FOREIGN_CORES = 0.15
"""More than this share of a processor, used by others while we measured, is noise."""


@dataclass
class Noise:
    """What others did meanwhile, and which figures varied too much."""

    foreign_cores: list[float] = field(default_factory=list)
    unsteady: dict[str, Sample] = field(default_factory=dict)

    def watch(self, name: str, sample: Sample) -> None:
        """This figure matters: the run is noisy if it is not steady."""
        if not sample.is_steady:
            self.unsteady[name] = sample

    def reasons(self) -> list[str]:
        found = [_complaint(name, sample) for name, sample in self.unsteady.items()]
        foreign = Sample.of(self.foreign_cores).median if self.foreign_cores else 0.0
        if foreign > MOST_FOREIGN_CORES:
            found.append(
                f"other processes used {foreign:.2f} of {os.cpu_count()} processors meanwhile"
            )
        if not usage.is_known():
            found.append("what other processes did meanwhile is not known on this system")
        return found

    @property
    def verdict(self) -> str:
        return "too noisy to conclude" if self.reasons() else "quiet"


def _complaint(name: str, sample: Sample) -> str:
    if len(sample.values) < FEWEST_ROUNDS:
        return f"{name}: {len(sample.values)} round(s), at least {FEWEST_ROUNDS} are needed"
    return f"{name}: varies by {sample.spread or 0:.0%}, more than {WIDEST_SPREAD:.0%}"
