"""ReaderProcess: a reader of a source in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

DEADLINE_SECONDS = 60.0


class ReaderProcess:
    def __init__(self, url: str, **options: str) -> None:
        settings = json.dumps({"url": url, **options})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.source_process", settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, Any]] = []
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.wait_for(lambda said: "opened" in said[-1])

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.said if "id" in each]

    @property
    def partitions(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for each in self.said:
            if "id" in each:
                found.setdefault(each["partition"], []).append(each["id"])
        return found

    def ack(self, count: int) -> None:
        self.tell(f"ack {count}")
        self.wait_for(lambda said: "acked" in said[-1])

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def wait_for_ids(self, count: int) -> None:
        self.wait_for(lambda _said: len(set(self.ids)) >= count)

    def wait_for(self, is_it: Any) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (self.said and is_it(self.said)):
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"it did not come: {len(self.ids)} ids") from None
            assert line is not None, "the reader has ended"
            self.said.append(line)

    def settle(self, seconds: float) -> None:
        """Hear what it says within some time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                return
            if line is not None:
                self.said.append(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(json.loads(line))
        except ValueError:
            pass  # closed by end()
        self._lines.put(None)
