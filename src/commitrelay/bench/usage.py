"""Usage: the CPU time of processes and of the machine, as Linux tells it; nothing elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

PROC = Path("/proc")
LISTENING = "0A"
DEFAULT_PORTS = {
    "postgresql": 5432,
    "postgres": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "kafka": 9092,
    "amqp": 5672,
    "amqps": 5671,
    "nats": 4222,
    "redis": 6379,
    "rediss": 6379,
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_known() -> bool:
    return (PROC / "stat").exists()


def server_pid(url: str) -> int | None:
    """The process that listens at a URL; None if that is elsewhere, or not to be seen."""
    parts = urlsplit(url.partition(",")[0])
    scheme = parts.scheme.partition("+")[0]
    port = parts.port or DEFAULT_PORTS.get(scheme)
    if parts.hostname not in LOOPBACK or port is None or not is_known():
        return None
    inodes = set(_listening_inodes(port))
    for folder in PROC.glob("[0-9]*/fd"):
        with suppress(OSError):
            for descriptor in folder.iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) in inodes:
                        return _eldest(int(folder.parent.name))
    return None


def cpu_seconds(pid: int | None) -> float:
    """Of a process and its descendants, those included that have ended."""
    if pid is None or not is_known():
        return 0.0
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            times[int(folder.name)] = sum(map(int, fields[11:15])) / _ticks()
    return sum(seconds for each, seconds in times.items() if pid in _line(each, parents))


def busy_seconds() -> float:
    """Of all processors, and what a hypervisor took from them; not what they spent on devices."""
    if not is_known():
        return 0.0
    user, nice, system, _idle, _wait, _irq, _softirq, steal = map(
        int, (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + steal) / _ticks()


def _listening_inodes(port: int) -> Iterable[str]:
    for table in ("tcp", "tcp6"):
        path = PROC / "net" / table
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


def _eldest(pid: int) -> int:
    """The first process of that program: its children hold the socket too."""
    while True:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        parent = PROC / fields[1]
        with suppress(OSError):
            if (parent / "exe").readlink() == (PROC / str(pid) / "exe").readlink():
                pid = int(fields[1])
                continue
        return pid


def _line(pid: int, parents: dict[int, int]) -> list[int]:
    """The process, its parent, and so on."""
    found = [pid]
    while (pid := parents.get(pid, 0)) > 1:
        found.append(pid)
    return found


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")
