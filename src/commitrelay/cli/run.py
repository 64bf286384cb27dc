"""`commitrelay run`: the relay."""

from __future__ import annotations

import logging
import sys

from commitrelay import logs
from commitrelay.cli.command import FAILURE, OK, Command, Option, Request
from commitrelay.cli.output import print_json
from commitrelay.cli.style import colourful
from commitrelay.errors import ConfigError
from commitrelay.settings import DECLARATIONS
from commitrelay.urls import redact

logger = logging.getLogger("commitrelay.cli")


def run(request: Request) -> int:
    from commitrelay.daemon import Until, start  # noqa: PLC0415

    settings = request.settings
    if request.options["once"] and request.options["drain"]:
        raise ConfigError("--once and --drain exclude each other: pass one of them")
    until: Until = "stopped"
    if request.options["once"]:
        until = "once"
    elif request.options["drain"]:
        until = "drained"
    logs.set_up(settings.log_level, settings.log_format, colour=colourful(sys.stderr))
    _warn_of_passwords(request)
    totals = start(settings, until=until)
    if request.json:
        print_json(totals.counts)
    return FAILURE if totals.cancelled else OK


def _warn_of_passwords(request: Request) -> None:
    """A relay runs for long, and all the while its flags can be read by everybody (`ps`)."""
    for item in DECLARATIONS:
        typed = request.flags.get(item.name)
        if typed is not None and redact(typed) != typed:
            file = f", {item.flag}-file" if item.name in ("database", "publish") else ""
            logger.warning(
                "%s holds a password that every user of this machine can see in the list of "
                "processes: use %s%s or the settings file", item.flag, item.variable, file,
            )  # fmt: skip


COMMAND = Command(
    name="run",
    summary="Deliver committed events to a broker until stopped.",
    description="""
        Runs a relay: every event that was committed to the outbox is delivered at least once, in
        order per aggregate. Start as many as you like: they share the work, and one that dies is
        replaced by the others. If the database or the broker is down, it waits.

        SIGTERM or Ctrl-C finishes what is at the broker and stops; a second one stops at once.
    """,
    run=run,
    options=(
        Option("--once", "Deliver what is due now, then exit.", group="Run"),
        Option("--drain", "Exit when nothing is left to deliver, retries included.", group="Run"),
        Option("--json", "At the end, print what was done as one JSON object.", group="Output"),
    ),
    examples=(
        (
            "PostgreSQL to Kafka",
            "commitrelay run --database postgresql://shop@localhost/shop "
            "--publish kafka://localhost:9092",
        ),
        (
            "as a job: deliver what there is to files, then exit",
            "commitrelay run --drain --database sqlite:///shop.db --publish file:///var/topics",
        ),
        (
            "a password belongs into the environment or the file",
            "COMMITRELAY_DATABASE=postgresql://… commitrelay run --config relay.toml",
        ),
    ),
    usage="--database URL --publish URL",
)
