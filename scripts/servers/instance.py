"""One server of this clone: its directory, its ports, and the process that we started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from servers import all_servers
from servers.machine import (
    CACHE,
    Failed,
    birth,
    can_use,
    family,
    free_port,
    is_free,
    lock,
    primary_group,
    server_user,
)

SERVICES = Path(__file__).resolve().parents[2] / ".services"
START_SECONDS = 60
STOP_SECONDS = 30


class Instance:
    """`kafka`, or with a name of its own `kafka@faults`: the same server once more."""

    def __init__(self, name: str) -> None:
        kind, _, self.variant = name.partition("@")
        servers = all_servers()
        if kind not in servers or "/" in name:
            raise Failed(f"no server {name!r}: there are {', '.join(servers)}, and e.g. kafka@mine")
        self.name = name
        self.server = servers[kind]
        self.directory = SERVICES / name
        self.log = self.directory / "log"
        self._state_file = self.directory / "state.json"

    @property
    def state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._state_file.read_text())
        except FileNotFoundError:
            return {}
        return state

    @property
    def home(self) -> Path:
        return Path(self.state["home"])

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def user(self) -> str | None:
        """The account that owns the data, where it is not ours."""
        user: str | None = self.state["user"]
        return user

    @property
    def ports(self) -> dict[str, int]:
        ports: dict[str, int] = self.state["ports"]
        return ports

    @property
    def port(self) -> int:
        return self.ports["port"]

    @property
    def pid(self) -> int:
        pid: int = self.state["pid"]
        return pid

    @property
    def url(self) -> str:
        return self.server.url(self)

    def exists(self) -> bool:
        return self._state_file.exists()

    def is_running(self) -> bool:
        """Whether the very process that we started is alive."""
        state = self.state
        return "pid" in state and birth(state["pid"]) == state["birth"]

    def must_run(self) -> None:
        if not self.is_running():
            raise Failed(f"{self.name} is not running: see `scripts/services status`")

    def up(self) -> None:
        """Install, create and start, as far as that is still to be done."""
        with self._locked():
            if self.is_running():
                return
            with lock(CACHE / "install.lock"):
                self.server.install()
            if not self.exists() or not self.home.exists():
                self._create()
            elif not all(is_free(port) for port in self.ports.values()):
                self._remember(ports=self._new_ports())
            self._start()

    def start(self) -> None:
        """Start again, on the same port with the same data."""
        with self._locked():
            if not self.exists():
                raise Failed(f"{self.name} was never up: run `scripts/services up {self.name}`")
            if not self.is_running():
                self._start()

    def stop(self, kill: bool = False) -> None:
        """Stop, keeping port and data; `kill` gives the server no chance to clean up."""
        with self._locked():
            self._stop(kill)

    def send(self, signal_: signal.Signals) -> None:
        """Signal the server and its children."""
        self.must_run()
        for pid in family(self.pid):
            with suppress(ProcessLookupError):  # children may end meanwhile
                os.kill(pid, signal_)

    def down(self) -> None:
        """Stop, and remove every trace."""
        with self._locked():
            if self.exists():
                self._stop()
                shutil.rmtree(self.home, ignore_errors=True)
            shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with lock(SERVICES / f"{self.name}.lock"):
            yield

    def _create(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        home = self.directory
        user = server_user() if self.server.unprivileged else None
        if not can_use(home, user):  # such as a clone in root's home
            home = Path(tempfile.mkdtemp(prefix=f"commitrelay-{self.name}-"))
            home.chmod(0o755)
        self._remember(home=str(home), user=user, ports=self._new_ports())
        try:
            self.data.mkdir(mode=0o700)
            if user is not None:
                shutil.chown(self.data, user, primary_group(user))
            self.server.create(self)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _new_ports(self) -> dict[str, int]:
        return {name: free_port() for name in self.server.ports}

    def _start(self) -> None:
        self.server.prepare(self)
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self.server.command(self),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                start_new_session=True,
                user=self.user,
                group=primary_group(self.user),
                extra_groups=None if self.user is None else [],
            )
        self._remember(pid=process.pid, birth=birth(process.pid))
        try:
            self._await_ready(process)
        except BaseException:  # Ctrl-C among them: what runs is ready
            self._stop(kill=True)
            raise

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.server.is_ready(self):
            if process.poll() is not None:
                raise Failed(f"{self.name} ended while starting:\n{self._last_lines()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} not ready in {START_SECONDS} s:\n{self._last_lines()}")
            time.sleep(0.05)

    def _stop(self, kill: bool = False) -> None:
        if not self.is_running():
            return
        self.send(signal.SIGCONT)
        if kill:
            self.send(signal.SIGKILL)
        else:
            os.kill(self.pid, self.server.stop_signal)
        if not self._has_ended():
            self.send(signal.SIGKILL)
            self._has_ended()

    def _has_ended(self) -> bool:
        deadline = time.monotonic() + STOP_SECONDS
        while self.is_running():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _remember(self, **facts: Any) -> None:
        scratch = self._state_file.with_suffix(".new")
        scratch.write_text(json.dumps(self.state | facts, indent=2))
        scratch.replace(self._state_file)

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
