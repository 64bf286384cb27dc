"""FileTopic: the demo's topic as a file in a directory."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from commitrelay.demo.ledger import Received
from commitrelay.demo.topic import received
from commitrelay.publishers.file import SUFFIX
from commitrelay.publishers.file_reader import TopicReader


class FileTopic:
    title = "files"

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self._directory = Path(unquote(urlsplit(url).path))
        self._reader = TopicReader(self._directory, name)

    def prepare(self) -> None:
        pass

    def subscribe(self) -> None:
        pass

    def poll(self) -> list[Received]:
        messages = self._reader.poll()
        if not messages:
            time.sleep(0.005)
        return [received(each.event_id, each.value) for each in messages]

    def close(self) -> None:
        pass

    def remove(self) -> None:
        (self._directory / f"{self.name}{SUFFIX}").unlink(missing_ok=True)


from_url = FileTopic
