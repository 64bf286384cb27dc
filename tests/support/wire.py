"""Wire: a proxy before a database server that counts statements and round trips."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

COM_QUERY = 3


@dataclass
class Traffic:
    statements: int = 0
    round_trips: int = 0

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.statements - other.statements, self.round_trips - other.round_trips)

    def copy(self) -> Traffic:
        return Traffic(self.statements, self.round_trips)


class Packets:
    """Cuts a stream into packets, whose size their first five bytes tell."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        data, place = self._rest + data, 0
        while len(data) - place >= 5:
            end = place + self._size(data[place : place + 5])
            if end > len(data):
                break
            self._note(data[place:end])
            place = end
        self._rest = data[place:]

    def _size(self, head: bytes) -> int:
        raise NotImplementedError

    def _note(self, packet: bytes) -> None:
        raise NotImplementedError


class FromPostgres(Packets):
    """What the server says: each statement is completed, each round trip ends with `ready`."""

    def _size(self, head: bytes) -> int:
        return 1 + int.from_bytes(head[1:5])

    def _note(self, packet: bytes) -> None:
        self._traffic.statements += packet[:1] == b"C"
        self._traffic.round_trips += packet[:1] == b"Z"


class ToMysql(Packets):
    """What the client says: each command is a round trip, of one statement or several lines."""

    def _size(self, head: bytes) -> int:
        return 4 + int.from_bytes(head[:3], "little")

    def _note(self, packet: bytes) -> None:
        if packet[3] == 0:  # the first packet of a command
            self._traffic.round_trips += 1
            if packet[4] == COM_QUERY:
                self._traffic.statements += packet.count(b";\n") + 1


def ignore(_data: bytes) -> None:
    pass


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[str, Traffic]]:
    """The URL of the proxy, and the traffic through it."""
    parts = urlsplit(url)
    traffic = Traffic()
    links: set[asyncio.Task[None]] = set()
    is_postgres = parts.scheme.startswith("postgres")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(parts.hostname, parts.port)
        up = ignore if is_postgres else ToMysql(traffic)
        down = FromPostgres(traffic) if is_postgres else ignore
        for source, sink, note in ((reader, back, up), (there, writer, down)):
            link = asyncio.create_task(_carry(source, sink, note))
            links.add(link)
            link.add_done_callback(links.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0]
    address = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
    plain = "sslmode=disable&gssencmode=disable" if is_postgres else ""
    try:
        yield parts._replace(netloc=address, query=plain).geturl(), traffic
    finally:
        server.close()
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)


async def _carry(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, note: Callable[[bytes], None]
) -> None:
    try:
        while data := await source.read(65536):
            note(data)
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await sink.wait_closed()
