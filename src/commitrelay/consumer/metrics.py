"""Metrics of consumers as Prometheus reads them."""

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
GAUGES = {
    "in_hand": "Events read and not handled yet.",
    "up": "1 while it is connected.",
    "stopped_keys": "Keys that stand still.",
    "oldest_in_hand_seconds": "Age of the oldest event in hand.",
    "lag": "Events at the broker that are not acknowledged.",
}


def prometheus(*consumers: Consumer) -> str:
    """The consumers' counts in the text format, labelled with their names."""
    values = {_label(consumer.name): _values(consumer) for consumer in consumers}
    metrics = [(f"{name}_total", "counter", text) for name, text in COUNTERS.items()]
    metrics += [(name, "gauge", text) for name, text in GAUGES.items()]
    lines: list[str] = []
    for name, kind, text in metrics:
        full = f"commitrelay_consumer_{name}"
        samples = [
            f'{full}{{consumer="{label}"}} {found[name]:g}'
            for label, found in values.items()
            if name in found
        ]
        if samples:
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", *samples]
    return "\n".join(lines) + "\n"


def _values(consumer: Consumer) -> dict[str, float]:
    stats, health = consumer.stats, consumer.health()
    counts = {f"{name}_total": getattr(stats, name) for name in COUNTERS}
    gauges = {
        "in_hand": stats.in_hand,
        "up": int(health.running),
        "stopped_keys": len(health.stopped),
        "oldest_in_hand_seconds": health.oldest_in_hand_seconds,
    }
    if stats.lag is not None:
        gauges["lag"] = stats.lag
    return {**counts, **gauges}


def _label(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
