"""The demo's ledger finds what it is there to find."""

from __future__ import annotations

from commitrelay.demo.ledger import Ledger, Received


def message(event_id: str, version: int, order: str = "1") -> Received:
    return Received(event_id, order, version, lag_seconds=0.01)


def test_all_is_well() -> None:
    ledger = Ledger()
    ledger.committed(["a", "b"])
    ledger.received([message("a", 1), message("b", 2)])
    assert (ledger.added, ledger.consumed, ledger.lost) == (2, 2, 0)
    assert (ledger.duplicates, ledger.out_of_order, ledger.delivered_after_rollback) == (0, 0, 0)


def test_a_message_may_be_faster_than_its_writer() -> None:
    ledger = Ledger()
    ledger.received([message("a", 1)])
    ledger.committed(["a"])
    assert (ledger.lost, ledger.delivered_after_rollback) == (0, 0)


def test_what_never_arrives_is_lost() -> None:
    ledger = Ledger()
    ledger.committed(["a", "b"])
    ledger.received([message("b", 2)])
    assert ledger.lost == 1


def test_what_arrives_twice_is_a_duplicate_and_not_out_of_order() -> None:
    ledger = Ledger()
    ledger.committed(["a"])
    ledger.received([message("a", 1), message("a", 1)])
    assert (ledger.duplicates, ledger.out_of_order, ledger.lost) == (1, 0, 0)


def test_what_is_overtaken_is_out_of_order_within_its_order_only() -> None:
    ledger = Ledger()
    ledger.committed(["a", "b", "c"])
    ledger.received([message("b", 2), message("c", 1, order="2"), message("a", 1)])
    assert (ledger.out_of_order, ledger.duplicates, ledger.lost) == (1, 0, 0)


def test_what_was_rolled_back_must_not_arrive() -> None:
    ledger = Ledger()
    ledger.rolled(["a"])
    ledger.received([message("a", 1)])
    assert (ledger.rolled_back, ledger.delivered_after_rollback) == (1, 1)


def test_percentiles_are_within_their_bucket() -> None:
    ledger = Ledger()
    ledger.committed([str(number) for number in range(100)])
    ledger.received([Received(str(n), str(n), 1, lag_seconds=(n + 1) / 1000) for n in range(100)])
    assert 50 <= ledger.lags.percentile_ms(0.5) <= 50 * 1.06
    assert 99 <= ledger.lags.percentile_ms(0.99) <= 99 * 1.06
