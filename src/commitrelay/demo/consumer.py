"""Consumer: reads the topic in a thread and enters what it finds into the ledger."""

from __future__ import annotations

import threading

from commitrelay.demo.ledger import Ledger
from commitrelay.demo.topic import Topic


class Consumer:
    """`failure` holds what ended it early."""

    def __init__(self, topic: Topic, ledger: Ledger) -> None:
        self.failure: Exception | None = None
        self._topic = topic
        self._ledger = ledger
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._consume, name="consumer")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read to the end of the topic, for what came twice comes last."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _consume(self) -> None:
        try:
            while True:
                stopping = self._stopping.is_set()
                messages = self._topic.poll()
                if messages:
                    self._ledger.received(messages)
                elif stopping:
                    return
        except Exception as error:
            self.failure = error
