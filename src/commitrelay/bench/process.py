"""Process: a worker in a process of its own, seen from the benchmark."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

from commitrelay.bench.job import Job, Result
from commitrelay.bench.worker import FAILED, READY
from commitrelay.errors import CommitrelayError, StoreError

END_SECONDS = 30.0


class Process:
    """`with Process(job) as process: process.start(); result = process.result()`."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> Self:
        # In a session of its own: Ctrl-C is for the benchmark, which ends its workers itself.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "commitrelay.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._say(self._job.to_json())
        if (answer := self._line()) != READY:
            raise StoreError(f"a worker of the benchmark did not get ready: {answer}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        self._say("start")

    def stop(self) -> Result:
        """Let it finish what it has begun."""
        self._say("stop")
        return self.result()

    def result(self) -> Result:
        """Wait for its end."""
        line = self._line()
        try:
            return Result.from_json(line)
        except ValueError:
            raise StoreError("a worker of the benchmark ended within its result") from None

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and its last line says why
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().rstrip("\n")
        if line.startswith(FAILED):
            raise CommitrelayError(line.removeprefix(FAILED))
        if not line:
            raise StoreError("a worker of the benchmark ended without a result; see above")
        return line
