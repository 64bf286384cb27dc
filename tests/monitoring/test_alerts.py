"""Alerts: once, a reminder, and the all-clear."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from commitrelay.alerts import NO_DUTY, Alerts, Command, Duty, Limits, Notice
from commitrelay.alerts.findings import QUIET_SECONDS
from commitrelay.alerts.messengers import Outgoing
from commitrelay.errors import (
    BrokerUnreachable,
    CommitrelayError,
    ConfigError,
    StoreUnreachable,
)
from commitrelay.observer import Observation
from commitrelay.store import EventRecord, LaneStatus, RelayStatus, Vitals

CALM = LaneStatus(
    lane="default",
    paused=False,
    counts={"pending": 0, "dead": 0},
    capped_at=100,
    oldest_pending_seconds=None,
    published_last_minute=0,
    last_published_at=None,
    last_error=None,
    relays={},
)
FULL_DUTY = Duty(frozenset({"default"}), outbox=True)
HEALTHY = Vitals(blocked_keys={}, table_bytes=10, slot_lag_bytes={})
LIMITS = Limits(
    lag_seconds=60,
    standing_seconds=30,
    table_bytes=1000,
    slot_lag_bytes=1000,
    reminder_seconds=100,
)


class Tower:
    """A world to look at, with a clock, and ears for what is told about it."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.now = 1000.0
        self.status = CALM
        self.vitals = HEALTHY
        self.error: CommitrelayError | None = None
        self.leases_lost = 0.0
        self.duty = FULL_DUTY
        self.told: list[Notice] = []
        self.alerts = Alerts(
            self,  # type: ignore[arg-type]
            limits,
            [self],
            leases_lost=lambda lane: self.leases_lost,
            clock=lambda: self.now,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now),
        )
        self.after(0)

    async def look(self, max_age_seconds: float) -> Observation:
        if self.error is not None:
            raise self.error
        return Observation(self.now, [self.status], self.vitals)

    async def dead_events(self, lane: str, limit: int) -> Sequence[EventRecord]:
        return ()

    async def open(self) -> None: ...

    async def tell(self, notice: Notice) -> None:
        self.told.append(notice)

    async def close(self) -> None: ...

    def after(self, seconds: float) -> list[tuple[str, str]]:
        """What is told when it is looked again after that time."""
        self.now += seconds
        self.told.clear()
        asyncio.run(self.alerts.look(["default"], lambda lanes: self.duty))
        return [(notice.finding.alert, notice.status) for notice in self.told]


def test_once_then_a_reminder_then_the_all_clear() -> None:
    tower = Tower()
    assert tower.after(10) == []
    tower.status = CALM._replace(counts={"pending": 0, "dead": 1, "skipped": 1})
    assert tower.after(10) == [("dead_letter", "raised")]
    incident = tower.told[0].incident
    assert "2 events are dead in lane default" in tower.told[0].summary
    assert tower.after(10) == []
    assert tower.after(95) == [("dead_letter", "reminder")]
    assert tower.told[0].incident == incident
    assert tower.after(50) == []
    tower.status = CALM
    assert tower.after(10) == []
    assert tower.after(10) == [("dead_letter", "cleared")]
    assert tower.told[0].incident == incident
    assert tower.told[0].summary.startswith("over after 175s: ")
    assert tower.after(10) == []
    tower.status = CALM._replace(counts={"dead": 1})
    assert tower.after(10) == [("dead_letter", "raised")]
    assert tower.told[0].incident != incident


def test_a_finding_that_flickers_is_one_incident() -> None:
    tower = Tower()
    late = CALM._replace(oldest_pending_seconds=61.0)
    told = []
    for number in range(6):
        tower.status = late if number % 2 == 0 else CALM
        told += tower.after(5)
    assert told == [("lag", "raised")]


def test_lag_also_of_a_paused_lane() -> None:
    tower = Tower()
    tower.status = CALM._replace(oldest_pending_seconds=60.0)
    assert tower.after(1) == []
    tower.status = CALM._replace(oldest_pending_seconds=61.0, paused=True)
    assert tower.after(1) == [("lag", "raised")]
    assert "paused" in tower.told[0].summary


def test_a_lane_stands_if_events_wait_and_none_is_delivered() -> None:
    tower = Tower()
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    waiting = CALM._replace(counts={"pending": 3}, last_published_at=moment)
    tower.status = waiting
    assert tower.after(10) == []
    assert tower.after(29) == []
    tower.status = waiting._replace(last_published_at=moment + timedelta(seconds=5))
    assert tower.after(10) == []  # it moves
    assert tower.after(31) == [("standing", "raised")]
    tower.status = tower.status._replace(paused=True)
    assert tower.after(1) + tower.after(1) == [("standing", "cleared")]


