"""What `commitrelay` exports is there, is documented, and costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import commitrelay

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"


@pytest.mark.parametrize("name", commitrelay.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    assert getattr(commitrelay, name).__doc__
    assert name in PAGE.read_text()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Rely"):
        commitrelay.Rely  # noqa: B018


def test_writing_events_does_not_import_the_relay() -> None:
    code = "import sys, commitrelay; print('commitrelay.relay' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
