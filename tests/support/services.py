"""Servers of a test's own, started and broken through scripts/services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "services"


class Unavailable(Exception):
    """The server cannot run on this machine; the message is what scripts/services said."""


def services(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(done.stderr.strip())
    return done.stdout.strip()


def url_of(kind: str) -> str | None:
    """From the environment, else the one that `scripts/services up` has started."""
    variable = f"COMMITRELAY_{kind.upper()}_URL"
    if variable not in os.environ:
        try:
            os.environ[variable] = services("url", kind)  # the workers of pytest-xdist inherit it
        except Unavailable:
            return None
    return os.environ[variable]


class DedicatedServer:
    """A server that one test has to itself, so that it may stop, kill or freeze it.

    `kind` is a name that scripts/services knows; `owner` tells it from the other instances.
    """

    def __init__(self, kind: str, owner: str) -> None:
        self.name = f"{kind}@{owner}"
        services("up", self.name)
        self.url = services("url", self.name)

    def stop(self) -> None:
        services("stop", self.name)

    def kill(self) -> None:
        services("kill", self.name)

    def start(self) -> None:
        """Returns when it serves again, at the same URL with the same data."""
        services("start", self.name)

    def pause(self) -> None:
        """Its connections stay open and nothing answers."""
        services("pause", self.name)

    def resume(self) -> None:
        services("resume", self.name)

    def configure(self, file: str, text: str) -> None:
        """Write a file beside its data, and restart it with that."""
        (Path(self._state["home"]) / file).write_text(text)
        self.stop()
        self.start()

    def port(self, name: str) -> int:
        """One of the ports that were reserved for it."""
        port: int = self._state["ports"][name]
        return port

    @property
    def _state(self) -> dict[str, Any]:
        path = SCRIPT.parent.parent / ".services" / self.name / "state.json"
        state: dict[str, Any] = json.loads(path.read_text())
        return state

    def remove(self) -> None:
        services("down", self.name)
