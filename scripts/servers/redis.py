"""Redis with an append-only file: the machine's own, else from apt."""

from __future__ import annotations

import shutil
import signal
import socket
from contextlib import closing
from pathlib import Path

from servers import Server
from servers.instance import Instance
from servers.machine import CACHE, Unavailable, apt_install

LINK = CACHE / "redis" / "redis-server"


class Redis(Server):
    # A cluster's bus would be 10,000 above the port, where connections come from.
    ports = ("port", "bus_port")
    unprivileged = False
    stop_signal = signal.SIGTERM

    def install(self) -> None:
        if binary() is not None:
            return
        # Debian's redis-server starts one for the whole machine. The server itself is in
        # redis-tools as well, where it goes by the name of redis-check-rdb.
        apt_install("redis-tools")
        check = shutil.which("redis-check-rdb")
        if check is None:
            raise Unavailable("redis-tools is here, but without redis-check-rdb: install Redis")
        LINK.parent.mkdir(parents=True, exist_ok=True)
        LINK.unlink(missing_ok=True)
        LINK.symlink_to(check)

    def create(self, instance: Instance) -> None:
        pass

    def prepare(self, instance: Instance) -> None:
        pass

    def command(self, instance: Instance) -> list[str]:
        found = binary()
        assert found is not None, "installed before it is used"
        settings = {
            "port": instance.port,
            "bind": "127.0.0.1",
            "dir": instance.data,
            "appendonly": "yes",
            "save": "",
        }
        # A file beside the data adds to that: tests put TLS, users and limits there.
        extra = instance.home / "redis.conf"
        arguments = [str(extra)] if extra.exists() else []
        for name, value in settings.items():
            arguments += [f"--{name}", str(value)]
        return [str(found), *arguments]

    def is_ready(self, instance: Instance) -> bool:
        try:
            with closing(socket.create_connection(("127.0.0.1", instance.port), 1)) as client:
                client.settimeout(1)
                client.sendall(b"PING\r\n")
                return client.recv(5) in (b"+PONG", b"-NOAU")  # else it is loading its data
        except OSError:
            return False

    def url(self, instance: Instance) -> str:
        return f"redis://127.0.0.1:{instance.port}"


def binary() -> Path | None:
    if on_path := shutil.which("redis-server"):
        return Path(on_path)
    return LINK if LINK.exists() else None
