"""What the status of an event is called, and how rows about it are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commitrelay.errors import ConfigError
from commitrelay.store import EventFilter, SettledPage, State, Verdict

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


def list_query(where: EventFilter, sql: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The statement that lists events of a status, and the values that it needs for that.

    What has an error is in a queue.
    """
    status = where.status
    if status is None and where.error is None:
        return sql["list_events"], {}
    if status is None or status in _STATES:
        states = [int(state) for state in State] if status is None else _STATES[status]
        return sql["list_queued"].replace("{states}", ", ".join(map(str, states))), {}
    if status in _VERDICTS:
        if where.error is not None:
            raise ConfigError(f"an event that is {status} has no error: leave the error out")
        return sql["list_settled"], {"verdict": _VERDICTS[status]}
    known = ", ".join([*_STATES, *_VERDICTS])
    raise ConfigError(f"there is no status {status!r}: use one of {known}")


def settled_page(rows: Sequence[Any], after_seq: int, limit: int) -> SettledPage:
    """Rows of (seq, whether it is old enough, whether it is settled as well), in seq order."""
    return SettledPage(
        seqs=[seq for seq, _aged, is_settled in rows if is_settled],
        last_seq=rows[-1][0] if rows else after_seq,
        is_last=len(rows) < limit or not any(aged for _seq, aged, _settled in rows),
    )
