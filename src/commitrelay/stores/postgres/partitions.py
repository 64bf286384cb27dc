"""Partitions: the log by days, made ahead and dropped when every event in them is settled.

An id that is a uuid v7 begins with its time in milliseconds, so a day is a range of ids. All other
ids go to one partition for the rest, which is purged row by row. What needs a lock that writers
need waits 100 ms for it at most, and is done another time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg import sql as composed

from commitrelay.errors import ConfigError
from commitrelay.sql import Names, read

DAYS_AHEAD = 7
_GLOBAL_INDEX = re.compile(r"CREATE UNIQUE INDEX IF NOT EXISTS @@event_idempotency[^;]*;")
_DAY = re.compile(r"_p(\d{8})$")
_CREATE = ("drop_log", "create_partitioned_log", "create_rest", "index_seq", "index_idempotency")
_FORGET = ("forget_attempts", "forget_edits", "forget_acts", "forget_completions")

logger = logging.getLogger("commitrelay.partitions")


class Partitions:
    """The partitions of one outbox's log."""

    def __init__(self, sql: dict[str, str], names: Names) -> None:
        self._sql = sql
        self._names = names

    async def exist(self, connection: AsyncConnection[Any]) -> bool:
        return bool((await self._row(connection, "is_partitioned"))[0])

    async def create(self, connection: AsyncConnection[Any]) -> bool:
        """Give a new outbox a log in partitions; False if it has one."""
        async with connection.transaction():
            await connection.execute(self._sql["lock_schema"], {"outbox": self._names.key})
            if await self.exist(connection):
                return False
            if not (await self._row(connection, "log_is_empty"))[0]:
                raise ConfigError(
                    "the log has events already, and only a new one can be partitioned: "
                    "use another --table-prefix or --schema, and drain the old outbox"
                )
            for step in _CREATE:
                await self._run(connection, step)
            rest_of_schema = _GLOBAL_INDEX.sub("", read("postgres", "schema.sql"))
            await connection.execute(composed.SQL(self._names.fill(rest_of_schema)))
        return True

    async def make_ahead(
        self, connection: AsyncConnection[Any], *, with_today: bool = False
    ) -> int:
        """Partitions for the days to come that have none; how many were made."""
        (today,) = await self._row(connection, "today")
        there = {day for day, _ in await self._days(connection)}
        wanted = [today + timedelta(days=n) for n in range(0 if with_today else 1, DAYS_AHEAD + 1)]
        made = 0
        for day in wanted:
            if day not in there:
                made += await self._make(connection, day)
        return made

    async def drop_settled(
        self, connection: AsyncConnection[Any], older_than_seconds: float
    ) -> int:
        """Drop partitions whose events are all old and settled; how many events went."""
        (today,) = await self._row(connection, "today")
        last = today - timedelta(seconds=older_than_seconds) - timedelta(days=1)
        dropped = 0
        for day, name in await self._days(connection):
            if day <= last:
                dropped += await self._drop(connection, name, older_than_seconds)
        return dropped

    async def _days(self, connection: AsyncConnection[Any]) -> list[tuple[date, str]]:
        rows = await (await connection.execute(self._sql["partitions"])).fetchall()
        found = ((_DAY.search(name), name) for (name,) in rows)
        return [
            (datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date(), name)
            for match, name in found
            if match
        ]

    async def _make(self, connection: AsyncConnection[Any], day: date) -> int:
        filled = self._fields(self._names.bare(f"event_p{day:%Y%m%d}"), day)
        try:
            async with connection.transaction():
                await self._run(connection, "be_brief")
                await self._run(connection, "create_partition", filled)
                await self._run(connection, "attach_partition", filled)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DuplicateTable):
            return 0  # another time, or somebody else has made it
        except psycopg.errors.CheckViolation:
            logger.warning("no partition for %s: the rest has ids of that day", day)
            return 0
        return 1

    async def _drop(
        self, connection: AsyncConnection[Any], name: str, older_than_seconds: float
    ) -> int:
        filled = self._fields(name)
        values = {"older_than_seconds": older_than_seconds}
        try:
            _, largest, count, is_settled = await self._row(
                connection, "partition_span", filled, values
            )
            if not is_settled:
                return 0
            async with connection.transaction():
                await self._run(connection, "be_brief")
                await self._run(connection, "lock_log")
                await self._run(connection, "lock_partition", filled)
                (end,) = await self._row(connection, "partition_end", filled)
                if end != largest:
                    return 0  # somebody has added to it meanwhile
                for step in (*_FORGET, "detach_partition", "drop_partition"):
                    await self._run(connection, step, filled)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
            return 0
        logger.info("dropped partition %s with %d events", name, count)
        return int(count)

    def _fields(self, name: str, day: date | None = None) -> dict[str, composed.Composable]:
        schema = self._names.schema
        parts = [name] if schema is None else [schema, name]
        fields: dict[str, composed.Composable] = {"partition": composed.Identifier(*parts)}
        if day is not None:
            fields["first"] = composed.Literal(first_id(day))
            fields["last"] = composed.Literal(first_id(day + timedelta(days=1)))
        return fields

    async def _run(
        self,
        connection: AsyncConnection[Any],
        query: str,
        filled: dict[str, composed.Composable] | None = None,
        values: dict[str, Any] | None = None,
    ) -> Any:
        statement = composed.SQL(self._sql[query]).format(**(filled or {}))
        return await connection.execute(statement, values)

    async def _row(
        self,
        connection: AsyncConnection[Any],
        query: str,
        filled: dict[str, composed.Composable] | None = None,
        values: dict[str, Any] | None = None,
    ) -> Sequence[Any]:
        row: Sequence[Any] = await (await self._run(connection, query, filled, values)).fetchone()
        return row


def first_id(day: date) -> str:
    """The lowest uuid v7 of a day."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    digits = f"{int(midnight.timestamp() * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-0000-0000-000000000000"
