"""The stage: every service, every relay and the checkout as processes that are kept alive.

With ``kill_every`` one of them, at random, is killed with SIGKILL that often, and started again:
what a cluster's scheduler does on a bad day.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import IO, TYPE_CHECKING, NamedTuple

from examples.orders.audit import audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.orders.audit import Audit
    from examples.orders.place import Place

LOOK_SECONDS = 0.5
QUIET_SECONDS = 3.0
"""How long everything runs on after the last order is at its end: a double effect would show."""


class Command(NamedTuple):
    """A Python module with its arguments, and what its environment tells it."""

    words: tuple[str, ...]
    settings: dict[str, str]

    def start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        environment = {f"COMMITRELAY_{name}": value for name, value in self.settings.items()}
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", *self.words],
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )


class Stage:
    """`with Stage(place, orders) as stage: stage.play(show)`."""

    def __init__(
        self,
        place: Place,
        orders: int,
        *,
        kill_every: float | None = None,
        patience: float = 120.0,
        seed: int | None = None,
    ) -> None:
        self.kills: Counter[str] = Counter()
        self._place = place
        self._orders = orders
        self._kill_every = kill_every
        self._patience = patience
        self._random = random.Random(seed)  # noqa: S311
        self._log = (place.directory / "processes.log").open("ab")
        self._commands = _commands(place, orders)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()

    def play(self, show: Callable[[Audit, Counter[str]], None]) -> Audit:
        """Until every order is at its end, or nothing has moved for too long; the last audit."""
        seen = audit(self._place.databases)
        moved_at = time.monotonic()
        kill_at = moved_at + (self._kill_every or 0)
        while seen.right < self._orders and time.monotonic() < moved_at + self._patience:
            self._keep_alive()
            if self._kill_every is not None and time.monotonic() >= kill_at:
                self._kill_one()
                kill_at = time.monotonic() + self._random.uniform(0.5, 1.5) * self._kill_every
            time.sleep(min(LOOK_SECONDS, self._kill_every or LOOK_SECONDS))
            before, seen = seen, audit(self._place.databases)
            if seen != before:
                moved_at = time.monotonic()
            show(seen, self.kills)
            if seen.wrong:
                break
        self._run_on(QUIET_SECONDS)
        return audit(self._place.databases)

    def _run_on(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._keep_alive()
            time.sleep(0.1)

    def _keep_alive(self) -> None:
        for name, command in self._commands.items():
            process = self._running.get(name)
            if process is None or process.poll() not in (None, 0):
                self._running[name] = command.start(self._log)

    def _kill_one(self) -> None:
        alive = [name for name, process in self._running.items() if process.poll() is None]
        name = self._random.choice(alive)
        self._running[name].kill()
        self._running[name].wait()
        self.kills[name] += 1


def _commands(place: Place, orders: int) -> dict[str, Command]:
    """Process name -> what to run. URLs may hold passwords, so they go into the environment."""
    commands = {
        "checkout": Command(
            ("examples.orders.checkout", str(orders)), {"DATABASE": place.databases["orders"]}
        )
    }
    for name, url in place.databases.items():
        # A relay with a name of its own takes its lease up again at once when it is restarted.
        commands[f"{name} relay"] = Command(
            ("commitrelay", "run", "--config", str(place.config), "--relay-name", f"{name}-relay"),
            {"DATABASE": url, "PUBLISH": place.publish},
        )
        commands[f"{name} service"] = Command(
            ("commitrelay", "consume", "--module", f"examples.orders.{name}"),
            {"DATABASE": url, "FROM": place.sources[name]},
        )
    return commands
