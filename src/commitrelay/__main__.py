"""The program: `commitrelay`, or `python -m commitrelay`."""

import gc
import sys
from typing import NoReturn


def program() -> NoReturn:
    """Run the command line, and end the process with its exit code.

    A command is soon over: looking for garbage while it imports, and again when the interpreter
    ends, took a quarter of the time of `commitrelay status`.
    """
    gc.set_threshold(50_000)
    from commitrelay.cli import main  # noqa: PLC0415 - not before the line above

    code = main()
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    program()
