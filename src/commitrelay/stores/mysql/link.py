"""Link: one connection to MySQL or MariaDB, opened when needed and again after a failure.

Statements that belong together are sent as one message, which the server runs to its end when it
has all of it: a process that is frozen meanwhile holds no lock.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import asyncmy
from asyncmy import errors as mysql
from asyncmy.constants.CLIENT import MULTI_STATEMENTS

from commitrelay.errors import ConfigError, SchemaMissing, StoreError, StoreUnreachable
from commitrelay.stores.mysql.address import address
from commitrelay.urls import redact, scrub

ANSWER_SECONDS = 30.0
"""A call that takes longer is given up: the database is taken to be out of reach."""

MAX_TRIES = 8
LOCK_WAIT_TIMEOUT, DEADLOCK, CHANGED_SINCE_READ = 1205, 1213, 1020
RETRIED = frozenset({LOCK_WAIT_TIMEOUT, DEADLOCK, CHANGED_SINCE_READ})
NO_TABLE = frozenset({1146, 1054, 1305, 1356})
NO_ENTRY = frozenset({1044, 1045, 1049, 1698})
CLIENT_ERRORS = range(2000, 3000)
LOST = frozenset({1040, 1053, 1077, 1158, 1159, 1160, 1161, 1927, 3169, 4031})

# IN lists must stay ranges of the primary key, and keys are stepped through by recursion. A session
# that is idle in a transaction ends, in case that a process is frozen while it reads ahead.
SESSION = """
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = 3, wait_timeout = 28800,
    sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
    group_concat_max_len = 4194304, sql_notes = 0
    /*M!100601 , in_predicate_conversion_threshold = 0, max_recursive_iterations = 4294967295,
      idle_transaction_timeout = 10 */
    /*!80001 , cte_max_recursion_depth = 4294967295 */
"""

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")

Step = tuple[str, Mapping[str, Any]]


class Result(NamedTuple):
    """What one statement of several answered."""

    rows: Sequence[Any]
    changed: int


class Link:
    """One lazily opened connection in autocommit mode."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._address = address(url)
        self._connection: Any = None
        self._lock = asyncio.Lock()

    async def ask(self, text: str, values: Mapping[str, Any] | None = None) -> Result:
        """One statement."""
        async with self.use() as connection:
            return (await send(connection, [(text, values or {})]))[0]

    async def transact(self, steps: Sequence[Step]) -> list[Result]:
        """Several statements as one transaction, again if others were in its way."""
        whole: list[Step] = [("BEGIN", {}), *steps, ("COMMIT", {})]
        async with self.use() as connection:
            for tries_left in reversed(range(MAX_TRIES)):
                try:
                    return (await send(connection, whole))[1:-1]
                except mysql.MySQLError as error:
                    if _code(error) not in RETRIED or not tries_left:
                        raise
                    await send(connection, [("ROLLBACK", {})])
                    await asyncio.sleep(random.uniform(0, 0.02))  # noqa: S311
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def use(self, *, leave_open: bool = False) -> AsyncIterator[Any]:
        """The connection, to one caller at a time; errors are translated.

        A caller that means to leave a transaction open says so; it is dropped otherwise.
        """
        async with self._lock:
            done = False
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    yield await self._connected()
                done = True
            except (mysql.MySQLError, OSError, EOFError) as error:
                if isinstance(error, TimeoutError):
                    raise StoreUnreachable(
                        f"{redact(self._url)} did not answer within {ANSWER_SECONDS:g} s"
                    ) from None
                raise self._translated(error) from None
            finally:
                if not done or not (leave_open or self._is_idle()):
                    self._drop()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(mysql.MySQLError, OSError):
                await connection.ensure_closed()

    async def _connected(self) -> Any:
        if self._connection is None:
            self._connection = await asyncmy.connect(
                **self._address, charset="utf8mb4", autocommit=True, client_flag=MULTI_STATEMENTS
            )
            await send(self._connection, [(text, {}) for text in SESSION.strip().split(";\n")])
        return self._connection

    def _is_idle(self) -> bool:
        return self._connection is None or not self._connection.get_transaction_status()

    def _drop(self) -> None:
        """A failed or cancelled call may leave half an answer behind: start afresh."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _translated(self, error: Exception) -> Exception:
        code = _code(error)
        text = scrub(" ".join(str(part) for part in error.args[-1:])) or type(error).__name__
        text = " ".join(text.split())
        where = redact(self._url)
        if code in NO_TABLE:
            return SchemaMissing(
                f"{where} lacks a part of the outbox ({text}): "
                f"run commitrelay init --database {where}"
            )
        if code in NO_ENTRY:
            return ConfigError(f"{where} refuses this account: {text}")
        is_lost = code in LOST | RETRIED or code in CLIENT_ERRORS
        if is_lost or not (code and isinstance(error, mysql.MySQLError)):
            return StoreUnreachable(f"cannot reach {where}: {text}")
        return StoreError(f"{where} refused a statement: {text}")


async def send(connection: Any, steps: Sequence[Step]) -> list[Result]:
    """Send statements as one message and read all answers."""
    text = ";\n".join(bound(connection, text, values) for text, values in steps)
    results = []
    async with connection.cursor() as cursor:
        await cursor.execute(text)
        for _ in steps:
            rows = await cursor.fetchall() if cursor.description else ()
            results.append(Result(rows, cursor.rowcount))
            await cursor.nextset()
    return results


async def asked(connection: Any, text: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows that a statement answers, by the names of its columns in lower case."""
    async with connection.cursor() as cursor:
        await cursor.execute(bound(connection, text, values))
        columns = [column[0].lower() for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in await cursor.fetchall()]


def bound(connection: Any, text: str, values: Mapping[str, Any]) -> str:
    """The statement with its values filled in as literals."""
    return _PLACEHOLDER.sub(lambda match: _literal(connection, values[match[1]]), text)


def _literal(connection: Any, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (bool, int, float)):
        return repr(int(value) if isinstance(value, bool) else value)
    if isinstance(value, str):
        return str(connection.escape(value))
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return _listed(connection, value)


def _listed(connection: Any, values: Collection[int] | Collection[str]) -> str:
    """The inside of `IN (…)`. No seq, key, bucket or id is -1, so it stands for nothing."""
    quoted = (
        connection.escape(value) if isinstance(value, str) else str(value) for value in values
    )
    return ",".join(quoted) or "-1"


def _code(error: Exception) -> int:
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0
