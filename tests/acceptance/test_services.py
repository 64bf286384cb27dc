"""scripts/services: starting twice is harmless, and it ends only what it started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.support.services import SCRIPT

pytestmark = pytest.mark.servers


class Clone:
    """The script in a directory of its own, as in another clone of the repository."""

    def __init__(self, directory: Path) -> None:
        shutil.copytree(SCRIPT.parent, directory / "scripts")
        self.script = directory / "scripts" / "services"
        self.state_file = directory / ".services" / "postgres" / "state.json"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name != "CI" and not name.startswith("COMMITRELAY_")
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(self.script), *arguments],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def url(self) -> str:
        return self.run("url", "postgres").stdout.strip()

    def pid(self) -> int:
        pid: int = json.loads(self.state_file.read_text())["pid"]
        return pid


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path)
    yield clone
    clone.run("down")


@pytest.fixture
def postgres(clone: Clone) -> Clone:
    started = clone.run("up", "postgres")
    if started.returncode:
        pytest.fail(started.stderr, pytrace=False)
    return clone


def test_starting_at_the_same_time_and_again_starts_one_server(clone: Clone) -> None:
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: clone.run("up", "postgres"), range(3)))
    assert {run.returncode for run in runs} == {0}
    assert len({run.stderr for run in runs}) == 1
    pid = clone.pid()
    assert clone.run("up", "postgres").returncode == 0
    assert clone.pid() == pid


def test_env_points_at_the_server(postgres: Clone) -> None:
    exports = postgres.run("env").stdout
    assert f"export COMMITRELAY_POSTGRES_URL={postgres.url()}\n" in exports
    assert "# kafka is not running" in exports


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_stopped_server_comes_back_with_its_port_and_data(postgres: Clone, how: str) -> None:
    url = postgres.url()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept ()")
    assert postgres.run(how, "postgres").returncode == 0
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    assert postgres.run("start", "postgres").returncode == 0
    with psycopg.connect(url) as connection:
        connection.execute("SELECT FROM kept")


def command_lines() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (process / "cmdline").read_text(errors="replace")


def test_down_leaves_no_process_and_no_data(postgres: Clone) -> None:
    state = json.loads(postgres.state_file.read_text())
    assert postgres.run("down").returncode == 0
    assert not any(state["home"] in command for command in command_lines())
    assert not Path(state["home"]).exists()
    assert not postgres.state_file.exists()


def test_a_process_that_inherited_the_pid_is_left_alone(postgres: Clone) -> None:
    postgres.run("stop", "postgres")
    state = json.loads(postgres.state_file.read_text())
    with subprocess.Popen(["sleep", "60"]) as bystander:
        postgres.state_file.write_text(json.dumps(state | {"pid": bystander.pid}))
        assert postgres.run("down").returncode == 0
        assert bystander.poll() is None
        bystander.kill()


def test_a_server_of_the_users_own_is_not_started(clone: Clone) -> None:
    url = "postgresql://me:secret@db.example/mine"
    done = clone.run("up", "postgres", COMMITRELAY_POSTGRES_URL=url)
    assert done.returncode == 0
    assert "secret" not in done.stderr
    assert not clone.state_file.exists()


@pytest.mark.parametrize(("ci", "code"), [("false", 0), ("true", 1)])
def test_a_missing_server_is_said_loudly_and_fails_only_in_ci(
    clone: Clone, tmp_path: Path, ci: str, code: int
) -> None:
    elsewhere = "postgresql://me@db.example/mine"
    nothing = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = clone.run("up", CI=ci, COMMITRELAY_POSTGRES_URL=elsewhere, **nothing)
    assert "NO KAFKA ON THIS MACHINE" in done.stderr
    assert done.returncode == code
