"""What servers need of the machine they run on: packages, a cache, ports, users, processes."""

from __future__ import annotations

import fcntl
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "commitrelay"

# Below the range from which the kernel takes the ports of outgoing connections: while a server
# is stopped, a client that reconnects all the time could otherwise be given the server's port.
PORTS = range(20_000, 32_000)


UNAVAILABLE = 69
"""The exit code of a tool that this machine cannot have (EX_UNAVAILABLE)."""


class Unavailable(Exception):
    """This machine cannot have the server; says why, and what would help."""


class Failed(Exception):
    """The server is here and did not do what it should."""


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Only one process or thread at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(command: Sequence[str | Path], user: str | None = None) -> str:
    """Run to the end and return the output; a failure shows what the command said."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd="/",
        user=user,
        group=primary_group(user),
        extra_groups=None if user is None else [],
    )
    if done.returncode:
        last_lines = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise Failed(f"`{' '.join(map(str, command))}` failed:\n{last_lines}")
    return done.stdout


def root_prefix() -> list[str] | None:
    """What to put before a command that needs root; None where root is not to be had."""
    if os.geteuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and not subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode
    ):
        return ["sudo", "-n"]
    return None


def can_apt_install() -> bool:
    return shutil.which("apt-get") is not None and root_prefix() is not None


def apt_install(*packages: str) -> None:
    prefix = root_prefix()
    if prefix is None or not shutil.which("apt-get"):
        names = " ".join(packages)
        raise Unavailable(f"needs {names}, and neither root nor sudo with apt is here")
    say(f"installing {' '.join(packages)} with apt")
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    try:
        run([*apt, "update"])
        run([*apt, "-o", "DPkg::Lock::Timeout=300", "install", "-y", *packages])
    except Failed as error:
        raise Unavailable(str(error)) from error


def server_user() -> str | None:
    """The account for servers that refuse to run as root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name for account in pwd.getpwall()}
    return "postgres" if "postgres" in accounts else "nobody"


def primary_group(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def can_use(directory: Path, user: str | None) -> bool:
    """Whether the account reaches the directory through all its parents."""
    if user is None:
        return True
    try:
        run(["test", "-x", directory], user=user)
    except Failed:
        return False
    return True


def free_port() -> int:
    for port in random.sample(PORTS, len(PORTS)):
        if is_free(port):
            return port
    raise Failed(f"no free port on 127.0.0.1 between {PORTS.start} and {PORTS.stop}")


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # As servers do; without it a port is taken for a minute after its server has stopped.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def birth(pid: int) -> str | None:
    """When the process began; None if it is gone. Pids are reused, pid and birth are not."""
    if not Path("/proc/self/stat").exists():
        ps = ["ps", "-o", "lstart=", "-p", str(pid)]
        return (
            subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip() or None
        )
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state == "Z" else fields[18]


def family(pid: int) -> list[int]:
    """The process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *map(int, children.read_text().split() if children.exists() else [])]
