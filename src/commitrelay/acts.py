"""Acts: what operators do to an outbox. The CLI calls it, and so may anything else; no SQL.

An act is planned first: which events it is about, and how many; that changes nothing. Carried out,
it is written down in the audit before the first event is touched, and goes in bounded batches.
What was changed since the plan, or may be in a relay's hands, is left alone and counted as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Protocol
from uuid import UUID

from commitrelay.errors import CommitrelayError, ConfigError, InvalidEvent
from commitrelay.log import LogStore
from commitrelay.operations import MAX_TARGETS, Act, Batch, Operations, Target, Version
from commitrelay.revision import Revision, Unchanged
from commitrelay.store import AdminStore, EventFilter, EventRecord, Lane, State, Verdict

BATCH = 500
"""Events that one transaction changes."""

EDITED_AT_ONCE = 50
"""Events that are read with their payloads to be edited; each is then changed by itself."""

CHANGED = "changed meanwhile"
"""Why an event is left alone that is not as it was when the operator looked."""

DEAD = (State.DEAD, State.SKIPPED)
QUEUED = (State.PENDING, State.RETRYING, State.SCHEDULED, State.PARKED, *DEAD)


class SteeredStore(AdminStore, LogStore, Operations, Protocol):
    """What acts need of a database."""

    async def lane(self, name: str) -> Lane: ...

    async def idle(self, lane: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Action:
    """One of the things that can be done to queued events."""

    name: str
    states: tuple[State, ...]  # in which an event may be for it
    verdict: Verdict | None = None  # with which it leaves the queue, if it does


RETRY = Action("retry", (*DEAD, State.RETRYING))
DISCARD = Action("discard", QUEUED, Verdict.DISCARDED)
RESOLVE = Action("resolve", QUEUED, Verdict.RESOLVED)
EDIT = Action("edit", DEAD)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events: these ids, or all that match. Without ids or a status: those that are dead."""

    where: EventFilter = field(default_factory=EventFilter)
    ids: Sequence[str] | None = None

    def states(self, action: Action) -> tuple[State, ...]:
        status = self.where.status
        if status is None:
            return action.states if self.ids is not None else DEAD
        wanted = DEAD if status == "dead" else (State.__members__.get(status.upper()),)
        chosen = tuple(state for state in action.states if state in wanted)
        if not chosen:
            names = ", ".join(dict.fromkeys(_name(state) for state in action.states))
            raise ConfigError(f"cannot {action.name} what is {status}: only what is {names}")
        return chosen

    def as_detail(self) -> dict[str, Any]:
        """What was asked for, as the audit keeps it."""
        asked = {name: value for name, value in self.where._asdict().items() if value is not None}
        if self.ids is not None:
            asked["ids"] = list(self.ids)
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asked.items()
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Which events an act is about; nothing is changed yet."""

    action: Action
    selection: Selection
    targets: Sequence[Target]
    unfit: Mapping[str, str]  # ids that were asked for and are out of its reach, and why

    @property
    def by_state(self) -> dict[str, int]:
        return dict(Counter(_name(target.state) for target in self.targets))

    @property
    def events(self) -> int:
        """How many they are, however many lanes each is in."""
        return len({target.seq for target in self.targets})

    @property
    def is_capped(self) -> bool:
        """Whether there may be more: the act has to be repeated then."""
        return len(self.targets) >= MAX_TARGETS


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a plan."""

    audit: int
    changed: int
    left_alone: int  # because they were changed meanwhile, or may be in a relay's hands


@dataclass(frozen=True, slots=True)
class Edited:
    """What became of a plan to edit: an event is edited once, for all its lanes."""

    audit: int
    edited: Sequence[Target]  # in every lane that the plan found them dead in
    changed: int
    left_alone: Mapping[str, int]  # why, and how many


