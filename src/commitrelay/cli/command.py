"""Command and Option: what a command takes and says about itself, declared once.

The parser, `--help` and the reference page are all made from these declarations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from commitrelay import registry
from commitrelay.configuration import load
from commitrelay.kinds import Kind
from commitrelay.settings import DECLARATIONS, Declaration, Settings

OK = 0
FAILURE = 1
USAGE = 2
BREACHED = 3
INTERRUPTED = 130


@dataclass(frozen=True)
class Option:
    """One flag (or, without dashes, one argument) of a single command."""

    flag: str
    help: str
    kind: Kind | None = None  # None: a switch
    default: Any = None
    group: str = "Options"
    default_text: str | None = None
    arity: str | None = None  # "?": an argument that may be left out; "*": any number of them

    @property
    def name(self) -> str:
        return self.flag.lstrip("-").replace("-", "_").lower()

    @property
    def positional(self) -> bool:
        return not self.flag.startswith("-")

    @property
    def shown_default(self) -> str:
        if self.default_text is not None:
            return self.default_text
        return "" if self.default is None or self.kind is None else self.kind.show(self.default)


@dataclass(frozen=True)
class Command:
    name: str
    summary: str
    description: str
    run: Callable[[Request], int]
    options: tuple[Option, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()  # what it does, the command line
    usage: str = ""  # the required part of the usage line

    @property
    def settings(self) -> tuple[Declaration, ...]:
        return tuple(item for item in DECLARATIONS if self.name in item.commands)

    @property
    def all_options(self) -> tuple[Option, ...]:
        return self.options + ((CONFIG,) if self.settings else ())


@dataclass(frozen=True)
class Request:
    """One invocation: the command's own options, parsed, and the flags of settings, as typed."""

    options: Mapping[str, Any]
    flags: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def json(self) -> bool:
        return bool(self.options.get("json"))

    @cached_property
    def settings(self) -> Settings:
        return load(self.flags, os.environ)

    def database(self) -> registry.Database:
        settings = self.settings
        options = settings.options.get("store", {})
        return registry.database(settings.required("database"), settings.names, options)


class _Path:
    metavar = "FILE"

    def parse(self, value: object) -> str:
        return str(value)

    def show(self, value: str) -> str:
        return value


JSON = Option("--json", "Print one JSON object instead of text.", group="Output")
CONFIG = Option(
    "--config",
    "Settings file; default: ./commitrelay.toml if there is one.",
    _Path(),
    group="General",
    default_text="",
)
