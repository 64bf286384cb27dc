"""MariaDB: the machine's own, else from apt."""

from __future__ import annotations

import shutil
import signal
import socket
from contextlib import closing
from pathlib import Path

from servers import Server
from servers.instance import Instance
from servers.machine import Unavailable, apt_install, run

DATABASE = "commitrelay"


class Mariadb(Server):
    ports = ("port",)
    unprivileged = True
    stop_signal = signal.SIGTERM

    def install(self) -> None:
        if shutil.which("mariadbd") is None:
            apt_install("mariadb-server")
        if shutil.which("mariadbd") is None:
            raise Unavailable("MariaDB was installed, but its `mariadbd` is not to be found")

    def create(self, instance: Instance) -> None:
        options = ["--no-defaults", f"--datadir={instance.data}", "--skip-test-db"]
        authentication = "--auth-root-authentication-method=normal"
        run(["mariadb-install-db", *options, authentication], user=instance.user)

    def prepare(self, instance: Instance) -> None:
        init_file(instance).write_text(f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n")

    def command(self, instance: Instance) -> list[str]:
        settings = {
            "datadir": instance.data,
            "port": instance.port,
            "bind-address": "127.0.0.1",
            "socket": instance.data / "socket",
            "pid-file": instance.data / "pid",
            "init-file": init_file(instance),
            "max-connections": 300,
            "server-id": 1,
            # With the binary log an account needs more rights to create a trigger.
            "log-bin": "binlog",
            "binlog-format": "ROW",
            "binlog-row-image": "FULL",
            "binlog-row-metadata": "FULL",
            # As with PostgreSQL: safe from the death of any process, not from a power cut.
            "innodb-flush-log-at-trx-commit": 1 if instance.variant == "bench" else 2,
            "sync-binlog": 1 if instance.variant == "bench" else 0,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(shutil.which("mariadbd")), "--no-defaults", *options]

    def is_ready(self, instance: Instance) -> bool:
        """It greets whoever connects, once it serves."""
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            try:
                probe.connect(("127.0.0.1", instance.port))
                return len(probe.recv(5)) == 5
            except OSError:
                return False

    def url(self, instance: Instance) -> str:
        return f"mysql://root@127.0.0.1:{instance.port}/{DATABASE}"


def init_file(instance: Instance) -> Path:
    return instance.home / "init.sql"
