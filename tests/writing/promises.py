"""The promises of `add` and `add_async`, the same for every handle.

A test class inherits from `Promises` and gives the fixtures `database` and `connect`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from commitrelay import Event, NotInTransaction, Outbox
from tests.writing.databases import Database
from tests.writing.writers import Writer

Connect = Callable[..., Writer]

ALL_BYTES = bytes(range(256))
HEADERS = {"traceparent": "00-4bf9-01", "héader": 'quote " and \\ and 😀', "empty": ""}


def event(number: int = 1, **fields: object) -> Event:
    return Event("Order", "42", "OrderPaid", {"number": number}, **fields)  # type: ignore[arg-type]


class Promises:
    @pytest.fixture
    def writer(self, connect: Connect) -> Writer:
        return connect()

    def test_what_is_committed_is_there(self, database: Database, writer: Writer) -> None:
        added = writer.add(event())
        writer.commit()
        (row,) = database.events()
        assert row["id"] == str(added[0])
        assert (row["aggregate_type"], row["aggregate_id"]) == ("Order", "42")
        assert row["event_type"] == "OrderPaid"
        assert (row["payload"], row["content_type"]) == (b'{"number":1}', "application/json")
        assert (row["headers"], row["idempotency_key"], row["deliver_at"]) == ("{}", None, None)
        assert database.queued() == [row["seq"]]

    def test_nothing_is_committed_on_the_callers_behalf(
        self, database: Database, writer: Writer
    ) -> None:
        writer.add(event())
        assert database.events() == []
        writer.commit()
        assert len(database.events()) == 1

    def test_what_is_rolled_back_is_gone(self, database: Database, writer: Writer) -> None:
        writer.add(event())
        writer.rollback()
        assert database.events() == []
        assert database.queued() == []

    def test_a_savepoint_takes_its_events_with_it(self, database: Database, writer: Writer) -> None:
        writer.add(event(1))
        writer.savepoint()
        writer.add(event(2))
        writer.rollback_to_savepoint()
        writer.add(event(3))
        writer.commit()
        assert [row["payload"] for row in database.events()] == [b'{"number":1}', b'{"number":3}']
        assert len(database.queued()) == 2

    def test_a_handle_in_autocommit_mode_is_refused(
        self, database: Database, connect: Connect
    ) -> None:
        writer = connect(autocommit=True)
        with pytest.raises(NotInTransaction) as refused:
            writer.add(event())
        assert database.events() == []
        message = str(refused.value)
        assert "\n" not in message
        assert "would not be rolled back with your data: " in message

    def test_an_idempotency_key_adds_once_and_says_so(
        self, database: Database, connect: Connect
    ) -> None:
        writer = connect()
        first = writer.add(event(1, idempotency_key="payment-7"))
        assert (first.new, first.duplicates) == (1, 0)
        again = writer.add(event(2, idempotency_key="payment-7"))
        assert (again.new, again.duplicates) == (0, 1)
        writer.commit()
        later = connect().add(
            event(3), event(4, idempotency_key="payment-7"), event(5, idempotency_key="payment-7")
        )
        assert (later.new, later.duplicates) == (1, 2)
        assert first[0] == again[0] == later[1] == later[2]
        (row,) = database.events()
        assert (row["payload"], row["idempotency_key"]) == (b'{"number":1}', "payment-7")

    def test_the_same_event_added_again_is_added_once(
        self, database: Database, connect: Connect
    ) -> None:
        paid = event()  # such as after a commit whose answer was lost
        for _attempt in range(2):
            writer = connect()
            writer.add(paid)
            writer.commit()
        assert len(database.events()) == 1

    @pytest.mark.parametrize(("first_commits", "duplicates"), [(True, 1), (False, 0)])
    def test_one_of_two_concurrent_adds_of_a_key_wins(
        self, database: Database, connect: Connect, first_commits: bool, duplicates: int
    ) -> None:
        first, second = connect(), connect()
        first.add(event(1, idempotency_key="once"))
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(second.add, event(2, idempotency_key="once"))
            database.await_blocked()
            if first_commits:
                first.commit()
            else:
                first.rollback()
            assert waiting.result(60).duplicates == duplicates
        second.commit()
        (row,) = database.events()
        assert row["payload"] == (b'{"number":1}' if first_commits else b'{"number":2}')

    def test_several_events_are_one_statement(self, database: Database, writer: Writer) -> None:
        with database.counting_inserts(writer) as inserts:
            writer.add(*(event(number) for number in range(5)))
            writer.commit()
        assert inserts == [5]

    @pytest.mark.parametrize("count", [2, 101, 3000])
    def test_seq_follows_the_order_of_the_arguments(
        self, database: Database, writer: Writer, count: int
    ) -> None:
        added = writer.add(*(event(number, id=uuid4()) for number in range(count)))
        assert (len(added), added.new) == (count, count)
        writer.commit()
        rows = database.events()
        assert [row["id"] for row in rows] == [str(id_) for id_ in added]
        assert [json.loads(row["payload"])["number"] for row in rows] == list(range(count))
        assert database.queued() == [row["seq"] for row in rows]

    @pytest.mark.parametrize("payload", [b"", ALL_BYTES, b"%s ? $1 :id \\x00"])
    def test_payload_and_headers_are_kept_to_the_byte(
        self, database: Database, writer: Writer, payload: bytes
    ) -> None:
        moment = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        name = 'it\'s %s ? $1 :id "ü" \t 😀'
        writer.add(
            Event(
                name, name, name, payload,
                headers=HEADERS, idempotency_key=name, deliver_at=moment, content_type="x/y",
            )
        )  # fmt: skip
        writer.commit()
        (row,) = database.events()
        assert row["payload"] == payload
        assert json.loads(row["headers"]) == HEADERS
        assert list(json.loads(row["headers"])) == list(HEADERS)
        names = ("aggregate_type", "aggregate_id", "event_type", "idempotency_key")
        assert {row[column] for column in names} == {name}
        assert row["content_type"] == "x/y"
        assert row["deliver_at"] in (moment, "2030-01-02T03:04:05.678901Z")

    def test_serialised_keys_write_the_same(self, database: Database, connect: Connect) -> None:
        writer = connect(outbox=Outbox(serialize_keys=True))
        added = writer.add(event(1), Event("Order", "7", "OrderPaid", {}), event(2))
        assert added.new == 3
        writer.commit()
        assert [row["id"] for row in database.events()] == [str(id_) for id_ in added]


def closing_factory(make: Callable[[Outbox, bool], Writer]) -> Iterator[Connect]:
    """The body of a `connect` fixture: writers on demand, closed at the end."""
    opened: list[Writer] = []

    def connect(*, autocommit: bool = False, outbox: Outbox | None = None) -> Writer:
        writer = make(outbox or Outbox(), autocommit)
        opened.append(writer)
        return writer

    yield connect
    for writer in opened:
        writer.close()
