"""Rows as stores read them, made into what operators see. `when` makes a time of a column."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from commitrelay.operations import (
    WAITING_CAP,
    AuditRow,
    BlockedKey,
    Edited,
    FailedAttempt,
    Hold,
    Settled,
    Story,
    StuckBehind,
    Version,
)
from commitrelay.store import State, Verdict

When = Callable[[Any], datetime]
Rows = Sequence[Any]


def story(when: When, parts: Sequence[Rows], completed_at: datetime | None) -> Story:
    """From the rows of attempts, settlements, edits, acts, what blocks the event, who has it."""
    attempts, settlements, edits, acts, stuck_behind, holds = parts
    return Story(
        attempts=[
            FailedAttempt(lane, attempt, when(at), relay, error)
            for lane, attempt, at, relay, error in attempts
        ],
        settled=[
            Settled(lane, Verdict(verdict).name.lower(), when(at), by)
            for lane, verdict, at, by in settlements
        ],
        edits=[
            Edited(when(at), actor, Version(payload, content_type, headers))
            for at, actor, payload, content_type, headers in edits
        ],
        acts=[audit_row(when, row) for row in acts],
        stuck_behind=[
            StuckBehind(lane, seq, event_id, event_type, State(state).name.lower(), error)
            for lane, seq, event_id, event_type, state, error in stuck_behind
        ],
        holds=[_hold(row) for row in holds],
        completed_at=completed_at,
    )


def _hold(row: Sequence[Any]) -> Hold:
    lane, state, token, relay, ends_in, is_for_any = row
    if state == State.CLAIMED:
        kind = "direct" if token < 0 else "claimed"
    elif relay is not None:
        kind = "leased"
    else:
        kind = "unclaimed" if is_for_any else "unheld"
    return Hold(lane, kind, relay, None if ends_in is None else float(ends_in))


def audit_row(when: When, row: Sequence[Any]) -> AuditRow:
    number, at, actor, action, lane, detail, events = row
    asked = json.loads(detail) if isinstance(detail, str) else detail
    return AuditRow(number, when(at), actor, action, lane, asked, events)


def first_seq(rows: Rows) -> int:
    """From where on something may wait behind these keys."""
    return min(int(row[2]) for row in rows)


def blocked_keys(when: When, lane: str, rows: Rows, pending: Rows) -> list[BlockedKey]:
    """With what is parked behind each, and which of the `pending` events wait there too."""
    heads = {row[-1]: row[2] for row in rows}
    behind = Counter(key for key, seq in pending if seq > heads.get(key, seq))
    is_cut_off = len(pending) >= WAITING_CAP
    return [_blocked_key(when, lane, row, behind[row[-1]], is_cut_off) for row in rows]


def _blocked_key(
    when: When, lane: str, row: Sequence[Any], pending: int, is_cut_off: bool
) -> BlockedKey:
    aggregate_type, aggregate_id, seq, event_id, event_type, state, attempts = row[:7]
    due_at, last_error, since, parked, _key = row[7:]
    return BlockedKey(
        lane=lane,
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        seq=seq,
        id=event_id,
        event_type=event_type,
        state=State(state).name.lower(),
        attempts=attempts,
        due_at=None if due_at is None else when(due_at),
        last_error=last_error,
        since=when(since),
        waiting=parked + pending,
        more_may_wait=is_cut_off or parked >= WAITING_CAP,
    )
