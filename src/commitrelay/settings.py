"""Settings: each declared once, read once, from flags, environment, commitrelay.toml, defaults.

The first source that has a value wins, in that order. A declaration below is all there is to a
setting: its name is the TOML key, ``COMMITRELAY_<NAME>`` is the variable, ``--name`` is the flag
of the commands that take it, and its help is what ``--help`` and the reference page show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from keyword import iskeyword
from typing import Any, Literal

from commitrelay.errors import ConfigError
from commitrelay.kinds import (
    Address,
    Choice,
    Duration,
    HostPort,
    Integer,
    Kind,
    Listing,
    Number,
    Size,
    Text,
    hint,
)
from commitrelay.sql import Names
from commitrelay.urls import scheme_of

DEFAULT_FILE = "commitrelay.toml"
CONFIG_VARIABLE = "COMMITRELAY_CONFIG"
DEFAULT_LANE = "default"

EVERY = (
    "init",
    "sql",
    "run",
    "consume",
    "status",
    "list",
    "show",
    "blocked",
    "tail",
    "audit",
    "doctor",
    "retry",
    "edit",
    "discard",
    "resolve",
    "replay",
    "lanes",
    "pause",
    "resume",
    "drain",
    "purge",
)
DAEMONS = ("run", "consume")
OPTION_TABLES = {
    "publisher": "options of the publisher, whichever it is",
    "kafka": "options of the Kafka client, by librdkafka's names",
    "nats": "options of the NATS publisher",
    "redis": "options of the Redis publisher",
    "http": "options of the webhook publisher",
    "sqs": "options of the SQS publisher",
    "sns": "options of the SNS publisher",
    "file": "options of the file publisher",
    "stdout": "options of the stdout publisher",
    "cloudevents": "options of the formats cloudevents and cloudevents-structured",
    "debezium": "options of the format debezium, by the names of Debezium's Outbox Event Router",
    "store": "options of the database adapter",
}
"""TOML tables whose keys are passed on as they are; a dotted key needs no quotes."""

ENCRYPTED = {"rediss": "redis", "amqps": "amqp", "https": "http"}
"""Schemes that share the table of their plain sister."""

LANE_KEYS = {
    "name": "the lane's name (required)",
    "aggregate_types": "the lane gets only events of these aggregate types",
    "event_types": "the lane gets only events of these types",
    "routes": "the lane's own [routes]",
    "publisher": "the lane's own [publisher] options, on top of the shared ones",
    "cloudevents": "the lane's own [cloudevents] options, on top of the shared ones",
    "debezium": "the lane's own [debezium] options, on top of the shared ones",
}
"""Keys of a [[lanes]] entry beside the settings that a lane may override."""

LANE_TABLES = tuple(key for key in LANE_KEYS if key in OPTION_TABLES)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known about one setting, apart from its value."""

    name: str
    default: Any
    help: str
    kind: Kind
    group: str
    commands: tuple[str, ...]
    per_lane: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "COMMITRELAY_" + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default as one would write it, or nothing if there is none."""
        return "" if self.default in ((), "") else self._shown_default()

    def _shown_default(self) -> str:
        never = isinstance(self.kind, Size) or (isinstance(self.kind, Duration) and self.kind.never)
        if self.default is None and not never:
            return ""
        return self.kind.show(self.default)


def setting(
    default: Any,
    help: str,
    kind: Kind,
    *,
    group: str,
    commands: tuple[str, ...] = ("run",),
    per_lane: bool = False,
) -> Any:
    about = {"help": help, "kind": kind, "group": group, "commands": commands}
    return field(default=default, metadata={**about, "per_lane": per_lane})


@dataclass(frozen=True)
class Settings:
    """All settings of one process."""

    database: str | None = setting(
        None,
        "Database with the outbox: postgresql://user@host/db, mysql://user@host/db or "
        "sqlite:///file.db.",
        Text("URL"),
        group="Database",
        commands=EVERY,
    )
    database_file: str | None = setting(
        None,
        "File that holds the database URL, such as a mounted secret; only --database goes before.",
        Text("FILE"),
        group="Database",
        commands=EVERY,
    )
    schema: str | None = setting(
        None,
        "Schema that holds the outbox tables (PostgreSQL); default: the connection's own.",
        Text("NAME"),
        group="Database",
        commands=EVERY,
    )
    table_prefix: str = setting(
        "outbox",
        "What the names of the outbox tables start with.",
        Text("NAME"),
        group="Database",
        commands=EVERY,
    )
    publish: str | None = setting(
        None,
        "Where events go: kafka://host:9092, amqp://…, nats://…, redis://…, https://…, sqs://…, "
        "sns://…, file:///directory or stdout:.",
        Text("URL"),
        group="Broker",
        per_lane=True,
        commands=("run", "doctor"),
    )
    publish_file: str | None = setting(
        None,
        "File that holds the publish URL, such as a mounted secret; only --publish goes before.",
        Text("FILE"),
        group="Broker",
    )
    topic: str = setting(
        "{aggregate_type|lower}.events",
        "Topic of an event, as a template over its fields.",
        Text("TEMPLATE"),
        group="Broker",
        per_lane=True,
        commands=("run", "doctor"),
    )
    format: Literal["plain", "cloudevents", "cloudevents-structured", "debezium"] = setting(
        "plain",
        "What a message looks like: plain (the payload, the rest in headers), cloudevents "
        "(the same by the CloudEvents binding of the broker), cloudevents-structured (one JSON "
        "object) or debezium (as its Outbox Event Router would emit it).",
        Choice(("plain", "cloudevents", "cloudevents-structured", "debezium")),
        group="Broker",
        per_lane=True,
        commands=("run", "doctor"),
    )
    lane: tuple[str, ...] = setting(
        (),
        "Lanes to run; default: all [[lanes]] of the file, or the lane named default.",
        Listing(Text("NAME"), "NAME,…"),
        group="Delivery",
        commands=("run", "doctor"),
    )
    strategy: Literal["partitioned", "leader", "competing"] = setting(
        "partitioned",
        "How relays share the work: partitioned (keys are spread over all of them), leader (one "
        "works, the others stand by) or competing (each takes what is free; not on SQLite).",
        Choice(("partitioned", "leader", "competing")),
        group="Delivery",
        per_lane=True,
    )
    order: Literal["strict", "relaxed"] = setting(
        "strict",
        "strict: an event never overtakes an earlier one of its aggregate, also after a failure; "
        "relaxed: faster on brokers that need a round trip for that.",
        Choice(("strict", "relaxed")),
        group="Delivery",
        per_lane=True,
    )
    on_dead: Literal["block", "skip"] = setting(
        "block",
        "When an event is out of attempts: block the later events of its aggregate, or skip it.",
        Choice(("block", "skip")),
        group="Delivery",
        per_lane=True,
    )
    retry_delays: tuple[float, ...] = setting(
        (1.0, 5.0, 30.0, 120.0),
        "Waits between the attempts at an event that the broker refuses; then it is dead.",
        Listing(Duration(), "1s,5s,…"),
        group="Delivery",
        per_lane=True,
        commands=("run", "doctor"),
    )
    retry_jitter: float = setting(
        0.2,
        "Each wait grows by up to this fraction, at random, so that retries spread out.",
        Number(0.0, 1.0),
        group="Delivery",
        per_lane=True,
    )
    dead_letter_topic: str | None = setting(
        None,
        "Topic of dead letters, as a template. run: an event that runs out of attempts is sent "
        "there as well. consume: over {topic} and {consumer}; default: {topic}.dead.",
        Text("TEMPLATE"),
        group="Delivery",
        per_lane=True,
        commands=DAEMONS,
    )
    dead_letter_publish: str | None = setting(
        None,
        "Broker for dead letters; default: the one that refused them.",
        Text("URL"),
        group="Delivery",
        per_lane=True,
    )
    batch_size: int = setting(
        1000,
        "Events that are read from the database at a time.",
        Integer(1, 100_000),
        group="Pace",
        per_lane=True,
    )
    window: int = setting(
        8,
        "Batches that may be on their way at the same time.",
        Integer(1, 1000),
        group="Pace",
        per_lane=True,
    )
    poll: float = setting(
        0.1,
        "Longest time for which a committed event is left unnoticed.",
        Duration(minimum=0.001),
        group="Pace",
        per_lane=True,
    )
    lease: float = setting(
        30.0,
        "Time after which others take over from a relay that has died.",
        Duration(minimum=0.1),
        group="Pace",
        per_lane=True,
        commands=("run", "doctor"),
    )
    retention: float | None = setting(
        7 * 86400.0,
        "Delivered events are deleted at this age, or never.",
        Duration(never=True),
        group="Pace",
        commands=("run", "purge"),
    )
    inbox_retention: float | None = setting(
        30 * 86400.0,
        "What an inbox of this database has handled is remembered for this time, or for ever "
        "(never); longer than retention.",
        Duration(never=True),
        group="Pace",
        commands=DAEMONS,
    )
    archive: str | None = setting(
        None,
        "Folder for files of what is deleted; without it nothing is kept.",
        Text("FOLDER"),
        group="Pace",
        commands=("run", "purge"),
    )
    archive_format: Literal["jsonl", "parquet"] = setting(
        "jsonl",
        "Files of an archive: gzipped JSON lines, or Parquet (extra parquet).",
        Choice(("jsonl", "parquet")),
        group="Pace",
        commands=("run", "purge"),
    )
    relay_name: str | None = setting(
        None,
        "Name of this relay in leases and journal; default: made from host and process id.",
        Text("NAME"),
        group="Pace",
    )
    from_: str | None = setting(
        None,
        "Where a consumer reads: kafka://host:9092?topic=order.events, file:///directory.",
        Text("URL"),
        group="Consumer",
        commands=("consume",),
    )
    module: str | None = setting(
        None,
        "Python module with the consumer and its handlers, such as app.handlers.",
        Text("MODULE"),
        group="Consumer",
        commands=("consume",),
    )
    group: str | None = setting(
        None,
        "Group at the broker, which shares the events; default: the consumer's name.",
        Text("NAME"),
        group="Consumer",
        commands=("consume",),
    )
    dead_letter: str | None = setting(
        None,
        "Where events go whose handler fails for good; default: their key stands still.",
        Text("URL"),
        group="Consumer",
        commands=("consume",),
    )
    concurrency: int | None = setting(
        None,
        "Events of different keys that are handled at the same time; default: 10.",
        Integer(1, 1000),
        group="Consumer",
        commands=("consume",),
    )
    log_level: str = setting(
        "info",
        "Least important messages to log (to stderr).",
        Choice(("debug", "info", "warning", "error"), "LEVEL"),
        group="Log",
        commands=DAEMONS,
    )
    log_format: str = setting(
        "auto",
        "text, json (one object per line), or auto: text on a terminal, json elsewhere.",
        Choice(("auto", "text", "json"), "FORMAT"),
        group="Log",
        commands=DAEMONS,
    )
    metrics_listen: HostPort | None = setting(  # noqa: RUF009
        HostPort("127.0.0.1", 9464),
        "Where /metrics, /livez and /readyz are served, or none.",
        Address(),
        group="Monitoring",
        commands=DAEMONS,
    )
    tracing: str = setting(
        "off",
        "on: a span of OpenTelemetry for each batch that is sent, linked to the events in it.",
        Choice(("on", "off")),
        group="Monitoring",
    )
    alert_webhook: str | None = setting(
        None,
        "Where alerts are posted: https://host/path#secret=whsec_…; they are always logged.",
        Text("URL"),
        group="Alerts",
    )
    alert_command: str | None = setting(
        None,
        "Program that is run for each alert, with the alert as JSON on its standard input.",
        Text("COMMAND"),
        group="Alerts",
    )
    alert_lag: float | None = setting(
        300.0,
        "Alert when the oldest event has waited for longer than this.",
        Duration(never=True),
        group="Alerts",
    )
    alert_standing: float | None = setting(
        120.0,
        "Alert when events wait and none was delivered for longer than this.",
        Duration(never=True),
        group="Alerts",
    )
    alert_table_size: int | None = setting(
        10 * 10**9,
        "Alert when log and queue are larger than this.",
        Size(),
        group="Alerts",
    )
    alert_slot_lag: int | None = setting(
        10**9,
        "Alert when PostgreSQL keeps more than this for a replication slot.",
        Size(),
        group="Alerts",
    )
    alert_reminder: float | None = setting(
        3600.0,
        "Remind of an alert that goes on after this time.",
        Duration(never=True, minimum=1.0),
        group="Alerts",
    )
    alert_interval: float = setting(
        15.0,
        "How often to look for something to alert about.",
        Duration(minimum=0.05),
        group="Alerts",
    )
    # What only the file can say.
    routes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lane_entries: tuple[LaneEntry, ...] = ()

    @property
    def names(self) -> Names:
        return Names(self.schema, self.table_prefix)

    def required(self, name: str) -> str:
        """The value of a setting that has no default; `ConfigError` tells how to give it."""
        value = getattr(self, name)
        if value is None:
            by_name = declaration(name)
            raise ConfigError(
                f"no {name} URL: pass {by_name.flag}, set {by_name.variable}, "
                f'or put {name} = "…" into {DEFAULT_FILE}'
            )
        return str(value)

    def publisher_options(self) -> dict[str, str]:
        """What [publisher] and the table of the publisher's own scheme say."""
        scheme = scheme_of(self.required("publish"))
        table = ENCRYPTED.get(scheme, scheme)
        return {**self.options.get("publisher", {}), **self.options.get(table, {})}

    def lanes(self) -> list[LaneSettings]:
        """The lanes to run, each with all settings as they apply to it."""
        entries = {entry.name: entry for entry in self.lane_entries}
        names = self.lane or tuple(entries) or (DEFAULT_LANE,)
        if not entries:
            return [LaneSettings(name, self) for name in dict.fromkeys(names)]
        for name in names:
            if name not in entries:
                raise ConfigError(
                    f"lane {name!r} is not among the [[lanes]] of the settings file: "
                    f"{', '.join(entries)}{hint(name, list(entries))}"
                )
        return [entries[name].applied_to(self) for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class LaneSettings:
    """One lane to run. A lane that the file declares is created if the database lacks it."""

    name: str
    settings: Settings
    declared: bool = False
    aggregate_types: tuple[str, ...] | None = None
    event_types: tuple[str, ...] | None = None


@dataclass(frozen=True)
class LaneEntry:
    """One [[lanes]] entry: its filter, and what it says differently from the rest."""

    name: str
    aggregate_types: tuple[str, ...] | None = None
    event_types: tuple[str, ...] | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def applied_to(self, settings: Settings) -> LaneSettings:
        shared = settings.options
        own = {table: {**shared.get(table, {}), **said} for table, said in self.options.items()}
        merged = replace(settings, **self.overrides, options={**shared, **own})
        return LaneSettings(self.name, merged, True, self.aggregate_types, self.event_types)


def _declared() -> Iterator[Declaration]:
    for item in fields(Settings):
        if item.metadata:
            yield Declaration(item.name.rstrip("_"), item.default, **item.metadata)


DECLARATIONS: tuple[Declaration, ...] = tuple(_declared())


def attribute(name: str) -> str:
    """The attribute of `Settings` that holds a setting: `from` is a word of Python's."""
    return f"{name}_" if iskeyword(name) else name


def declaration(name: str) -> Declaration:
    return next(item for item in DECLARATIONS if item.name == name)
