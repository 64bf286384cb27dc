"""Who tells of what: one relay of several, also where none has reached its broker."""

from __future__ import annotations

from commitrelay.alerts import Duty, duty_of
from commitrelay.store import LaneStatus, OpenCircuit, RelayStatus

HELD_OFF = OpenCircuit(1.0, "gone")
LEASE = RelayStatus(64, 20.0)


def lane(name: str, *relays: str, waiting: tuple[str, ...] = ()) -> LaneStatus:
    """With these relays at work, and with those waiting for their brokers."""
    return LaneStatus(
        lane=name,
        paused=False,
        counts={},
        capped_at=100,
        oldest_pending_seconds=None,
        published_last_minute=0,
        last_published_at=None,
        last_error=None,
        relays=dict.fromkeys(relays, LEASE),
        open_circuits=dict.fromkeys(waiting, HELD_OFF),
    )


def speakers(*lanes: LaneStatus, names: str = "abc") -> list[str]:
    """Which relays tell of the first lane."""
    return [name for name in names if lanes[0].lane in duty_of({lanes[0].lane: name}, lanes).lanes]


def test_one_relay_tells_of_a_lane() -> None:
    assert speakers(lane("default", "c", "b")) == ["b"]
    assert speakers(lane("default", waiting=("c", "b"))) == ["b"]
    assert speakers(lane("default")) == []


def test_who_has_a_lease_comes_before_who_waits() -> None:
    assert speakers(lane("default", "b", waiting=("a",))) == ["b"]
    assert speakers(lane("default", "a", "b", waiting=("a", "b"))) == ["a"]


def test_a_relay_whose_name_is_not_known_yet_is_silent() -> None:
    assert duty_of({"default": None}, [lane("default", "a")]) == Duty()


def test_a_lane_of_others_is_theirs() -> None:
    assert duty_of({"audit": "a"}, [lane("audit", "b"), lane("default", "a")]) == Duty()


def test_between_circuit_and_lease_it_stays_as_it_was() -> None:
    names = {"default": "a"}
    waiting = duty_of(names, [lane("default", waiting=("a",))])
    assert waiting == Duty(frozenset({"default"}), outbox=True)
    assert duty_of(names, [lane("default")], waiting) == waiting
    assert duty_of(names, [lane("default", "b")], waiting) == Duty()


def test_whoever_tells_of_the_first_lane_that_is_served_tells_of_the_rest() -> None:
    lanes = [lane("default"), lane("audit", "b"), lane("search", "a")]
    audit = duty_of({"audit": "b"}, lanes)
    assert audit == Duty(frozenset({"audit"}), outbox=True, unserved=frozenset({"default"}))
    assert duty_of({"search": "a"}, lanes) == Duty(frozenset({"search"}))
    both = duty_of({"audit": "a", "search": "a"}, lanes)
    assert both == Duty(frozenset({"search"})), "of lane audit, it is the other relay"
