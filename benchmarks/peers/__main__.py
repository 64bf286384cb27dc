"""commitrelay and other outboxes side by side: see README.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import uuid
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import debezium
import psycopg
from psycopg import sql

from commitrelay.bench import drain
from commitrelay.bench.plan import Plan
from commitrelay.bench.sample import Sample
from commitrelay.bench.site import BARE, Site
from commitrelay.bench.suite import as_json, machine
from commitrelay.cli.output import print_json, table

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[1] / ".venv-peers"
PYTHON = ENVIRONMENT / "bin" / "python"

WARM_UP = 10
"""Java gets faster as it goes: Debezium has so many times as many events to deliver."""

Measure = Callable[[], "Measured"]


@dataclass(frozen=True)
class Measured:
    events_per_second: float
    cpu_us: float
    peak_memory_mb: float


def measured(result: dict[str, Any]) -> Measured:
    events = result["events"]
    return Measured(
        events / result["seconds"],
        result["cpu_seconds"] / events * 1e6,
        result["peak_memory_bytes"] / 1e6,
    )


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """A peer's own, dropped at the end together with its slot."""
    name = f"commitrelay_peer_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                " WHERE database = %s AND active",
                (name,),
            )
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE database = %s",
                (name,),
            )
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            connection.execute(drop)


class Comparison:
    def __init__(self, site: Site, broker: str) -> None:
        self._site = site
        self._plan = site.plan
        self._broker = broker

    def contestants(self) -> dict[str, Measure]:
        found: dict[str, Measure] = {
            subject.name if subject.name == BARE else f"commitrelay, {subject.name}": partial(
                self._ours, subject
            )
            for subject in self._site.subjects()
        }
        if (trouble := install()) is not None:
            say(f"*** LEFT OUT: txoutbox, faststream-outbox: {trouble}")
        else:
            for name, script in (
                ("txoutbox", "txoutbox_peer.py"),
                ("faststream-outbox", "faststream_peer.py"),
            ):
                found[name] = partial(self._theirs, script, tuned=False)
                found[f"{name}, tuned"] = partial(self._theirs, script, tuned=True)
        if self._broker == "kafka":
            if (trouble := debezium.install()) is not None:
                say(f"*** LEFT OUT: Debezium: {trouble}")
            else:
                found["Debezium, tuned"] = self._debezium
        return found

    def warm_up(self) -> None:
        drain.warm_up(self._site, say)

    def _ours(self, subject: Any) -> Measured:
        self._site.ground.clear()
        drain.prepare(self._site, self._plan.events)
        run = drain.drain(self._site, subject, events=self._plan.events)
        return Measured(run.events_per_second, run.cpu_us["relay"], run.peak_memory_mb)

    def _theirs(self, script: str, *, tuned: bool) -> Measured:
        assert self._plan.database is not None
        with fresh_database(self._plan.database) as database, self._site.topic() as topic:
            job = {
                "database": database,
                "broker": self._plan.publish,
                "topic": topic.name,
                "events": self._plan.events,
                "payload_bytes": self._plan.payload_bytes,
                "tuned": tuned,
            }
            process = subprocess.Popen(
                [PYTHON, HERE / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            try:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(json.dumps(job) + "\n")
                process.stdin.flush()
                for line in process.stdout:
                    if line.startswith("{"):
                        return measured(json.loads(line))
                    if line == "ready\n":
                        process.stdin.write("start\n")
                        process.stdin.flush()
                raise SystemExit(f"{script} ended without a result; see above")
            finally:
                process.kill()
                process.communicate()

    def _debezium(self) -> Measured:
        assert self._plan.database is not None
        assert self._plan.publish is not None
        bootstrap = urlsplit(self._plan.publish).netloc
        with fresh_database(self._plan.database) as database, self._site.topic() as topic:
            events = WARM_UP * self._plan.events
            arguments = (topic.name, events, self._plan.payload_bytes)
            return measured(debezium.drain(database, bootstrap, *arguments))


def install() -> str | None:
    """Why the Python peers cannot be had, or nothing."""
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    install = [PYTHON, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    return " ".join(done.stderr.split())[-200:] if done.returncode else None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def compare(comparison: Comparison, rounds: int, only: list[str]) -> dict[str, Any]:
    contestants = {
        name: measure
        for name, measure in comparison.contestants().items()
        if not only or any(each in name for each in only)
    }
    seen: dict[str, list[Measured]] = {name: [] for name in contestants}
    comparison.warm_up()
    for number in range(rounds):
        for name, measure in (
            contestants.items() if number % 2 == 0 else reversed(contestants.items())
        ):
            seen[name].append(measure())
            rate = seen[name][-1].events_per_second
            say(f"{number + 1}/{rounds}: {name} {rate:,.0f} events/s")
    return {
        name: {
            field: Sample.of([getattr(each, field) for each in runs])
            for field in ("events_per_second", "cpu_us", "peak_memory_mb")
        }
        for name, runs in seen.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("kafka", "rabbitmq"), default="kafka")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--payload", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="a part of a name")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        database = os.environ["COMMITRELAY_POSTGRES_URL"]
        publish = os.environ[f"COMMITRELAY_{arguments.broker.upper()}_URL"]
    except KeyError as error:
        sys.exit(f'{error.args[0]} is not set: run eval "$(scripts/services env)" first')
    plan = Plan(
        database=database,
        publish=publish,
        events=arguments.events,
        payload_bytes=arguments.payload,
    )
    with Site(plan) as site:
        comparison = Comparison(site, arguments.broker)
        results = compare(comparison, arguments.rounds, arguments.only)
        where = f"{site.ground.version} to {site.broker}, {plan.events:,} events"
    if arguments.json:
        print_json(as_json({"where": where, "machine": machine(), "peers": results}))
        return
    rows = [
        (
            name,
            f"{found['events_per_second'].median:,.0f}",
            f"±{found['events_per_second'].spread or 0:.0%}",
            f"{found['cpu_us'].median:,.0f}",
            f"{found['peak_memory_mb'].median:,.0f}",
        )
        for name, found in results.items()
    ]
    print(where)
    print(table(("", "events/s", "spread", "µs/event", "peak MB"), rows))
    if not all(found["events_per_second"].is_steady for found in results.values()):
        print("The rounds are too few, or lie too far apart, to conclude anything.")


if __name__ == "__main__":
    main()