class Acts:
    """What one operator does: `await acts.carry_out(await acts.plan(RETRY, selection))`."""

    def __init__(self, store: SteeredStore, actor: str) -> None:
        self._store = store
        self._actor = actor

    async def plan(self, action: Action, selection: Selection) -> Plan:
        """Which events of which lanes it would be about."""
        ids = None if selection.ids is None else [checked_id(text) for text in selection.ids]
        selection = Selection(selection.where, ids)
        found = await self._store.find_targets(
            selection.where, ids=ids, states=selection.states(action), limit=MAX_TARGETS
        )
        targets = sorted(found, key=lambda target: (target.lane, target.state, target.seq))
        return Plan(action, selection, targets, await self._unfit(ids or (), targets))

    async def _unfit(self, ids: Sequence[str], targets: Sequence[Target]) -> dict[str, str]:
        reached = {target.seq for target in targets}
        reasons = {}
        for event_id in ids:
            event = await self._store.show_event(event_id)
            if event is None:
                reasons[event_id] = "is not in this outbox"
            elif event.seq not in reached:
                reasons[event_id] = f"is {standing(event)}"
        return reasons

    async def carry_out(self, plan: Plan) -> Done:
        """Write the act down, then change what is still as it was when it was planned."""
        action = plan.action
        detail = {**plan.selection.as_detail(), "matched": len(plan.targets)}
        audit = await self._begin(action.name, plan.selection.where.lane, detail)
        changed = 0
        for batch in batches(plan.targets):
            if action.verdict is None:
                changed += await self._store.retry_events(audit, batch)
            else:
                changed += await self._store.remove_events(audit, batch, action.verdict)
        return Done(audit, changed, len(plan.targets) + len(plan.unfit) - changed)

    async def edit(self, event: EventRecord, new: Version, *, edits: int) -> Done:
        """Change a dead event that had been edited so often when the operator looked at it."""
        found = await self._store.find_targets(
            EventFilter(), ids=[event.id], states=DEAD, limit=MAX_TARGETS
        )
        if not found:
            raise CommitrelayError(
                f"event {event.id} is {standing(event)}: only a dead event can be edited"
            )
        audit = await self._begin("edit", None, {"ids": [event.id]})
        if not await self._store.edit_event(audit, found[0], new, edits=edits):
            raise CommitrelayError(
                f"event {event.id} was changed by somebody else meanwhile: look at it again"
            )
        return Done(audit, 1, 0)

    async def edit_all(self, plan: Plan, revision: Revision) -> Edited:
        """Change every event of a plan the same way, each only if it is as it was when read."""
        revision.check()
        detail = {
            **plan.selection.as_detail(),
            "change": revision.as_detail(),
            "matched": plan.events,
        }
        audit = await self._begin("edit", plan.selection.where.lane, detail)
        targets = {target.seq: target for target in plan.targets}
        seqs = iter(sorted(targets))
        fates: dict[int, str | None] = {}  # None: it was edited
        while chunk := list(islice(seqs, EDITED_AT_ONCE)):
            edits = await self._store.count_edits(chunk)  # before they are read
            for event in await self._store.read_events(chunk):
                target, seen = targets[event.seq], edits.get(event.seq, 0)
                fates[event.seq] = await self._revise(audit, target, event, revision, seen)
        left_alone = Counter(why for seq in targets if (why := fates.get(seq, CHANGED)) is not None)
        edited = [target for target in plan.targets if fates.get(target.seq, CHANGED) is None]
        return Edited(audit, edited, len(targets) - left_alone.total(), dict(left_alone))

    async def _revise(
        self, audit: int, target: Target, event: EventRecord, revision: Revision, edits: int
    ) -> str | None:
        """Why an event of many is left alone; None if it is edited."""
        try:
            new = revision.of(event)
        except Unchanged:
            return "would stay as it is"
        except InvalidEvent as error:
            return str(error)
        return None if await self._store.edit_event(audit, target, new, edits=edits) else CHANGED

    async def pause(self, lane: str, *, paused: bool) -> None:
        """Turn a lane's switch; its relays see it when they renew their leases."""
        await self._store.lane(lane)
        await self._begin("pause" if paused else "resume", lane, {})
        await self._store.set_paused(lane, paused)

    async def _begin(self, action: str, lane: str | None, detail: Mapping[str, Any]) -> int:
        return await self._store.begin_act(Act(self._actor, action, lane, detail))


def batches(targets: Sequence[Target], size: int = BATCH) -> Iterator[Batch]:
    """Targets of one lane and state at a time, so many at once."""
    ordered = sorted(targets, key=_place)
    for (lane, state), group in groupby(ordered, _place):
        seqs = iter(sorted(target.seq for target in group))
        while chunk := list(islice(seqs, size)):
            yield Batch(lane, state, chunk)


def checked_id(text: str) -> str:
    """The id as databases write it; `ConfigError` if it is none."""
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigError(
            f"{text!r} is not an event id: it is a UUID, as `commitrelay list` shows it"
        ) from None


def standing(event: EventRecord) -> str:
    """Where an event stands, in words: published, or pending in lane a and dead in lane b."""
    places = {delivery.lane: delivery.status for delivery in event.deliveries}
    if len(set(places.values())) == 1:
        return next(iter(places.values()))
    return " and ".join(f"{status} in lane {lane}" for lane, status in places.items()) or "unrouted"


def _place(target: Target) -> tuple[int, State]:
    return target.lane, target.state


def _name(state: State) -> str:
    return "dead" if state in DEAD else state.name.lower()
