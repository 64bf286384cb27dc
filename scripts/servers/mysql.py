"""Oracle's MySQL, from Debian's unstable packages unpacked beside the system. Only on request.

Debian's stable has MariaDB only. The files stay in one directory and run with the libraries that
came with them; nothing of the system is changed.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from servers.instance import Instance
from servers.machine import Unavailable, apt_install, lock, run
from servers.mariadb import Mariadb, init_file

# Not in the user's cache: the server's own user has to be able to read it.
ROOT = Path("/var/tmp/commitrelay-mysql")


class Mysql(Mariadb):
    stop_signal = signal.SIGTERM

    def install(self) -> None:
        with lock(ROOT.with_suffix(".lock")):
            if (ROOT / "usr/sbin/mysqld").exists():
                return
            if shutil.which("mmdebstrap") is None:
                apt_install("mmdebstrap")
            if shutil.which("mmdebstrap") is None:
                raise Unavailable("MySQL is unpacked by mmdebstrap, which is not to be had here")
            unpacked = ROOT.with_suffix(".unpacking")
            shutil.rmtree(unpacked, ignore_errors=True)
            run(
                [
                    "mmdebstrap",
                    "--variant=essential",
                    "--mode=root",
                    '--aptopt=Acquire::Check-Valid-Until "false"',
                    "--include=mysql-server-core,mysql-client-core",
                    "sid",
                    unpacked,
                ]
            )
            unpacked.rename(ROOT)

    def create(self, instance: Instance) -> None:
        run([*_mysqld(instance), "--initialize-insecure"], user=instance.user)

    def command(self, instance: Instance) -> list[str]:
        settings = {
            "port": instance.port,
            "bind-address": "127.0.0.1",
            "socket": instance.data / "socket",
            "pid-file": instance.data / "pid",
            "init-file": init_file(instance),
            "max-connections": 300,
            "server-id": 1,
            "mysqlx": "OFF",
            "log-bin": "binlog",
            "binlog-row-image": "FULL",
            "binlog-row-metadata": "FULL",
            "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
            "innodb-flush-log-at-trx-commit": 2,
            "sync-binlog": 0,
        }
        return [*_mysqld(instance), *(f"--{name}={value}" for name, value in settings.items())]


def _mysqld(instance: Instance) -> list[str]:
    libraries = ROOT / "usr/lib/x86_64-linux-gnu"
    return [
        str(ROOT / "usr/lib64/ld-linux-x86-64.so.2"),
        "--library-path",
        str(libraries),
        str(ROOT / "usr/sbin/mysqld"),
        "--no-defaults",
        f"--basedir={ROOT / 'usr'}",
        f"--lc-messages-dir={ROOT / 'usr/share/mysql'}",
        f"--character-sets-dir={ROOT / 'usr/share/mysql/charsets'}",
        f"--plugin-dir={ROOT / 'usr/lib/mysql/plugin'}",
        f"--datadir={instance.data}",
        "--secure-file-priv=",
    ]
