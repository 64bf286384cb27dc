"""The program explains itself, and says in one line what is wrong."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from commitrelay import __version__
from commitrelay.cli.app import every_command, main
from commitrelay.cli.command import Command
from tests.acceptance.cli import PROGRAM, commitrelay, environment, start, succeed, the_error

CANARY = "c4n4ry"
COMMANDS = every_command()
NAMES = [command.name for command in COMMANDS]


def test_overview_and_version() -> None:
    text = succeed("--help")
    for name in NAMES:
        assert f"  {name} " in text
    assert succeed("--version") == f"commitrelay {__version__}\n"
    assert commitrelay().returncode == 2


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_help_shows_every_flag_default_and_variable_within_the_width(command: Command) -> None:
    text = succeed(command.name, "--help", COLUMNS="72")
    for entry in (*command.all_options, *command.settings):
        assert entry.flag in text
    for item in command.settings:
        assert item.variable in text
        assert item.default_text in text
    assert max(map(len, text.splitlines())) <= 72
    assert "\x1b" not in text


def test_help_is_coloured_on_a_terminal_unless_asked_not_to() -> None:
    assert "\x1b[1m" in on_a_terminal("run", "--help")
    assert "\x1b" not in on_a_terminal("run", "--help", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("run", "--help", TERM="dumb")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("statsu",), "unknown command 'statsu' (did you mean status?)"),
        (("--verison",), "unknown option '--verison'"),
        (("run", "--databse", "x"), "unknown option --databse (did you mean --database?)"),
        (("run", f"postgresql://u:{CANARY}@h/d"), "unknown argument postgresql://u:***@h/d"),
        (("run", "--publish", "stdout:"), "no database URL: pass --database, set COMMITRELAY_DAT"),
        (("run", "--database", "sqlite:///x.db"), "no publish URL: pass --publish"),
        (("run", "--database"), "argument --database: expected one argument"),
        (("status", "--database", "x.db"), "'x.db' is not a URL"),
        (("status", "--database", f"pg://u:{CANARY}@h"), "unknown scheme 'pg'"),
        (("status", "--database", f"mysql://u:{CANARY}@h"), "names no database"),
        (("init", "--database", "sqlite:///x.db", "--table-prefix", "a b"), "table prefix 'a b'"),
        (("status", "--max-lag", "60"), "--max-lag has no unit: write 60s"),
        (("list", "--status", "daed"), "(did you mean dead?)"),
        (("list", "--limit", "x"), "--limit must be a whole number"),
        (("show",), "required: ID"),
        (("sql",), "which SQL?"),
        (("run", "--once", "--drain"), "exclude each other"),
        (("status", "--config", "/nowhere.toml"), "/nowhere.toml cannot be read"),
        (("demo", "--publish", "stdout:"), "published to stdout: cannot be read back"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = commitrelay(*arguments, cwd=tmp_path)
    assert message in the_error(done, 2)
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["status", "list", "init"])
def test_a_stopped_server_is_one_line_and_exit_1(command: str) -> None:
    url = f"postgresql://u:{CANARY}@127.0.0.1:1/shop"
    done = commitrelay(command, "--database", url)
    the_error(done, 1)
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("driver", "extra", "arguments"),
    [
        ("psycopg", "postgres", ("status", "--database", "postgresql://h/d")),
        (
            "confluent_kafka",
            "kafka",
            ("run", "--database", "sqlite:///x.db", "--publish", "kafka://h:1"),
        ),
    ],
)
def test_a_missing_extra_is_named(
    driver: str, extra: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    succeed("init", "--database", "sqlite:///x.db", cwd=tmp_path)
    without_driver = (
        f"import sys; sys.modules[{driver!r}] = None; "
        f"from commitrelay.cli import main; sys.exit(main({[*arguments]!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", without_driver],
        cwd=tmp_path,
        env=environment(COMMITRELAY_LOG_LEVEL="error"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f'pip install "commitrelay[{extra}]"' in the_error(done, 2)


def test_a_traceback_only_on_request() -> None:
    wrong = ("status", "--database", f"pg://u:{CANARY}@h")
    for done in (
        commitrelay(*wrong, "--traceback"),
        commitrelay(*wrong, COMMITRELAY_TRACEBACK="1"),
    ):
        assert "Traceback" in done.stderr
        assert CANARY not in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = start("run", "--help")
    assert program.stdout is not None
    program.stdout.close()
    _, errors = program.communicate(timeout=60)
    assert errors == ""


def test_a_driver_that_wakes_a_wait_too_late_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    assert main(["--version"]) == 0

    async def wake_late() -> None:
        ended = asyncio.get_running_loop().create_future()
        ended.cancel()
        asyncio.get_running_loop().call_soon(ended.set_result, None)
        asyncio.get_running_loop().call_soon(int, "another error is told")
        await asyncio.sleep(0)

    asyncio.run(wake_late())
    [told] = caplog.records
    assert told.exc_info is not None
    assert told.exc_info[0] is ValueError


def test_ctrl_c_is_quiet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        program = start("status", "--database", f"postgresql://u@127.0.0.1:{port}/d")
        connection, _ = silent.accept()
        with connection:
            program.send_signal(signal.SIGINT)
            output, errors = program.communicate(timeout=30)
    assert (program.returncode, output, errors) == (130, "", "")


def on_a_terminal(*arguments: str, **variables: str) -> str:
    leader, follower = pty.openpty()
    done = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=follower,
        env=environment(**{"TERM": "xterm-256color", **variables}),
    )
    os.close(follower)
    text = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux says so when the last writer has closed a terminal
            break
        if not chunk:
            break
        text += chunk
    os.close(leader)
    assert done.wait(60) == 0
    return text.decode()