def test_size_and_slots() -> None:
    tower = Tower()
    tower.vitals = HEALTHY._replace(table_bytes=1001, slot_lag_bytes={"a": 2000, "b": 5})
    assert tower.after(1) == [("table_size", "raised"), ("slot_lag", "raised")]
    assert "replication slot a" in tower.told[1].summary
    tower.vitals = HEALTHY
    tower.after(1)
    assert tower.after(1) == [("table_size", "cleared"), ("slot_lag", "cleared")]


def test_a_lost_lease_is_news_for_a_while() -> None:
    tower = Tower(replace(LIMITS, reminder_seconds=None))
    tower.duty = NO_DUTY  # that is so when the lease has just been lost
    tower.leases_lost = 1
    assert tower.after(1) == [("lease_lost", "raised")]
    assert tower.after(QUIET_SECONDS - 1) == []
    assert tower.after(2) == []
    assert tower.after(1) == [("lease_lost", "cleared")]
    tower.leases_lost = 2
    assert tower.after(1) == [("lease_lost", "raised")]


def test_a_database_that_does_not_answer() -> None:
    tower = Tower()
    tower.status = CALM._replace(counts={"dead": 1})
    assert tower.after(1) == [("dead_letter", "raised")]
    tower.error = StoreUnreachable("postgresql://u:c4n4ry@h/d did not answer")
    assert tower.after(10) + tower.after(10) == []  # nothing is over because nobody can see it
    assert tower.after(25) == [("database", "raised")]
    assert "c4n4ry" not in tower.told[0].as_json()
    tower.error = None
    assert tower.after(1) + tower.after(1) == [("database", "cleared")]


def test_what_became_the_duty_of_another_relay_is_called_over_when_it_is() -> None:
    tower = Tower()
    tower.status = CALM._replace(counts={"dead": 1})
    tower.vitals = HEALTHY._replace(table_bytes=1001)
    assert tower.after(1) == [("dead_letter", "raised"), ("table_size", "raised")]
    incident = tower.told[0].incident
    tower.duty = NO_DUTY
    assert tower.after(1) + tower.after(1) + tower.after(1) == []
    assert tower.after(101) == [], "the other one reminds"
    tower.status, tower.vitals = CALM, HEALTHY
    assert tower.after(1) == []
    assert tower.after(1) == [("dead_letter", "cleared"), ("table_size", "cleared")]
    assert tower.told[0].incident == incident


def test_what_is_the_duty_of_another_relay_is_not_raised() -> None:
    tower = Tower()
    tower.duty = NO_DUTY
    tower.status = CALM._replace(counts={"pending": 1, "dead": 1}, oldest_pending_seconds=61.0)
    tower.vitals = HEALTHY._replace(table_bytes=1001, slot_lag_bytes={"a": 2000})
    assert tower.after(1) + tower.after(31) == []
    tower.duty = Duty(frozenset({"default"}))
    assert tower.after(1) == [], "it may be for a moment only"
    assert [alert for alert, _ in tower.after(1)] == ["dead_letter", "lag", "standing"]
    tower.duty = FULL_DUTY
    assert tower.after(1) == []
    assert [alert for alert, _ in tower.after(1)] == ["table_size", "slot_lag"]


def test_who_is_on_duty_for_one_look_says_nothing() -> None:
    tower = Tower()
    tower.status = CALM._replace(counts={"dead": 1})
    for number in range(6):
        tower.duty = FULL_DUTY if number % 2 else NO_DUTY
        assert tower.after(1) == []
    tower.duty = FULL_DUTY
    assert tower.after(1) == [("dead_letter", "raised")]


def test_a_lane_that_no_relay_serves() -> None:
    tower = Tower()
    tower.duty = Duty(unserved=frozenset({"default"}))
    tower.status = CALM._replace(counts={"parked": 1, "scheduled": 2})
    assert tower.after(1) + tower.after(30) == []
    assert tower.after(1) == [("standing", "raised")]
    [told] = tower.told
    assert told.summary.startswith("no relay serves lane default: 3 events wait, for 31s by now")
    assert "commitrelay run --lane default" in told.summary
    assert json.loads(told.as_json())["lane"] == "default"
    assert tower.after(1) == []
    assert tower.after(100) == [("standing", "reminder")]
    tower.status = tower.status._replace(relays={"late": RelayStatus(64, 20.0)})
    tower.duty = NO_DUTY
    assert tower.after(1) == []
    assert tower.after(1) == [("standing", "cleared")]
    tower.status = tower.status._replace(relays={})
    tower.duty = Duty(unserved=frozenset({"default"}))
    assert tower.after(1) == [], "it was served a moment ago"


