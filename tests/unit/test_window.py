"""The events in hand: who may be sent when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from commitrelay.publisher import Message
from commitrelay.store import ATTEMPTS, BLOCKED, BUCKET, KEY, SEQ, Queued
from commitrelay.window import Item, Window

ALL = frozenset(range(64))


def item(seq: int, key: str) -> Item:
    row = Queued(
        seq, key, 0, 0, 0, False, str(seq), "T", key, "E", b"", "text/plain", "{}", None, "now"
    )
    return row, Message("t", key, b"", [], str(seq))


def window(*, one_per_key: bool, key_limit: int = 100) -> Window:
    return Window(capacity=1000, one_per_key=one_per_key, key_limit=key_limit)


def claim(hand: Window, *items: Item) -> None:
    hand.request(100, ALL)
    hand.accept(items)


def seqs(items: list[Item]) -> list[int]:
    return [row.seq for row, _message in items]


def test_pipelined_everything_is_ready_at_once() -> None:
    hand = window(one_per_key=False)
    claim(hand, item(1, "a"), item(2, "a"), item(3, "b"))
    assert seqs(hand.take(10)) == [1, 2, 3]
    assert hand.flying == 3


def test_one_per_key_the_next_follows_when_its_predecessor_has_landed() -> None:
    hand = window(one_per_key=True)
    claim(hand, item(1, "a"), item(2, "a"), item(3, "b"))
    batch = hand.take(10)
    assert seqs(batch) == [1, 3]
    assert hand.take(10) == []
    hand.landed(batch[:1], 1)
    assert seqs(hand.take(10)) == [2]


def test_what_is_in_hand_is_left_out_of_the_next_claim_until_it_is_settled() -> None:
    hand = window(one_per_key=False)
    claim(hand, item(1, "a"), item(2, "b"))
    hand.landed(hand.take(10), 2)
    assert sorted(hand.request(10, ALL).exclude_seqs) == [1, 2]
    hand.accept(())
    hand.settled([1])
    assert list(hand.request(10, ALL).exclude_seqs) == [2]


def test_what_is_settled_within_a_sweep_is_left_out_until_it_ends() -> None:
    hand = window(one_per_key=False)
    claim(hand, item(10, "c"), item(11, "d"), item(12, "e"))
    hand.settled([10])
    hand.end_sweep()
    assert sorted(hand.request(2, ALL).exclude_seqs) == [11, 12]
    hand.settled([11])  # the claim under way may have seen it
    hand.accept([item(1, "a"), item(2, "b")])
    hand.raise_floor(2)
    assert sorted(hand.request(2, ALL).exclude_seqs) == [11, 12]
    hand.accept(())
    hand.end_sweep()
    assert sorted(hand.request(2, ALL).exclude_seqs) == [1, 2, 12]


def test_followers_of_a_refused_event_are_dropped_and_its_key_is_skipped() -> None:
    hand = window(one_per_key=True)
    claim(hand, item(1, "a"), item(2, "a"))
    ((row, _message),) = hand.take(10)
    assert hand.refuse(row, flying=True) == [2]
    assert hand.flying == 0
    claim(hand, item(2, "a"), item(3, "b"))
    assert seqs(hand.take(10)) == [3]


def test_a_refused_key_returns_with_the_sweep_after_its_settlement() -> None:
    hand = window(one_per_key=False)
    claim(hand, item(1, "a"))
    ((row, _message),) = hand.take(10)
    hand.refuse(row, flying=True)
    hand.end_sweep()
    request = hand.request(10, ALL)
    assert list(request.exclude_keys) == ["a"]
    hand.settled([1], ["a"])  # while a claim is under way, which was read before
    hand.accept([item(2, "a")])
    assert hand.take(10) == []
    hand.end_sweep()
    claim(hand, item(2, "a"))
    assert seqs(hand.take(10)) == [2]


def test_a_hot_key_has_its_share_of_the_window_and_no_more() -> None:
    hand = window(one_per_key=True, key_limit=2)
    claim(hand, *(item(seq, "hot") for seq in range(1, 9)), item(9, "cold"))
    assert len(hand) == 4  # one ready, two waiting, and the cold one
    assert list(hand.request(10, ALL).exclude_keys) == ["hot"]
    hand.accept(())
    assert hand.skips and not hand.skips_in_vain
    hand.landed(hand.take(10), 2)
    assert hand.skips_in_vain


def test_a_claim_that_was_under_way_when_all_was_given_up_is_void() -> None:
    hand = window(one_per_key=False)
    claim(hand, item(1, "a"))
    hand.request(10, ALL)
    assert hand.clear() == [1]
    assert hand.claim_is_void
    hand.accept([item(2, "a")])
    assert len(hand) == 0
    claim(hand, item(1, "a"))
    assert seqs(hand.take(10)) == [1]


def test_buckets_in_hand_are_told() -> None:
    hand = window(one_per_key=False)
    claim(hand, item(1, "a"))
    assert set(hand.buckets()) == {0}
    hand.landed(hand.take(1), 1)
    assert set(hand.buckets()) == {0}
    hand.settled([1])
    assert set(hand.buckets()) == set()


@given(keys=st.lists(st.sampled_from("abc"), max_size=60), data=st.data())
def test_one_per_key_never_two_of_a_key_in_flight_and_always_in_order(
    keys: list[str], data: st.DataObject
) -> None:
    hand = window(one_per_key=True)
    claim(hand, *(item(seq, key) for seq, key in enumerate(keys, 1)))
    flying: list[Item] = []
    sent: dict[str, list[int]] = {}
    while hand.ready or flying:
        if hand.ready and (not flying or data.draw(st.booleans())):
            for row, message in hand.take(data.draw(st.integers(1, 3))):
                assert all(other.key != row.key for other, _ in flying)
                sent.setdefault(str(row.key), []).append(row.seq)
                flying.append((row, message))
        else:
            landed = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            hand.landed([landed], 1)
    assert sum(map(len, sent.values())) == len(keys)
    assert all(order == sorted(order) for order in sent.values())


def test_places_in_a_row_are_those_of_its_names() -> None:
    places = {"seq": SEQ, "key": KEY, "bucket": BUCKET, "attempts": ATTEMPTS, "blocked": BLOCKED}
    assert places == {name: Queued._fields.index(name) for name in places}
