"""`commitrelay doctor`: look for what goes wrong in practice."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from commitrelay.cli.command import FAILURE, JSON, OK, Command, Option, Request
from commitrelay.cli.output import plain, print_json
from commitrelay.cli.style import DIM, GREEN, RED, YELLOW, Style, width
from commitrelay.configuration import parsed
from commitrelay.errors import ConfigError
from commitrelay.kinds import Choice, Duration, Listing, Text

if TYPE_CHECKING:
    from commitrelay.doctor import Patient, Report

LONG_SECONDS = 300.0


def run(request: Request) -> int:
    from commitrelay.doctor import CHECKS, Patient, examine  # noqa: PLC0415

    names = tuple(check.name for check in CHECKS)
    chosen = [parsed(Choice(names), word, "--check") for word in request.options["check"]]
    patient = Patient(request.settings, long_seconds=request.options["long"])
    checks = [check for check in CHECKS if not chosen or check.name in chosen]
    reports = asyncio.run(examine(patient, checks))
    if not reports:
        raise ConfigError(f"{', '.join(chosen)}: nothing to look at here with these settings")
    if request.json:
        print_json({"healthy": _healthy(reports), "checks": [_as_json(each) for each in reports]})
    else:
        print(_text(reports, patient))
    return OK if _healthy(reports) else FAILURE


def _healthy(reports: Sequence[Report]) -> bool:
    return not any(report.findings or report.unknown for report in reports)


def _as_json(report: Report) -> dict[str, object]:
    return {
        "check": report.check.name,
        "about": report.check.about,
        "findings": [asdict(finding) for finding in report.findings],
        "unknown": report.unknown,
    }


def _text(reports: Sequence[Report], patient: Patient) -> str:
    style = Style()
    lines = []
    for report in reports:
        name = f"{report.check.name:<18}"
        if report.unknown is not None:
            lines.append(f"{style('?', YELLOW)} {name} could not look: {plain(report.unknown)}")
        elif not report.findings:
            lines.append(f"{style('✓', GREEN)} {name} {style(report.check.about, DIM)}")
        for finding in report.findings:
            lines += [
                f"{style('✗', RED)} {name} " + _folded(finding.problem),
                " " * 21 + _folded("→ " + finding.remedy),
            ]
    found = sum(len(report.findings) for report in reports)
    lines += ["", _summary(found)]
    if not patient.lanes:
        lines.append("No broker was looked at: pass --publish URL, or a settings file.")
    return "\n".join(lines)


def _summary(found: int) -> str:
    if not found:
        return "Nothing found."
    return "1 problem found." if found == 1 else f"{found} problems found."


def _folded(text: str) -> str:
    return ("\n" + " " * 21).join(textwrap.wrap(plain(text), max(40, width() - 22)))


COMMAND = Command(
    name="doctor",
    summary="Look for what goes wrong in practice.",
    description="""
        Checks database, brokers and settings for what is known to go wrong, and says for each
        thing that it finds what to do. It changes nothing in the database and sends no event. Give
        it the settings of the relay: the same file, the same environment. Exit code 1 if something
        was found, or could not be looked at.
    """,
    run=run,
    options=(
        Option(
            "--check",
            "Only these checks.",
            Listing(Text("NAME"), "NAME,…"),
            default=(),
            default_text="",
        ),
        Option(
            "--long", "A transaction that is older is too old.", Duration(), default=LONG_SECONDS
        ),
        JSON,
    ),
    examples=(
        ("with the settings of the relay", "commitrelay doctor --config relay.toml"),
        ("one thing only", "commitrelay doctor --check long-transactions --long 10m"),
    ),
    usage="--database URL [--publish URL]",
)
