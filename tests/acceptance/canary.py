"""The canary, the URLs that hold it, and everything that was shown meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.cli import PROGRAM, environment

CANARY = "c4n4ry-p4ssw0rd"
BROKERS = {
    "kafka": "kafka://user:{password}@127.0.0.1:{port}?sasl.mechanism=PLAIN&security.protocol=SASL_PLAINTEXT",
    "rabbitmq": "amqp://user:{password}@127.0.0.1:{port}/",
    "nats": "nats://user:{password}@127.0.0.1:{port}",
    "redis": "redis://user:{password}@127.0.0.1:{port}",
    "http": "http://user:{password}@127.0.0.1:{port}/hook#allow_private=true&bearer_token={password}&delivery_timeout_seconds=1",
    "sqs": "sqs://eu-west-1/q.fifo?endpoint_url=http://127.0.0.1:{port}",
}  # fmt: skip
DATABASES = {
    "postgresql": "postgresql://user:{password}@127.0.0.1:{port}/shop",
    "mysql": "mysql://user:{password}@127.0.0.1:{port}/shop",
}


class Shown:
    """Everything that was shown, to be searched at the end."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def add(self, where: str, text: str) -> None:
        self.texts.append((where, text))

    def commit(self) -> None:
        assert self.texts
        for where, text in self.texts:
            assert CANARY not in text, where


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def relay(
    shown: Shown, *words: str, cwd: Path | None = None, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """A running relay; its log, and what others can see of its process, are kept."""
    process = subprocess.Popen(
        [*PROGRAM, *(words or ("run",)), "--log-level", "debug"],
        cwd=cwd or "/",
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
        shown.add("process list", processes())
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            out, log = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            out, log = process.communicate()
        shown.add("stdout", out)
        shown.add("log", log)


def processes() -> str:
    """The command line of every process, as `ps` would show it."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                lines.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(lines)


def start_and_stop(shown: Shown, *words: str, cwd: Path | None = None, **variables: str) -> str:
    """Its log up to a moment after it has started, or to its end if it refuses to start."""
    with relay(shown, *words, cwd=cwd, **variables) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while lines[-1] and not any(
            word in lines[-1] for word in ("unreachable", "commitrelay: ", "waiting")
        ):
            lines.append(process.stderr.readline())
        shown.add("log so far", "".join(lines))
    return "".join(lines)
