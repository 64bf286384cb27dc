"""Every command, flag, setting, variable and table is on its reference page."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from commitrelay.cli.app import every_command
from commitrelay.settings import DECLARATIONS, LANE_KEYS, OPTION_TABLES, Declaration

ROOT = Path(__file__).resolve().parents[2]
CLI = (ROOT / "docs/reference/cli.md").read_text("utf-8")
SETTINGS = (ROOT / "docs/reference/settings.md").read_text("utf-8")


@pytest.mark.parametrize("command", every_command(), ids=lambda command: command.name)
def test_every_command_and_flag(command) -> None:  # type: ignore[no-untyped-def]
    _, heading, rest = CLI.partition(f"\n## {command.name}\n")
    assert heading
    section = rest.partition("\n## ")[0]
    for entry in (*command.options, *command.settings):
        assert f"`{entry.flag}" in section


@pytest.mark.parametrize("item", DECLARATIONS, ids=lambda item: item.name)
def test_every_setting_with_its_key_flag_and_variable(item: Declaration) -> None:
    for text in (f"| `{item.name}` |", f"`{item.flag} ", f"`{item.variable}"):
        assert text in SETTINGS


@pytest.mark.parametrize("table", ["routes", *OPTION_TABLES])
def test_every_table(table: str) -> None:
    assert f"`[{table}]`" in SETTINGS


@pytest.mark.parametrize("key", LANE_KEYS)
def test_every_key_of_a_lane(key: str) -> None:
    assert f"| `{key}` |" in SETTINGS


def test_the_generated_parts_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts/docs", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    wanted = [*chain(*extras), *chain(*project["dependency-groups"].values())]
    wanted += [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    page = (ROOT / "docs/dependencies.md").read_text("utf-8")
    for requirement in wanted:
        name = re.split(r"[\[<>=~ ]", requirement)[0]
        assert name == "commitrelay" or f"| {name} |" in page
