"""`commitrelay demo`: see it work."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import asdict
from threading import Event as Signal

from commitrelay import logs
from commitrelay.cli.command import FAILURE, JSON, OK, Command, Option, Request
from commitrelay.cli.output import print_json
from commitrelay.cli.signals import interrupting
from commitrelay.cli.style import BOLD, GREEN, RED, Style
from commitrelay.kinds import Integer, Number, Text

SECONDS_WITHOUT_TERMINAL = 20.0
EVENTS_PER_SECOND = 2000


def run(request: Request) -> int:
    from commitrelay.demo import view  # noqa: PLC0415
    from commitrelay.demo.stage import Script, Stage  # noqa: PLC0415

    options = request.options
    quiet = request.json or not sys.stdout.isatty()
    script = Script(
        database=options["database"],
        publish=options["publish"],
        directory=options["directory"],
        seconds=options["seconds"] or (SECONDS_WITHOUT_TERMINAL if quiet else None),
        events_per_second=options["rate"],
        writers=options["writers"],
    )
    logs.set_up("warning", "auto")
    with Stage(script) as stage, _interrupt(stage.finish):
        title = f"orders on {stage.database_title}, events to {stage.topic_title}"
        with view.choose(title, script.writers, quiet=quiet) as shown:
            report = stage.play(shown.show)
        kept = stage.kept
    if quiet:
        print_json(asdict(report))
    else:
        style = Style()
        *facts, verdict = view.summary(report).splitlines()
        print("\n".join(facts))
        print(style(verdict, BOLD, GREEN if report.ok else RED))
        for noun, url in kept.items():
            print(f"Kept {noun}: {url}")
    return OK if report.ok else FAILURE


def _interrupt(finish: Signal) -> AbstractContextManager[None]:
    """The first Ctrl-C or SIGTERM ends the demo with its result, the second one at once."""

    def handle() -> None:
        if finish.is_set():
            raise KeyboardInterrupt
        finish.set()

    return interrupting(handle)


COMMAND = Command(
    name="demo",
    summary="See it work: writers, relay and consumer, checked live.",
    description="""
        Runs an order service with several writer threads, a relay, and a consumer that checks
        every event: nothing lost, nothing twice, nothing out of order, nothing of a transaction
        that rolled back. On SQLite and files by default, so nothing has to be installed.

        On a terminal it runs until Ctrl-C and shows a live view; on a pipe it prints one JSON
        object. Exit code 1 if anything was wrong. It works in tables and topics of its own,
        removes them at the end, and reads no settings.
    """,
    run=run,
    options=(
        Option(
            "--seconds",
            "How long to write; default: until Ctrl-C, or 20 without a terminal.",
            Number(0.1, 86400.0, "N"),
        ),
        Option("--writers", "Threads that write.", Integer(1, 64), default=4),
        Option(
            "--rate",
            "Events that they add per second; 0: as many as they can.",
            Integer(0, 1_000_000),
            default=EVENTS_PER_SECOND,
        ),
        Option(
            "--database",
            "Write to this database instead: postgresql://…, mysql://… or sqlite:///….",
            Text("URL"),
        ),
        Option(
            "--publish",
            "Publish there instead: kafka://…, amqp://…, nats://…, redis://… or file:///….",
            Text("URL"),
        ),
        Option(
            "--directory",
            "Keep database and topics in a new folder of this directory.",
            Text("PATH"),
        ),
        JSON,
    ),
    examples=(
        ("watch it", "commitrelay demo"),
        ("as a check", "commitrelay demo --seconds 10 --json"),
        (
            "on real servers",
            "commitrelay demo --database postgresql://localhost/test "
            "--publish kafka://localhost:9092",
        ),
    ),
)
