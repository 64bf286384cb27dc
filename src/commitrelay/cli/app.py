"""The `commitrelay` program: parse, run one command, turn errors into one line and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from commitrelay import __version__
from commitrelay.cli import help
from commitrelay.cli.command import FAILURE, INTERRUPTED, OK, USAGE, Command, Option, Request
from commitrelay.configuration import parsed
from commitrelay.errors import CommitrelayError, ConfigError
from commitrelay.kinds import hint
from commitrelay.urls import scrub

NAMES = (
    *("demo", "init", "sql", "run", "consume"),
    *("status", "list", "show", "blocked", "tail", "audit", "doctor"),
    *("retry", "edit", "discard", "resolve", "replay"),
    *("lanes", "pause", "resume", "drain", "purge", "bench"),
)
"""Each is a module beside this one; a call imports its own and no other."""
TRACEBACK_FLAG = "--traceback"
TRACEBACK_VARIABLE = "COMMITRELAY_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code and raises nothing."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    wants_traceback = TRACEBACK_FLAG in words or bool(os.environ.get(TRACEBACK_VARIABLE))
    words = [word for word in words if word != TRACEBACK_FLAG]
    logging.getLogger("asyncio").addFilter(_is_no_late_wake)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return OK
    except Exception as error:
        if wants_traceback:
            print(scrub(traceback.format_exc()), file=sys.stderr, end="")
        print(f"commitrelay: {_one_line(error)}", file=sys.stderr)
        return USAGE if isinstance(error, ConfigError) else FAILURE


def parser_of(command: Command) -> Parser:
    """The argument parser of one command; every value stays text until it is checked by kind."""
    parser = Parser(command)
    for option in command.all_options:
        if option.positional:
            parser.add_argument(option.name, metavar=option.flag, nargs=option.arity)
        elif option.kind is None:
            parser.add_argument(option.flag, dest=option.name, action="store_true")
        else:
            action = "append" if option.arity == "*" else "store"
            parser.add_argument(option.flag, dest=option.name, action=action)
    for item in command.settings:
        parser.add_argument(item.flag, dest=item.name)
    parser.add_argument("-h", "--help", action="store_true", dest="help")
    return parser


class Parser(argparse.ArgumentParser):
    """argparse for the grammar; help and errors are our own."""

    def __init__(self, command: Command) -> None:
        super().__init__(
            prog=f"commitrelay {command.name}", add_help=False, allow_abbrev=False, usage=""
        )
        self._command = command

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `commitrelay {self._command.name} --help`")

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        values, unknown = self.parse_known_args(words)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            word = unknown[0].split("=")[0]
            noun = "option" if word.startswith("-") else "argument"
            self.error(f"unknown {noun} {scrub(word)}{hint(word, flags)}")
        return vars(values)


def _dispatch(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(help.overview(every_command()))
        return OK if words else USAGE
    if words[0] in ("-V", "--version", "version"):
        print(f"commitrelay {__version__}")
        return OK
    command = _command(words[0])
    if any(word in ("-h", "--help") for word in words[1:]):
        sys.stdout.write(help.page(command))
        return OK
    values = parser_of(command).parse(words[1:])
    return command.run(_request(command, values))


def every_command() -> tuple[Command, ...]:
    return tuple(_load(name) for name in NAMES)


def _load(name: str) -> Command:
    command: Command = import_module(f"commitrelay.cli.{name}").COMMAND
    return command


def _command(word: str) -> Command:
    if word in NAMES:
        return _load(word)
    noun = "option" if word.startswith("-") else "command"
    raise ConfigError(
        f"unknown {noun} {scrub(word)!r}{hint(word, NAMES)}; see `commitrelay --help`"
    )


def _request(command: Command, values: dict[str, Any]) -> Request:
    flags = {item.name: values[item.name] for item in command.settings}
    flags["config"] = values.get("config")
    options = {option.name: _value(option, values[option.name]) for option in command.options}
    return Request(options, flags)


def _value(option: Option, typed: Any) -> Any:
    if typed is None:
        return option.default
    if option.kind is None:
        return typed
    if isinstance(typed, (tuple, type([]))):
        return [parsed(option.kind, word, option.flag) for word in typed]
    return parsed(option.kind, typed, option.flag)


def _one_line(error: Exception) -> str:
    text = scrub(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, CommitrelayError):
        return text
    if isinstance(error, OSError) and error.strerror:
        return text
    name = type(error).__name__
    return f"unexpected {name}: {text} (run again with {TRACEBACK_FLAG} and report it, please)"


def _is_no_late_wake(record: logging.LogRecord) -> bool:
    # psycopg tells a wait that Ctrl-C has ended, if both come at once, and asyncio logs that.
    return not record.exc_info or getattr(record.exc_info[0], "__name__", "") != "InvalidStateError"


def _forget_stdout() -> None:
    # The reader went away, as `| head` does. Python would complain once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
