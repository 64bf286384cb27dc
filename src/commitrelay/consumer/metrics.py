"""Metrics of a consumer as Prometheus reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commitrelay.consumer.consumer import Consumer

COUNTERS = {
    "handled": "Events whose handler's transaction was committed.",
    "duplicates": "Deliveries of events that had been handled before.",
    "skipped": "Events of types that have no handler.",
    "failed": "Attempts that failed.",
    "retried": "Failed attempts after which the event is tried again.",
    "dead_lettered": "Events that went to the dead letters.",
}


def prometheus(consumer: Consumer) -> str:
    """The consumer's counts in the text format, labelled with its name."""
    stats, health = consumer.stats, consumer.health()
    label = consumer.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines: list[str] = []

    def add(name: str, kind: str, text: str, value: float) -> None:
        full = f"commitrelay_consumer_{name}"
        lines.append(f"# HELP {full} {text}\n# TYPE {full} {kind}")
        lines.append(f'{full}{{consumer="{label}"}} {value:g}')

    for name, text in COUNTERS.items():
        add(f"{name}_total", "counter", text, getattr(stats, name))
    add("in_hand", "gauge", "Events read and not handled yet.", stats.in_hand)
    add("up", "gauge", "1 while it is connected.", int(health.running))
    add("stopped_keys", "gauge", "Keys that stand still.", len(health.stopped))
    oldest = health.oldest_in_hand_seconds
    add("oldest_in_hand_seconds", "gauge", "Age of the oldest event in hand.", oldest)
    if stats.lag is not None:
        add("lag", "gauge", "Events at the broker that are not acknowledged.", stats.lag)
    return "\n".join(lines) + "\n"
