"""Idle: how often a relay that has nothing to do asks its database."""

from __future__ import annotations

import time
from typing import Any

from commitrelay.bench.drain import Say
from commitrelay.bench.process import Process
from commitrelay.bench.sample import Sample
from commitrelay.bench.site import Site

SETTLING_SECONDS = 2.0


def measure(site: Site, say: Say) -> dict[str, Any]:
    plan = site.plan
    rates = []
    for number in range(plan.rounds):
        site.ground.clear()
        with site.topic() as topic:
            job = site.job(site.subjects()[1], topic, counts_statements=True)
            with Process(job) as relay:
                relay.start()
                time.sleep(SETTLING_SECONDS + plan.seconds)
                line = relay.stop().statement_line
        # Without the seconds in which it joins, and those in which it leaves.
        quiet = [(at, count) for at, count in line[:-1] if at - line[0][0] >= SETTLING_SECONDS]
        (first_at, first), (last_at, last) = quiet[0], quiet[-1]
        rates.append((last - first) / (last_at - first_at))
        say(f"idle {number + 1}/{plan.rounds}: {rates[-1]:.1f} queries/s")
    return {"queries_per_second": Sample.of(rates)}
