"""CommitCutter: a proxy before a database server that lets a COMMIT in and no answer out."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import Self
from urllib.parse import urlsplit

COMMIT = re.compile(rb"(?<![A-Z])COMMIT")  # and not AUTOCOMMIT


class CommitCutter:
    """While it is open, `url` leads to the server of another URL, up to the first COMMIT."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname, target.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        user, at, _address = target.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        self.url = target._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()
        self._commits = threading.Event()
        self.was_answered = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            server = socket.create_connection(self._target)
            with client, server:
                asking = threading.Thread(target=self._ask, args=(client, server), daemon=True)
                asking.start()
                self._answer(server, client)
                for each in (client, server):
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                asking.join()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if COMMIT.search(data):
                    self._commits.set()
                server.sendall(data)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(65536):
            if self._commits.is_set():
                self.was_answered.set()
                return
            client.sendall(data)
