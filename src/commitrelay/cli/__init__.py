"""The command line: one file per command, each a declaration and a function."""

from commitrelay.cli.app import main

__all__ = ["main"]
