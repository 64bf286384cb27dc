"""`commitrelay consume`: a consumer, with the handlers of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from commitrelay import logs
from commitrelay.cli.command import FAILURE, OK, Command, Option, Request
from commitrelay.cli.output import print_json
from commitrelay.cli.style import colourful
from commitrelay.errors import CommitrelayError, ConfigError
from commitrelay.kinds import Text
from commitrelay.sql import Names

if TYPE_CHECKING:
    from commitrelay.consumer import Consumer

FILLED = {
    "from": "source",
    "database": "database",
    "dead_letter": "dead_letter",
    "dead_letter_topic": "dead_letter_topic",
    "group": "group",
}
"""Settings, and the attribute of a consumer that each fills."""


def run(request: Request) -> int:
    from commitrelay.daemon import run_async  # noqa: PLC0415
    from commitrelay.service import Service  # noqa: PLC0415

    settings = request.settings
    if settings.module is None:
        raise ConfigError("no module with handlers: pass --module, such as --module app.handlers")
    logs.set_up(settings.log_level, settings.log_format, colour=colourful(sys.stderr))
    consumers = consumers_of(settings.module, request.options["name"])
    for consumer in consumers:
        fill(consumer, request, is_only=len(consumers) == 1)

    async def main() -> int:
        totals = await Service(consumers, listen_on=settings.metrics_listen).run()
        if request.json:
            print_json(totals.counts)
        stood_still = any(consumer.health().stopped for consumer in consumers)
        return FAILURE if totals.cancelled or stood_still else OK

    code = run_async(main())
    if any(consumer.abandoned for consumer in consumers):
        # Python would wait for the threads of handlers that did not end in time.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(FAILURE)
    return code


def consumers_of(module: str, name: str | None) -> Sequence[Consumer]:
    """The consumers that a module holds, or `module:attribute` alone; by name if one is given."""
    from commitrelay.consumer import Consumer  # noqa: PLC0415

    path, _, attribute = module.partition(":")
    found = vars(_imported(path))
    chosen = [found.get(attribute)] if attribute else found.values()
    consumers = list(dict.fromkeys(each for each in chosen if isinstance(each, Consumer)))
    if not consumers:
        raise ConfigError(
            f"module {module} holds no consumer: write consumer = Consumer('NAME') into it"
        )
    if name is None:
        return consumers
    named = [consumer for consumer in consumers if consumer.name == name]
    if not named:
        names = ", ".join(consumer.name for consumer in consumers)
        raise ConfigError(f"module {module} holds no consumer named {name!r}, but {names}")
    return named


def fill(consumer: Consumer, request: Request, *, is_only: bool) -> None:
    """What flags say holds; what environment and file say fills what the code leaves open."""
    from commitrelay.consumer import ConsumerOptions  # noqa: PLC0415

    settings = request.settings
    values = {
        name: settings.from_ if name == "from" else getattr(settings, name) for name in FILLED
    }
    for name, attribute in FILLED.items():
        typed = request.flags.get(name) is not None
        if typed and name == "from" and not is_only:
            raise ConfigError("--from is for one consumer, the module holds several: pass --name")
        is_open = getattr(consumer, attribute) is None or name == "dead_letter_topic"
        if values[name] is not None and (typed or is_open):
            setattr(consumer, attribute, values[name])
    if consumer.options.inbox_retention_seconds == ConsumerOptions().inbox_retention_seconds:
        retention = settings.inbox_retention
        consumer.options = replace(consumer.options, inbox_retention_seconds=retention)
    if settings.concurrency is not None:
        consumer.options = replace(consumer.options, concurrency=settings.concurrency)
    if request.options["until_idle"]:
        consumer.options = replace(consumer.options, until="idle")
    if consumer.names == Names():
        consumer.place(settings.names)


def _imported(path: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(path)
    except CommitrelayError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (path == error.name or path.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {path}, looked for from {here} on: check --module"
            ) from None
        raise ConfigError(f"module {path} cannot be imported: {error}") from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"module {path} cannot be imported: {type(error).__name__}: {text}"
        ) from error


COMMAND = Command(
    name="consume",
    summary="Handle events from a broker, each once in effect.",
    description="""
        Imports a module, finds the Consumer in it, and runs it: each event is passed, in a
        transaction of your database and through the inbox, to its handler, and is acknowledged
        when that has committed. Start as many as you like: the broker's group shares the work,
        and one that dies is replaced by the others. If the database or the broker is down, it
        waits.

        SIGTERM or Ctrl-C lets running handlers end and stops; a second one stops at once. Exit 1
        if it was cut short, or if a key stands still at the end.
    """,
    run=run,
    options=(
        Option("--name", "Run the consumer of that name only.", Text("NAME"), group="Run"),
        Option("--until-idle", "Exit when all that is there has been handled.", group="Run"),
        Option("--json", "At the end, print what was done as one JSON object.", group="Output"),
    ),
    examples=(
        (
            "the handlers of app/handlers.py",
            "commitrelay consume --from kafka://localhost:9092?topic=order.events "
            "--database postgresql://billing@localhost/billing --module app.handlers",
        ),
        (
            "what fails for good goes to another topic",
            "commitrelay consume --module app.handlers --dead-letter kafka://localhost:9092",
        ),
    ),
    usage="--module MODULE",
)
