"""How much of the disk's speed is left in the file publisher?

    .venv/bin/python benchmarks/file_publish.py [--events N] [--payload BYTES] [--json]

The bare senders append the same lines, a batch in one piece, to a file that stays open, with the
same fsync for each batch; they take no lock and look for no torn line.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from pipelines import BARE, ENCODED, BareLine, EncodedLine, PublisherLine, main

from commitrelay.demo.topic import topic_of

if __name__ == "__main__":
    lines = {BARE: BareLine, ENCODED: EncodedLine, "FilePublisher": PublisherLine}
    with tempfile.TemporaryDirectory() as directory:
        url = Path(directory).as_uri()
        main(
            __doc__,
            lines,
            {
                "fsync": partial(topic_of, url),
                "no fsync": partial(topic_of, f"{url}?fsync=false"),
            },
        )
