"""AWS for tests: an emulator (ministack) on loopback, in a process of its own, behind a gate.

It is not AWS: what is proven on it is that our calls are what an implementation of the protocol
expects, not how AWS behaves under load or failure.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from aiobotocore.session import AioSession, get_session

from commitrelay.publishers.sqs.entry import ENCODING, KEY, MORE_HEADERS, PREFIX
from commitrelay.testing.publisher_suite import Received

REGION = "eu-west-1"
ACCOUNT = "000000000000"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@contextmanager
def emulator(directory: Path) -> Iterator[int]:
    """The port of an emulator that lives as long as the block."""
    port = _free_port()
    environment = {
        **os.environ,
        **CREDENTIALS,
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "SERVICES": "sqs,sns",
        "LOG_LEVEL": "ERROR",
        "MINISTACK_REGION": REGION,
        "HOME": str(directory),
        "TMPDIR": str(directory),
    }
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ministack"],
            env=environment,
            cwd=directory,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(port, process, directory / "log")
        yield port
    finally:
        process.terminate()
        process.wait(20)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the emulator did not start within 60 s")


class Gate:
    """A TCP proxy that closes: to its clients the server behind it is gone, its data is not."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    def open(self) -> None:
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)

    def shut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)

    def remove(self) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        pair = {writer, inner_writer}
        self._writers |= pair
        try:
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            self._writers -= pair


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@contextmanager
def credentials() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _session() -> AioSession:
    """One for all: it reads AWS's descriptions of its services, which takes a while."""
    return get_session()


def client(service: str, port: int) -> Any:
    """A context manager, as aiobotocore makes them."""
    return _session().create_client(
        service, region_name=REGION, endpoint_url=f"http://127.0.0.1:{port}"
    )


async def create_queue(port: int, name: str, **attributes: str) -> str:
    async with client("sqs", port) as sqs:
        made = await sqs.create_queue(
            QueueName=name, Attributes={"FifoQueue": "true", **attributes}
        )
        return str(made["QueueUrl"])


async def read_queue(port: int, name: str) -> list[dict[str, Any]]:
    """All messages in a queue, in order; they are deleted as a consumer does."""
    found: list[dict[str, Any]] = []
    async with client("sqs", port) as sqs:
        url = (await sqs.get_queue_url(QueueName=name))["QueueUrl"]
        while True:
            answer = await sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                AttributeNames=["All"],
            )
            messages = answer.get("Messages", [])
            if not messages:
                return found
            found += messages
            done = [
                {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
                for number, each in enumerate(messages)
            ]
            await sqs.delete_message_batch(QueueUrl=url, Entries=done)


def received(message: dict[str, Any]) -> Received:
    """A message as the docs tell consumers to read it."""
    attributes = {
        name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()
    }
    body = message["Body"]
    value = body.encode()
    if attributes.get(ENCODING) == "base64":
        value = base64.b64decode(body)
    elif attributes.get(ENCODING) == "empty":
        value = b""
    headers = {name: text for name, text in attributes.items() if not name.startswith(PREFIX)}
    headers.update(json.loads(attributes.get(MORE_HEADERS, "[]")))
    key = attributes.get(KEY, message["Attributes"]["MessageGroupId"])
    return Received(key, value, headers)
