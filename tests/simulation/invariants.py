"""What must hold in every world (I1-I5, I7, I9-I12), checked from its recorded history."""

from __future__ import annotations

from collections import Counter

from commitrelay.store import State
from tests.simulation.application import CLAIM_SECONDS
from tests.simulation.broker import DELIVERY_TIMEOUT_SECONDS
from tests.simulation.world import LEASE_SECONDS, RETRY, World, Written

RECOVERY_SECONDS = (
    LEASE_SECONDS * 1.4  # the lease of a dead relay, and the others' next look at it
    + DELIVERY_TIMEOUT_SECONDS
    + CLAIM_SECONDS  # of a direct pass that died
    + sum(RETRY.delays_seconds) * (1 + RETRY.jitter)
    + 15.0 * 1.2  # the longest pause of the circuit
    + 5.0  # the longest pause of the database's
    + 5.0  # a delayed event
)

PAUSING_SECONDS = LEASE_SECONDS + 2 * DELIVERY_TIMEOUT_SECONDS + 1.0
"""A relay that cannot read that it is to pause loses its lease; what is sent may take so long."""

DYING_SECONDS = sum(RETRY.delays_seconds) * (1 + RETRY.jitter) + 1.0
"""How long a key stands still for one poisonous event."""

SECONDS_AN_EVENT = 0.1
"""What a round trip to the simulated broker takes, if all events are of one key."""


def check(world: World) -> None:
    committed = [event for event in world.written if event.committed_at is not None]
    first_arrival = _first_arrivals(world)
    queue = world.queue()
    _i2_rolled_back_is_never_delivered(world, first_arrival)
    _i1_committed_is_delivered_or_dead(world, committed, first_arrival, queue)
    _i7_conservation(world, committed, queue)
    _i9_never_early(committed, first_arrival)
    _i10_stale_tokens_change_nothing(world)
    _i4_duplicates_only_after_faults(world)
    _i12_recovers_in_time(world, committed, first_arrival)
    _nothing_is_sent_while_paused(world)
    assert not world.broker.calls_too_many, "a publisher was called more often than it allows"
    assert not world.open_circuits, "a relay says that it holds off, and nothing is in its way"
    if world.restless:
        _what_is_in_hand_is_not_discarded(world)
    if world.options.order == "strict":
        _i3_order_per_key(world, committed, first_arrival)
        _i5_dead_blocks_or_is_skipped(world, committed, first_arrival, queue)


def _first_arrivals(world: World) -> dict[str, float]:
    first: dict[str, float] = {}
    for position, arrival in enumerate(world.broker.log):
        first.setdefault(arrival.event_id, arrival.at + position * 1e-9)
    return first


def _i1_committed_is_delivered_or_dead(
    world: World,
    committed: list[Written],
    first_arrival: dict[str, float],
    queue: dict[int, tuple[int, str | None]],
) -> None:
    dead_keys = {
        event.key for event in committed if queue.get(event.seq, (0, None))[0] == State.DEAD
    }
    for event in committed:
        state, error = queue.get(event.seq, (None, None))
        if state in (State.DEAD, State.SKIPPED):
            assert error, f"{event} is dead without an error"
            refusals = world.broker.refusals[event.id]
            assert refusals >= RETRY.max_attempts, f"{event} is dead of {refusals} refusals"
        elif state == State.PARKED:
            assert event.key in dead_keys, f"{event} is parked behind nothing"  # I11 as well
        elif event.id not in world.operator.discarded:
            assert event.id in first_arrival, f"{event} is lost (its state: {state})"
            assert state is None, f"{event} was delivered and is still in the queue: {state}"


def _i2_rolled_back_is_never_delivered(world: World, first_arrival: dict[str, float]) -> None:
    for event in world.written:
        if event.committed_at is None:
            assert event.id not in first_arrival, f"{event} was rolled back and delivered"


def _i3_order_per_key(
    world: World, committed: list[Written], first_arrival: dict[str, float]
) -> None:
    latest: dict[str, tuple[float, Written]] = {}
    for event in sorted(committed, key=lambda event: event.seq):
        if event.id not in first_arrival or event.deliver_at is not None:
            continue
        if event.id in world.operator.out_of_turn:
            continue
        arrived = first_arrival[event.id]
        before, earlier = latest.get(event.key, (0.0, event))
        assert before <= arrived, f"{event} overtook {earlier}"
        latest[event.key] = (arrived, event)