def test_who_has_to_tell_of_such_a_lane_for_one_look_says_nothing() -> None:
    tower = Tower()
    tower.duty = NO_DUTY
    tower.status = CALM._replace(counts={"pending": 1})
    assert tower.after(1) + tower.after(31) == []
    tower.duty = Duty(unserved=frozenset({"default"}))
    assert tower.after(1) == []
    assert tower.after(1) == [("standing", "raised")]


@pytest.mark.parametrize("change", [{"counts": {"dead": 3}}, {"paused": True}])
def test_a_lane_without_a_relay_that_needs_none(change: dict[str, Any]) -> None:
    tower = Tower()
    tower.duty = Duty(unserved=frozenset({"default"}))
    waiting = CALM._replace(counts={"pending": 1})
    tower.status = waiting._replace(**change)
    assert tower.after(1) + tower.after(100) == []
    tower.status = waiting
    tower.after(1)
    assert tower.after(31) == [("standing", "raised")]
    tower.status = waiting._replace(**change)
    assert tower.after(1) + tower.after(1) == [("standing", "cleared")]


def test_a_bug_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    tower = Tower()
    tower.alerts._interval_seconds = 0.001
    tower.error = RuntimeError("a bug")  # type: ignore[assignment]

    async def body() -> None:
        running = asyncio.create_task(tower.alerts.run(["default"], lambda lanes: tower.duty))
        while "a bug" not in caplog.text:
            await asyncio.sleep(0.001)
        tower.error = None
        tower.status = CALM._replace(counts={"dead": 1})
        while not tower.told:
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(asyncio.wait_for(body(), 30))


def test_limits_of_never() -> None:
    tower = Tower(Limits(None, None, None, None, None))
    tower.status = CALM._replace(counts={"pending": 1}, oldest_pending_seconds=1e9)
    tower.vitals = Vitals({}, 10**15, {"a": 10**15})
    assert tower.after(1) + tower.after(10**6) == []
    tower.error = StoreUnreachable("gone")
    assert tower.after(1) + tower.after(10**6) == []


class Moody:
    """A messenger that fails as told."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.told: list[str] = []

    async def open(self) -> None: ...

    async def tell(self, notice: Notice) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.told.append(notice.id)

    async def close(self) -> None: ...


def notices(count: int) -> list[Notice]:
    tower = Tower()
    tower.status = CALM._replace(counts={"dead": 1})
    tower.after(1)
    return [replace(tower.told[0], id=str(number)) for number in range(count)]


def test_a_notice_that_cannot_be_delivered_is_kept_in_order() -> None:
    moody = Moody(BrokerUnreachable("down"), BrokerUnreachable("down"))
    outgoing = Outgoing(moody)
    both = notices(2)

    async def body() -> None:
        for notice in both:
            outgoing.add(notice)
            await outgoing.flush()
        assert moody.told == []
        await outgoing.flush()

    asyncio.run(body())
    assert moody.told == ["0", "1"]


def test_a_notice_that_is_refused_is_given_up() -> None:
    moody = Moody(CommitrelayError("404"))
    outgoing = Outgoing(moody)
    both = notices(2)

    async def body() -> None:
        for notice in both:
            outgoing.add(notice)
        await outgoing.flush()

    asyncio.run(body())
    assert moody.told == ["1"]


def test_a_command_gets_the_notice_and_no_shell(tmp_path: Path) -> None:
    [notice] = notices(1)
    target = tmp_path / "told; touch pwned"
    asyncio.run(Command(f"tee '{target}'").tell(notice))
    assert json.loads(target.read_text())["alert"] == "dead_letter"
    with pytest.raises(BrokerUnreachable, match="ended with 1"):
        asyncio.run(Command("false").tell(notice))
    with pytest.raises(CommitrelayError, match="No such file"):
        asyncio.run(Command("/nowhere/at/all").tell(notice))
    for wrong in ("'", " ", "/nowhere/at/all"):
        with pytest.raises(ConfigError):
            asyncio.run(Command(wrong).open())


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitrelay.alerts.messengers.COMMAND_SECONDS", 0.2)
    [notice] = notices(1)
    with pytest.raises(CommitrelayError, match="took longer"):
        asyncio.run(Command("sleep 1000").tell(notice))
