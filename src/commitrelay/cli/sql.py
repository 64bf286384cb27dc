"""`commitrelay sql`: print the DDL of the outbox."""

from __future__ import annotations

from commitrelay import sql
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.output import print_json
from commitrelay.errors import ConfigError
from commitrelay.kinds import Choice
from commitrelay.registry import dialect_of

DIALECTS = ("postgres", "mysql", "sqlite")


def run(request: Request) -> int:
    settings = request.settings
    dialect = request.options["dialect"]
    if dialect is None:
        if settings.database is None:
            raise ConfigError(f"which SQL? pass --dialect {', '.join(DIALECTS)}, or --database URL")
        dialect = dialect_of(settings.database)
    text = settings.names.fill(sql.read(dialect, "schema.sql"), dialect).rstrip()
    if request.json:
        print_json({"dialect": dialect, "sql": text})
    else:
        print(text)
    return OK


COMMAND = Command(
    name="sql",
    summary="Print the SQL that creates the outbox tables.",
    description="""
        Prints the DDL of a fresh outbox with the schema and prefix filled in, for a migration
        tool or for review. Nothing is connected to; `commitrelay init` runs the same.
    """,
    run=run,
    options=(
        Option("--dialect", "Which SQL; default: that of the database URL.", Choice(DIALECTS)),
        JSON,
    ),
    examples=(
        ("into a file", "commitrelay sql --dialect sqlite | sqlite3 shop.db"),
        ("for review", "commitrelay sql --dialect postgres --schema outbox > outbox.sql"),
    ),
    usage="--dialect NAME",
)
