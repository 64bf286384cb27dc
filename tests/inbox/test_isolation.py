"""What the inbox promises on each isolation level, to many who wait, and with few rights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from random import Random
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from commitrelay import ConfigError, Event, Inbox, InProgress, InvalidEvent, Outbox
from commitrelay.sql import Names
from tests.support import mariadb
from tests.writing.databases import PostgresDatabase, initialise_postgres
from tests.writing.test_add_mysql import MariadbDatabase

inbox = Inbox("billing")


def first(connection: Any, event_id: str, *, wait: bool = True) -> bool:
    with inbox.once(connection, event_id, wait=wait) as answer:
        return answer


@pytest.fixture
def event_id() -> str:
    return str(uuid4())


# --- PostgreSQL ----------------------------------------------------------------------------

STRICTER = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]


@pytest.mark.parametrize("level", STRICTER)
@pytest.mark.parametrize("wait", [True, False])
def test_an_old_snapshot_never_makes_a_second_effect(
    postgres_outbox: PostgresDatabase, event_id: str, level: psycopg.IsolationLevel, wait: bool
) -> None:
    with (
        psycopg.connect(postgres_outbox.url) as one,
        psycopg.connect(postgres_outbox.url) as other,
    ):
        other.isolation_level = level
        other.execute("SELECT 1 FROM outbox_inbox LIMIT 1")
        assert first(one, event_id)
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            first(other, event_id, wait=wait)
        other.rollback()
        assert first(other, event_id, wait=wait) is False


@pytest.mark.parametrize("level", STRICTER)
def test_begin_with_an_old_snapshot_never_says_open(
    postgres_outbox: PostgresDatabase, level: psycopg.IsolationLevel
) -> None:
    outbox = Outbox()
    with (
        psycopg.connect(postgres_outbox.url) as one,
        psycopg.connect(postgres_outbox.url) as other,
    ):
        (added,) = outbox.add(one, Event("Order", "42", "OrderPaid", {}))
        one.commit()
        other.isolation_level = level
        other.execute("SELECT 1 FROM outbox_completion LIMIT 1")
        assert outbox.begin(one, added) == "open"
        outbox.complete(one, added)
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            outbox.begin(other, added)


def test_a_duplicate_does_not_hold_up_the_next_one(
    postgres_outbox: PostgresDatabase, event_id: str
) -> None:
    with (
        psycopg.connect(postgres_outbox.url) as one,
        psycopg.connect(postgres_outbox.url) as other,
    ):
        assert first(one, event_id)
        one.commit()
        assert not first(one, event_id)
        other.execute("SET LOCAL lock_timeout = '1s'")
        assert not first(other, event_id)
        assert not first(other, event_id, wait=False)


def test_two_inboxes_of_a_database_do_not_wait_for_each_other(postgres_database: str) -> None:
    for prefix in ("one", "two"):
        initialise_postgres(postgres_database, Names(None, prefix))
    with ExitStack() as stack:
        for prefix in ("one", "two"):
            connection = stack.enter_context(psycopg.connect(postgres_database))
            with Inbox("billing", prefix=prefix).once(connection, "1", wait=False) as answer:
                assert answer


def test_rights_on_the_inbox_alone_are_enough(
    postgres_outbox: PostgresDatabase, event_id: str
) -> None:
    role = f"consumer_{uuid4().hex}"
    postgres_outbox.run(
        f"CREATE ROLE {role} LOGIN", f"GRANT SELECT, INSERT, DELETE ON outbox_inbox TO {role}"
    )
    parts = urlsplit(postgres_outbox.url)
    url = parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()
    try:
        with psycopg.connect(url) as connection:
            with pytest.raises(ZeroDivisionError), inbox.once(connection, event_id):
                raise ZeroDivisionError
            assert [first(connection, event_id, wait=wait) for wait in (True, False)] == [
                True,
                False,
            ]
            connection.commit()
    finally:
        postgres_outbox.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_rights_that_begin_and_complete_need(postgres_outbox: PostgresDatabase) -> None:
    role = f"worker_{uuid4().hex}"
    postgres_outbox.run(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT SELECT (id) ON outbox_event TO {role}",
        f"GRANT SELECT, INSERT, UPDATE ON outbox_completion TO {role}",
    )
    with psycopg.connect(postgres_outbox.url) as connection:
        (added,) = Outbox().add(connection, Event("Order", "42", "OrderPaid", {}))
    parts = urlsplit(postgres_outbox.url)
    url = parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()
    try:
        with psycopg.connect(url) as connection:
            assert Outbox().begin(connection, added) == "open"
            Outbox().complete(connection, added)
            assert Outbox().begin(connection, added) == "completed"
    finally:
        postgres_outbox.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# --- MySQL and MariaDB ---------------------------------------------------------------------

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@contextmanager
def session(url: str, level: str = "REPEATABLE READ") -> Iterator[Any]:
    with closing(mariadb.connect(url)) as connection:
        execute(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        connection.commit()
        yield connection


def execute(connection: Any, sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(count) as threads:
        futures = [threads.submit(work, number) for number in range(count)]
        return [future.result(60) for future in futures]


def await_waiting(database: MariadbDatabase, count: int) -> None:
    """Return when so many sessions wait, for the row or for each other."""
    waiting = (
        "SELECT id FROM information_schema.processlist WHERE db = database() "
        "AND id <> connection_id() AND command = 'Query' AND info LIKE '%outbox\\_%'"
    )
    deadline = time.monotonic() + 30
    while len(database.query(waiting)) < count:
        assert time.monotonic() < deadline, "they did not come to wait"
    database.await_blocked()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("commits", [True, False])
def test_many_who_wait_are_no_deadlock_when_the_first_ends(
    mariadb_outbox: MariadbDatabase, event_id: str, level: str, commits: bool
) -> None:
    """Each waiter commits; so exactly one transaction has the effect, whoever it is."""
    with session(mariadb_outbox.url, level) as one:
        assert first(one, event_id)

        def deliver(number: int) -> bool:
            if number == 4:
                await_waiting(mariadb_outbox, 4)
                if commits:
                    one.commit()
                else:
                    one.rollback()
                return False
            with session(mariadb_outbox.url, level) as connection:
                answer = first(connection, event_id)
                connection.commit()
                return answer

        answers = in_threads(5, deliver)
    assert answers.count(True) == (0 if commits else 1)


@pytest.mark.parametrize("level", LEVELS)
def test_many_who_begin_are_no_deadlock_when_the_first_rolls_back(
    mariadb_outbox: MariadbDatabase, level: str
) -> None:
    outbox = Outbox()
    with session(mariadb_outbox.url, level) as one:
        (added,) = outbox.add(one, Event("Order", "42", "OrderPaid", {}))
        one.commit()
        assert outbox.begin(one, added) == "open"

        def work(number: int) -> str:
            if number == 4:
                await_waiting(mariadb_outbox, 4)
                one.rollback()
                return ""
            with session(mariadb_outbox.url, level) as connection:
                answer = outbox.begin(connection, added)
                if answer == "open":
                    outbox.complete(connection, added)
                connection.commit()
                return answer

        answers = in_threads(5, work)
    assert sorted(answers) == ["", "completed", "completed", "completed", "open"]


@pytest.mark.parametrize("wait", [True, False])
def test_neighbouring_ids_are_no_deadlock(mariadb_outbox: MariadbDatabase, wait: bool) -> None:
    """Two marks in each transaction, in the same few gaps of the index, some rolled back.

    The ids of one writer are its own: whatever waits here would wait for a gap.
    """
    start = Barrier(8)
    prefix = uuid4().hex[:8]

    def deliver(seed: int) -> int:
        random = Random(seed)
        with session(mariadb_outbox.url) as connection:
            execute(connection, "SET SESSION innodb_lock_wait_timeout = 5")
            start.wait(60)
            for number in range(40):
                for part in range(2):
                    name = f"{prefix}-{random.randrange(50):02}-{seed}-{number}-{part}"
                    assert first(connection, name, wait=wait)
                if random.random() < 0.3:
                    connection.rollback()
                else:
                    connection.commit()
        return seed

    assert in_threads(8, deliver) == list(range(8))


def test_the_turnstile_and_the_time_out_are_given_back(
    mariadb_outbox: MariadbDatabase, event_id: str
) -> None:
    """Also where the first attempt cannot be made without waiting."""
    patient = Inbox("billing")
    patient._mysql._is_mariadb = False
    with session(mariadb_outbox.url) as one, session(mariadb_outbox.url) as other:
        execute(other, "SET SESSION innodb_lock_wait_timeout = 7")
        with patient.once(one, event_id) as answer:
            assert answer
        with pytest.raises(InProgress), patient.once(other, event_id, wait=False):
            pass
        assert execute(other, "SELECT @@SESSION.innodb_lock_wait_timeout") == ((7,),)
        one.commit()
        for wait in (True, False):
            with patient.once(other, event_id, wait=wait) as answer:
                assert not answer
        assert execute(other, "SELECT @@SESSION.innodb_lock_wait_timeout") == ((7,),)
        name = sha256(f"billing\x1f{event_id}".encode()).hexdigest()
        held = (
            "SELECT is_used_lock(sha2(concat_ws(char(31), database(), '`outbox_inbox`', "
            f"'{name}'), 256))"
        )
        assert execute(other, held) == ((None,),)


@pytest.mark.parametrize("begun_before", [True, False])
def test_an_old_snapshot_does_not_hide_that_an_event_is_completed(
    mariadb_outbox: MariadbDatabase, begun_before: bool
) -> None:
    outbox = Outbox()
    with session(mariadb_outbox.url) as one, session(mariadb_outbox.url) as other:
        (added,) = outbox.add(one, Event("Order", "42", "OrderPaid", {}))
        if begun_before:
            assert outbox.begin(one, added) == "open"
        one.commit()
        found = "SELECT 1 FROM outbox_completion WHERE event_id = '{}' AND completed_at IS NULL"
        assert len(execute(other, found.format(added))) == begun_before
        assert outbox.begin(one, added) == "open"
        outbox.complete(one, added)
        one.commit()
        assert outbox.begin(other, added) == "completed"


@contextmanager
def account(url: str, *grants: str) -> Iterator[Any]:
    """A connection of a new account with these rights."""
    user = f"worker_{uuid4().hex[:12]}"
    hosts = (f"{user}@'%'", f"{user}@localhost")
    name = urlsplit(url).path.strip("/")
    mariadb.run(url, *(f"CREATE USER {host}" for host in hosts))
    for rights, table in (grant.split(" ON ") for grant in grants):
        mariadb.run(url, *(f"GRANT {rights} ON {name}.{table} TO {host}" for host in hosts))
    parts = urlsplit(url)
    own = parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()
    try:
        with closing(mariadb.connect(own)) as connection:
            yield connection
    finally:
        mariadb.run(url, f"DROP USER {', '.join(hosts)}")


def test_rights_of_a_consumers_account(mariadb_outbox: MariadbDatabase, event_id: str) -> None:
    rights = "SELECT, INSERT, DELETE ON outbox_inbox"
    with account(mariadb_outbox.url, rights) as connection:
        with pytest.raises(ZeroDivisionError), inbox.once(connection, event_id):
            raise ZeroDivisionError
        assert first(connection, event_id)
        assert not first(connection, event_id, wait=False)
        connection.commit()


def test_rights_of_a_workflows_account(mariadb_outbox: MariadbDatabase) -> None:
    with session(mariadb_outbox.url) as connection:
        (added,) = Outbox().add(connection, Event("Order", "42", "OrderPaid", {}))
        connection.commit()
    rights = ("SELECT (id) ON outbox_event", "SELECT, INSERT, UPDATE ON outbox_completion")
    with account(mariadb_outbox.url, *rights) as connection:
        assert Outbox().begin(connection, added) == "open"
        Outbox().complete(connection, added)
        assert Outbox().begin(connection, added) == "completed"
        connection.commit()


def test_a_mark_is_the_same_in_every_character_set(
    mariadb_outbox: MariadbDatabase, event_id: str
) -> None:
    for charset, expected in (("utf8mb4", True), ("latin1", False)):
        with session(mariadb_outbox.url) as connection:
            connection.set_character_set(charset)
            assert first(connection, f"{event_id}-ü") is expected
            connection.commit()


# --- what is no id -------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["", "x" * 256, "a\0b", "a\ud800"])
def test_what_no_database_stores_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidEvent, match="event id"):
        inbox.once(object(), wrong)
    with pytest.raises(ConfigError, match="consumer"):
        Inbox(wrong)
