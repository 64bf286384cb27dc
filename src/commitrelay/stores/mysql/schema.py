"""Schema: creates and migrates the outbox, with a trigger where the account may have one."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

from asyncmy import errors as mysql

from commitrelay.errors import StoreUnreachable
from commitrelay.sql import Names, queries, read
from commitrelay.stores.migration import migrations
from commitrelay.stores.mysql.link import Link, send

MAY_NOT_CREATE_TRIGGER = frozenset({1142, 1227, 1419})
"""TRIGGER denied; SUPER or another right denied; no SUPER, and the binary log is on."""

_log = logging.getLogger(__name__)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


async def version(link: Link, names: Names) -> int:
    """The number of the newest migration; 0 if there is no outbox."""
    async with link.use() as connection:
        return await _version(connection, names)


async def initialise(link: Link, names: Names, where: str) -> Sequence[str]:
    """Create or migrate; the names of the migrations that were applied.

    MySQL commits each change of the schema at once, so all of them may be run again.
    """
    lock = (queries("mysql", names)["lock_schema"], {"name": f"commitrelay {names.key}"[:64]})
    unlock = (queries("mysql", names)["unlock_schema"], lock[1])
    async with link.use() as connection:
        ((got,),) = (await send(connection, [lock]))[0].rows
        if not got:
            raise StoreUnreachable(f"another process has been initialising {where} for 30 s")
        try:
            return await _initialise(connection, names, where)
        finally:
            await send(connection, [unlock])


async def _initialise(connection: Any, names: Names, where: str) -> Sequence[str]:
    found = await _version(connection, names)
    pending = [step for step in migrations("mysql") if step.number > found]
    fresh = [read("mysql", "schema.sql")]
    for script in fresh if found == 0 else [step.sql for step in pending]:
        for statement in statements(names.fill(script, "mysql")):
            if "CREATE TRIGGER" not in statement:
                await send(connection, [(statement, {})])
    await _settle_who_enqueues(connection, names, where)
    record = queries("mysql", names)["record_migration"]
    for step in pending:
        await send(connection, [(record, {"number": step.number, "name": step.name})])
    return [step.name for step in pending]


async def _settle_who_enqueues(connection: Any, names: Names, where: str) -> None:
    """The trigger, if we may create it; else the log takes events only from who enqueues them."""
    sql = queries("mysql", names)
    table = {"schema": names.schema, "table": names.bare("event")}
    by_writer = bool((await send(connection, [(sql["writer_enqueues"], table)]))[0].rows)
    schema = statements(names.fill(read("mysql", "schema.sql"), "mysql"))
    (trigger,) = (text for text in schema if "CREATE TRIGGER" in text)
    try:
        await send(connection, [(trigger, {})])
    except mysql.MySQLError as error:
        if error.args[0] not in MAY_NOT_CREATE_TRIGGER:
            raise
        if not by_writer:
            await send(connection, [(sql["make_writer_enqueue"], {})])
        _log.warning(
            "this account may not create a trigger in %s (%s): Outbox.add fills the queue, for "
            "which it needs INSERT on the queue and SELECT on log and lanes; a plain INSERT into "
            "the log is refused until init is run again by an account that may",
            where,
            error.args[-1],
        )
    else:
        if by_writer:
            await send(connection, [(sql["let_trigger_enqueue"], {})])


async def _version(connection: Any, names: Names) -> int:
    sql = queries("mysql", names)
    table = {"schema": names.schema, "table": names.bare("migration")}
    if not (await send(connection, [(sql["migration_table_exists"], table)]))[0].rows:
        return 0
    ((found,),) = (await send(connection, [(sql["schema_version"], {})]))[0].rows
    return int(found)


def statements(script: str) -> Iterator[str]:
    """The statements of a script: each ends with a semicolon at the end of a line."""
    for part in _COMMENT.sub("", script).split(";\n"):
        if part.strip():
            yield part.strip().rstrip(";")
