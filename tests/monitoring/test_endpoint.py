"""Endpoint: three paths, nothing else, whoever asks and however badly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

import pytest

from commitrelay import endpoint as module
from commitrelay.endpoint import Answer, Endpoint
from commitrelay.errors import ConfigError


async def _hello() -> Answer:
    return Answer("hello\n")


async def _broken() -> Answer:
    raise RuntimeError("a secret reason")


HANDLERS: dict[str, Callable[[], Awaitable[Answer]]] = {"/livez": _hello, "/broken": _broken}


def serve(body: Callable[[Endpoint], Awaitable[None]]) -> None:
    async def main() -> None:
        endpoint = Endpoint("127.0.0.1", 0, HANDLERS)
        await endpoint.open()
        try:
            await asyncio.wait_for(body(endpoint), 30)
        finally:
            await endpoint.close()

    asyncio.run(main())


async def ask(endpoint: Endpoint, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_answers_and_closes() -> None:
    async def body(endpoint: Endpoint) -> None:
        answer = await ask(endpoint, get("/livez?verbose=1"))
        head, _, text = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 6" in head
        assert text == b"hello\n"
        head, _, text = (await ask(endpoint, get("/livez", "HEAD"))).partition(b"\r\n\r\n")
        assert (b"Content-Length: 6" in head, text) == (True, b"")

    serve(body)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), HTTPStatus.NOT_FOUND),
        (get("/../../etc/passwd"), HTTPStatus.NOT_FOUND),
        (get("/livez/"), HTTPStatus.NOT_FOUND),
        (get("http://elsewhere/livez"), HTTPStatus.NOT_FOUND),
        (get("/livez", "POST"), HTTPStatus.METHOD_NOT_ALLOWED),
        (get("/livez", "DELETE"), HTTPStatus.METHOD_NOT_ALLOWED),
        (b"\xff\xfe garbage\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /livez\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /livez SPDY/3\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
    ],
)
def test_anything_else_is_refused(request_bytes: bytes, status: HTTPStatus) -> None:
    async def body(endpoint: Endpoint) -> None:
        answer = await ask(endpoint, request_bytes)
        assert answer.startswith(f"HTTP/1.1 {status.value} ".encode())

    serve(body)


def test_what_goes_wrong_inside_stays_inside() -> None:
    async def body(endpoint: Endpoint) -> None:
        answer = await ask(endpoint, get("/broken"))
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"secret" not in answer

    serve(body)


def test_an_endless_request_is_hung_up_on() -> None:
    async def body(endpoint: Endpoint) -> None:
        assert await ask(endpoint, b"GET /livez HTTP/1.1\r\nX: " + b"x" * 100_000) == b""
        assert b"200 OK" in await ask(endpoint, get("/livez"))

    serve(body)


def test_slow_clients_and_crowds_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENT_SECONDS", 0.3)

    async def body(endpoint: Endpoint) -> None:
        crowd = [
            await asyncio.open_connection("127.0.0.1", endpoint.port)
            for _ in range(module.MOST_CONNECTIONS + 10)
        ]
        for _reader, writer in crowd:
            writer.write(b"GET /li")
        for reader, writer in crowd:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        assert b"200 OK" in await ask(endpoint, get("/livez"))

    serve(body)


def test_one_too_many_is_hung_up_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENT_SECONDS", 1000.0)

    async def body(endpoint: Endpoint) -> None:
        crowd = [
            await asyncio.open_connection("127.0.0.1", endpoint.port)
            for _ in range(module.MOST_CONNECTIONS + 1)
        ]
        with suppress(ConnectionError):
            assert await crowd[-1][0].read() == b""
        for _reader, writer in crowd:
            writer.close()

    serve(body)


def test_a_port_that_is_taken_is_one_line() -> None:
    async def body(endpoint: Endpoint) -> None:
        with pytest.raises(ConfigError, match="metrics_listen"):
            await Endpoint("127.0.0.1", endpoint.port, HANDLERS).open()

    serve(body)
