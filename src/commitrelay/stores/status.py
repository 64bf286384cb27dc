"""What the status of an event is called, and which query lists the events that have it."""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import ConfigError
from commitrelay.store import State, Verdict

COUNT_CAP = 100_000
"""Counts in a status stop here, so that they stay cheap."""

_STATES = {
    **{state.name.lower(): [int(state)] for state in State},
    "dead": [int(State.DEAD), int(State.SKIPPED)],
}
_VERDICTS = {verdict.name.lower(): int(verdict) for verdict in Verdict}


def counts_by_name(counts: Mapping[int, int]) -> dict[str, int]:
    """Counts of every state by its lower-case name."""
    return {state.name.lower(): counts.get(state, 0) for state in State}


def list_query(status: str | None, sql: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    """The statement that lists events of a status, and the values that it needs for that."""
    if status is None:
        return sql["list_events"], {}
    if status in _STATES:
        states = ", ".join(map(str, _STATES[status]))
        return sql["list_queued"].replace("{states}", states), {}
    if status in _VERDICTS:
        return sql["list_settled"], {"verdict": _VERDICTS[status]}
    known = ", ".join([*_STATES, *_VERDICTS])
    raise ConfigError(f"there is no status {status!r}: use one of {known}")
