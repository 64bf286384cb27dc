"""The promises of `once`, `begin` and `complete`, the same for every handle.

A test class inherits from `Promises` and gives the fixtures `database` and `connect`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from commitrelay import (
    Event,
    Inbox,
    InProgress,
    InvalidHandle,
    NotInTransaction,
    NotOpen,
    UnknownEvent,
)
from tests.inbox.deliveries import Delivery, begin, commit_if_possible, complete, handle_of, once
from tests.writing.databases import SqliteDatabase
from tests.writing.promises import Connect
from tests.writing.writers import AsyncWriter, Writer

INSERT = (
    "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
    "VALUES ('Effect', '{}', 'Happened', '')"
)


def marks(database: Any, event_id: str) -> int:
    rows = database.query("SELECT event_id FROM outbox_inbox")
    found = [row["event_id"] for row in rows]
    return found.count(event_id) + found.count(event_id.encode())


def effects(database: Any, event_id: str) -> int:
    return len(
        database.query(f"SELECT 1 AS one FROM outbox_event WHERE aggregate_id = '{event_id}'")
    )


def status(database: Any, event_id: str) -> tuple[str, bool]:
    """The event in the view: its status, and whether it has a time of completion."""
    (row,) = database.query(f"SELECT status, completed_at FROM outbox WHERE id = '{event_id}'")
    return row["status"], row["completed_at"] is not None


class Promises:
    @pytest.fixture
    def event_id(self) -> str:
        return str(uuid4())

    @pytest.fixture
    def writer(self, connect: Connect) -> Writer:
        return connect()

    # --- once ---------------------------------------------------------------------------------

    def test_the_first_is_first_and_the_second_a_duplicate(
        self, database: Any, connect: Connect, event_id: str
    ) -> None:
        first, second = connect(), connect()
        assert once(first, event_id) is True
        first.execute(INSERT.format(event_id))
        assert (marks(database, event_id), effects(database, event_id)) == (0, 0)
        first.commit()
        assert (marks(database, event_id), effects(database, event_id)) == (1, 1)
        assert once(second, event_id) is False
        assert once(second, event_id, wait=False) is False
        second.execute(INSERT.format(f"after-{event_id}"))
        second.commit()
        assert effects(database, f"after-{event_id}") == 1

    def test_within_one_transaction_the_second_is_a_duplicate(
        self, writer: Writer, event_id: str
    ) -> None:
        assert [once(writer, event_id), once(writer, event_id)] == [True, False]
        assert once(writer, event_id, wait=False) is False

    def test_a_rollback_takes_the_mark_back(
        self, database: Any, connect: Connect, event_id: str
    ) -> None:
        first, second = connect(), connect()
        assert once(first, event_id)
        first.rollback()
        assert marks(database, event_id) == 0
        assert once(second, event_id)

    def test_a_savepoint_takes_its_mark_with_it(
        self, database: Any, writer: Writer, event_id: str
    ) -> None:
        writer.savepoint()
        assert once(writer, event_id)
        writer.rollback_to_savepoint()
        assert once(writer, event_id)
        writer.commit()
        assert marks(database, event_id) == 1

    def test_what_the_body_raises_takes_the_mark_back_even_if_the_rest_is_committed(
        self, database: Any, writer: Writer, event_id: str
    ) -> None:
        delivery = Delivery(writer, event_id)
        assert delivery.enter()
        delivery.leave(ZeroDivisionError())
        writer.execute(INSERT.format(event_id))
        writer.commit()
        assert (marks(database, event_id), effects(database, event_id)) == (0, 1)

    def test_what_a_duplicates_body_raises_leaves_the_mark(
        self, database: Any, connect: Connect, event_id: str
    ) -> None:
        first, second = connect(), connect()
        assert once(first, event_id)
        first.commit()
        delivery = Delivery(second, event_id)
        assert not delivery.enter()
        delivery.leave(ZeroDivisionError())
        second.commit()
        assert marks(database, event_id) == 1

    def test_a_transaction_that_has_failed_speaks_for_itself(
        self, database: Any, writer: Writer, event_id: str
    ) -> None:
        delivery = Delivery(writer, event_id)
        assert delivery.enter()
        with pytest.raises(Exception, match="nowhere") as failed:
            writer.execute("SELECT 1 FROM nowhere")
        delivery.leave(failed.value)
        commit_if_possible(writer)
        assert marks(database, event_id) == 0

    def test_nobody_takes_back_another_ones_mark(
        self, database: Any, connect: Connect, event_id: str
    ) -> None:
        first, second = connect(), connect()
        delivery = Delivery(first, event_id)
        assert delivery.enter()
        first.rollback()
        assert once(second, event_id)
        second.commit()
        delivery.leave(ZeroDivisionError())
        commit_if_possible(first)
        assert marks(database, event_id) == 1

    @pytest.mark.parametrize("first_commits", [True, False])
    def test_a_concurrent_duplicate_waits_for_the_outcome(
        self, database: Any, connect: Connect, event_id: str, first_commits: bool
    ) -> None:
        first, second = connect(), connect()
        assert once(first, event_id)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(once, second, event_id)
            database.await_blocked()
            assert not waiting.done()
            if first_commits:
                first.commit()
            else:
                first.rollback()
            assert waiting.result(60) is not first_commits
        second.commit()
        assert marks(database, event_id) == 1

    def test_without_waiting_it_is_in_progress_and_the_transaction_goes_on(
        self, database: Any, connect: Connect, event_id: str
    ) -> None:
        first, second = connect(), connect()
        if isinstance(database, SqliteDatabase):
            second.execute("PRAGMA busy_timeout = 0")
        assert once(first, event_id)
        with pytest.raises(InProgress, match=event_id) as refused:
            once(second, event_id, wait=False)
        assert "\n" not in str(refused.value)
        second.execute("SELECT 1")
        first.rollback()
        assert once(second, event_id, wait=False) is True
        second.commit()
        assert marks(database, event_id) == 1

    def test_a_handle_in_autocommit_mode_is_refused(
        self, database: Any, connect: Connect, event_id: str
    ) -> None:
        with pytest.raises(NotInTransaction) as refused:
            once(connect(autocommit=True), event_id)
        assert "so the mark would not be rolled back with your data: " in str(refused.value)
        assert marks(database, event_id) == 0

    def test_the_wrong_form_names_the_right_one(self, writer: Writer, event_id: str) -> None:
        delivery = Inbox("billing").once(handle_of(writer), event_id)
        if isinstance(writer, AsyncWriter):
            with pytest.raises(InvalidHandle, match=r"use `async with inbox\.once\(…\)`"):
                delivery.__enter__()
        else:
            with pytest.raises(InvalidHandle, match=r"use `with inbox\.once\(…\)`"):
                asyncio.run(delivery.__aenter__())

    def test_consumers_and_ids_are_told_apart_to_the_byte(
        self, database: Any, writer: Writer, event_id: str
    ) -> None:
        letters = ("a", "A", "a ", " a", "ä", "a\u0308", "😀" * 200, "%s ? $1 :id \\ ' \"")
        for text in letters:
            assert once(writer, f"{event_id}{text}")
            assert once(writer, event_id, consumer=text)
        for text in letters:
            assert not once(writer, f"{event_id}{text}")
            assert not once(writer, event_id, consumer=text)
        writer.rollback()

    # --- begin and complete -------------------------------------------------------------------

    @pytest.fixture
    def added(self, connect: Connect) -> str:
        writer = connect()
        (event_id,) = writer.add(Event("Order", "42", "OrderPaid", {}))
        writer.commit()
        return str(event_id)

    def test_what_is_completed_is_completed_with_the_transaction(
        self, database: Any, connect: Connect, added: str
    ) -> None:
        first, second = connect(), connect()
        assert begin(first, added) == "open"
        complete(first, added)
        assert status(database, added) == ("pending", False)
        first.commit()
        assert status(database, added) == ("pending", True)
        assert begin(second, added) == "completed"

    def test_what_is_rolled_back_is_open_again(
        self, database: Any, connect: Connect, added: str
    ) -> None:
        first, second = connect(), connect()
        assert begin(first, added) == "open"
        complete(first, added)
        first.rollback()
        assert status(database, added) == ("pending", False)
        assert begin(second, added) == "open"

    @pytest.mark.parametrize("ending", ["completes", "commits", "rolls back"])
    @pytest.mark.parametrize("begun_before", [True, False])
    def test_who_begins_waits_for_who_has_begun(
        self, database: Any, connect: Connect, added: str, ending: str, begun_before: bool
    ) -> None:
        first, second = connect(), connect()
        if begun_before:
            before = connect()
            assert begin(before, added) == "open"
            before.commit()
        assert begin(first, added) == "open"
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(begin, second, added)
            database.await_blocked()
            assert not waiting.done()
            if ending == "completes":
                complete(first, added)
            if ending == "rolls back":
                first.rollback()
            else:
                first.commit()
            assert waiting.result(60) == ("completed" if ending == "completes" else "open")

    def test_an_event_that_is_not_there_is_unknown(self, writer: Writer) -> None:
        missing = uuid4()
        with pytest.raises(UnknownEvent, match=rf"{missing} is not in outbox_event"):
            begin(writer, missing)
        writer.execute("SELECT 1")

    def test_only_what_was_begun_can_be_completed_and_only_once(
        self, writer: Writer, added: str
    ) -> None:
        with pytest.raises(NotOpen, match="was not begun"):
            complete(writer, added)
        assert begin(writer, added) == "open"
        complete(writer, added)
        with pytest.raises(NotOpen, match="completed already"):
            complete(writer, added)

    def test_begin_and_complete_want_a_transaction(self, connect: Connect, added: str) -> None:
        writer = connect(autocommit=True)
        for call in (begin, complete):
            with pytest.raises(NotInTransaction, match="so the completion would not be rolled"):
                call(writer, added)
