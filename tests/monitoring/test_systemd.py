"""Systemd: ready, alive, stopping, told over a datagram socket."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from commitrelay.systemd import Systemd


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(10)
    return listener


def test_ready_watchdog_stopping(manager: socket.socket, tmp_path: Path) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "120000"}

    async def body() -> None:
        systemd = Systemd({**environ, "WATCHDOG_PID": str(os.getpid())})
        systemd.ready("one lane")
        watching = asyncio.create_task(systemd.watch())
        await asyncio.sleep(0.15)
        watching.cancel()
        systemd.stopping()

    with manager:
        asyncio.run(body())
        assert manager.recv(1000) == b"READY=1\nSTATUS=one lane"
        assert manager.recv(1000) == b"WATCHDOG=1"
        assert manager.recv(1000) == b"WATCHDOG=1"
        rest = [manager.recv(1000)]
        while rest[-1] == b"WATCHDOG=1":
            rest.append(manager.recv(1000))
        assert rest[-1].startswith(b"STOPPING=1")


def test_an_abstract_socket() -> None:
    name = f"commitrelay-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        listener.settimeout(10)
        Systemd({"NOTIFY_SOCKET": "@" + name}).stopping()
        assert listener.recv(1000).startswith(b"STOPPING=1")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "x"},
        {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
def test_nobody_asked(environ: dict[str, str]) -> None:
    systemd = Systemd(environ)
    systemd.ready("x")
    asyncio.run(asyncio.wait_for(systemd.watch(), 10))
    systemd.stopping()