def _i4_duplicates_only_after_faults(world: World) -> None:
    arrivals = Counter(arrival.event_id for arrival in world.broker.log)
    duplicates = sum(arrivals.values()) - len(arrivals)
    actors = world.actors + world.retired
    faults = (
        world.crashes
        + world.broker.faults_seen
        + sum(actor.store.faults_seen + actor.relay.stats.lease_lost for actor in actors)
        + sum(each.store.faults_seen for each in world.applications + world.ended)
    )
    allowed = faults * _most_in_hand(world) + len(world.operator.replayed)
    assert duplicates <= allowed, f"{duplicates} duplicates after {faults} faults"


def _most_in_hand(world: World) -> int:
    """All that may be at the broker, and what is read ahead meanwhile."""
    batch_size, window = world.options.batch_size, world.options.window
    call_size = batch_size * (window // min(window, world.max_in_flight or window))
    return batch_size * (window + 1) + call_size


def _i5_dead_blocks_or_is_skipped(
    world: World,
    committed: list[Written],
    first_arrival: dict[str, float],
    queue: dict[int, tuple[int, str | None]],
) -> None:
    for dead in committed:
        state, _error = queue.get(dead.seq, (None, None))
        if state not in (State.DEAD, State.SKIPPED) or dead.deliver_at is not None:
            continue
        if dead.id in world.operator.replayed:
            continue
        followers = [
            event
            for event in committed
            if event.key == dead.key and event.seq > dead.seq and event.deliver_at is None
        ]
        for event in followers:
            if state == State.DEAD:
                assert event.id not in first_arrival, f"{event} passed {dead}, which is dead"
            else:
                assert queue.get(event.seq, (State.SKIPPED,))[0] == State.SKIPPED, (
                    f"{event} waits behind {dead}, which was to be skipped"
                )


def _i7_conservation(
    world: World, committed: list[Written], queue: dict[int, tuple[int, str | None]]
) -> None:
    replayed = len(world.operator.replayed)
    assert len(committed) + replayed == len(queue) + world.journalled()


def _i9_never_early(committed: list[Written], first_arrival: dict[str, float]) -> None:
    for event in committed:
        if event.deliver_at is not None and event.id in first_arrival:
            assert first_arrival[event.id] >= event.deliver_at, f"{event} was delivered early"


def _i10_stale_tokens_change_nothing(world: World) -> None:
    for actor in world.actors + world.retired:
        assert actor.store.stale_writes == 0, f"{actor.relay.name} wrote with a stale token"
    for application in world.applications + world.ended:
        assert application.store.stale_writes == 0, f"{application.name} wrote what it lost"


def _what_is_in_hand_is_not_discarded(world: World) -> None:
    for arrival in world.broker.log:
        discarded_at = world.operator.discarded.get(arrival.event_id, arrival.at)
        assert arrival.at <= discarded_at, f"{arrival} was discarded at {discarded_at}"


def _nothing_is_sent_while_paused(world: World) -> None:
    """But what was sent before the relays knew, or by one that stood still meanwhile."""
    for paused_at, resumed_at in world.operator.pauses if not world.freezes else ():
        for arrival in world.broker.log:
            too_late = paused_at + PAUSING_SECONDS < arrival.at < resumed_at
            assert not too_late, f"{arrival} came while paused, from {paused_at} to {resumed_at}"


def _i12_recovers_in_time(
    world: World, committed: list[Written], first_arrival: dict[str, float]
) -> None:
    arrived = [first_arrival[event.id] for event in committed if event.id in first_arrival]
    late = max(arrived, default=0.0) - world.healed_at
    backlog = sum(at > world.healed_at for at in arrived)
    backlog += len(world.operator.replayed)
    dying = len(world.poison) + world.operator.retries
    in_time = RECOVERY_SECONDS + backlog * SECONDS_AN_EVENT + dying * DYING_SECONDS
    assert late <= in_time, f"recovered {late:.1f} s after healing, not within {in_time:.1f} s"
