"""Confirm: what a command that deletes or changes asks before it does."""

from __future__ import annotations

import getpass
import os
import socket
import sys

from commitrelay.cli.command import Option, Request

YES = Option(
    "--yes",
    "Do it without asking. Without it a terminal is asked; elsewhere it is a dry run.",
    group="Safety",
)
DRY_RUN = Option("--dry-run", "Only say what would be done.", group="Safety")


def confirmed(request: Request, question: str) -> bool:
    """Whether to go on: --yes, or a person at the terminal says so. Never with --dry-run."""
    if request.options.get("dry_run"):
        return False
    if request.options["yes"]:
        return True
    if request.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def actor() -> str:
    """Who is acting, for the audit: COMMITRELAY_ACTOR, or the account and the machine."""
    chosen = os.environ.get("COMMITRELAY_ACTOR")
    if chosen:
        return chosen
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
