"""sd_notify: tells systemd that the daemon is ready, alive, or about to stop (Type=notify)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Systemd:
    """Speaks to whoever started the process, if it asked for that; otherwise does nothing."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._watchdog_seconds = _watchdog_seconds(environ)

    def ready(self, status: str) -> None:
        self._notify(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._notify("STOPPING=1\nSTATUS=finishing what is in flight")

    async def watch(self) -> None:
        """Say now and then that the event loop turns; systemd restarts a process that does not."""
        if self._watchdog_seconds is None:
            return
        while True:
            self._notify("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / 3)

    def _notify(self, state: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.setblocking(False)
            link.connect(address)
            link.send(state.encode())


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """How long systemd waits for a sign of life, if it was told to, and waits for this process."""
    text = environ.get("WATCHDOG_USEC", "")
    wanted_of = environ.get("WATCHDOG_PID") or str(os.getpid())
    if not environ.get("NOTIFY_SOCKET") or not text.isdigit() or int(text) == 0:
        return None
    return int(text) / 1e6 if wanted_of == str(os.getpid()) else None
