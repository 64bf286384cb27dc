"""Forwarder: a port that leads to another one, so that a local server has a remote address."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


def own_address() -> str | None:
    """An address of this machine that is not of the loopback interface; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith(("127.", "0.")) else address


class Forwarder:
    """While it is open, `port` of every address leads to a port of 127.0.0.1."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("0.0.0.0", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                outer, _ = self._listener.accept()
                inner = socket.create_connection(("127.0.0.1", self._target))
                self._open += [outer, inner]
                for source, sink in ((outer, inner), (inner, outer)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
