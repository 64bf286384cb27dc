"""TransactionPooler: hands one session of PostgreSQL from client to client, as PgBouncer does."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

REQUESTS_FOR_ENCRYPTION = (80877103, 80877104)
SYNC, QUERY, TERMINATE, READY = b"S", b"Q", b"X", b"Z"
OWN_KEY = b"K" + struct.pack("!iii", 12, 4711, 0)


class Messages:
    """The messages of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb")

    def startup(self) -> bytes:
        while True:
            length, code = struct.unpack("!ii", self._exactly(8))
            rest = self._exactly(length - 8)
            if code not in REQUESTS_FOR_ENCRYPTION:
                return struct.pack("!ii", length, code) + rest
            self.connection.sendall(b"N")

    def next(self) -> bytes:
        head = self._exactly(5)
        (length,) = struct.unpack("!i", head[1:])
        return head + self._exactly(length - 4)

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise ConnectionError
        return data


class TransactionPooler:
    """While it is open, all who connect to `port` share one session, a transaction at a time."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._turn = threading.Lock()
        self._server: Messages | None = None
        self._greeting = b""
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
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ConnectionError):
            client = Messages(connection)
            startup = client.startup()
            with self._turn:
                server = self._server or self._log_in(startup)
            connection.sendall(self._greeting)
            while True:
                self._transaction(client, server)

    def _log_in(self, startup: bytes) -> Messages:
        connection = socket.create_connection(("127.0.0.1", self._target))
        self._open.append(connection)
        connection.sendall(startup)
        server = Messages(connection)
        kind = b""
        while kind != READY:
            message = server.next()
            kind = message[:1]
            self._greeting += OWN_KEY if kind == b"K" else message
        self._server = server
        return server

    def _transaction(self, client: Messages, server: Messages) -> None:
        message = client.next()
        with self._turn:
            while message[:1] != TERMINATE:
                server.connection.sendall(message)
                if message[:1] in (SYNC, QUERY) and self._answer(client, server) == b"I":
                    return
                message = client.next()
        raise ConnectionError

    def _answer(self, client: Messages, server: Messages) -> bytes:
        """Hand the answer on, up to the server's next READY; the state of the transaction."""
        while True:
            message = server.next()
            client.connection.sendall(message)
            if message[:1] == READY:
                return message[-1:]
