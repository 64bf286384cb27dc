"""Where settings come from: flags, then the environment, then commitrelay.toml, then defaults.

The file is checked key by key; whatever is wrong is one `ConfigError` that names file and key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from commitrelay.errors import ConfigError
from commitrelay.kinds import Kind, Listing, Text, hint
from commitrelay.settings import (
    CONFIG_VARIABLE,
    DECLARATIONS,
    DEFAULT_FILE,
    LANE_KEYS,
    LANE_TABLES,
    OPTION_TABLES,
    Declaration,
    LaneEntry,
    Settings,
    attribute,
)

_BY_NAME = {item.name: item for item in DECLARATIONS}
_PER_LANE = {item.name: item for item in DECLARATIONS if item.per_lane}
_TEXTS = Listing(Text())


def load(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """Read every source once. `flags` maps names of settings, and `config`, to what was typed."""
    values = read_file(_path(flags, environ))
    for item in DECLARATIONS:
        typed = flags.get(item.name)
        if typed is not None:
            values[item.name] = parsed(item.kind, typed, item.flag)
            continue
        variable = _variable(item, environ)
        if variable is not None:
            values[item.name] = parsed(item.kind, environ[variable], variable)
    for name in ("database", "publish"):
        if flags.get(name) is None and f"{name}_file" in values:
            values[name] = _secret(values[f"{name}_file"], f"{name}_file")
    return Settings(**{attribute(name): value for name, value in values.items()})


def parsed(kind: Kind, value: object, origin: str) -> Any:
    try:
        return kind.parse(value)
    except ValueError as error:
        raise ConfigError(f"{origin} {error}") from None


def _secret(path: str, name: str) -> str:
    """What a file holds, such as a secret that Docker or Kubernetes has mounted."""
    try:
        text = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{name} {path} cannot be read ({reason})") from None
    if not text or len(text.splitlines()) > 1:
        raise ConfigError(f"{name} {path} must hold one line: the URL")
    return text


def _variable(item: Declaration, environ: Mapping[str, str]) -> str | None:
    # An empty variable counts as absent: that is how compose files and CI unset one.
    names = (item.variable, "DATABASE_URL") if item.name == "database" else (item.variable,)
    return next((name for name in names if environ.get(name)), None)


def _path(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Path | None:
    chosen = flags.get("config") or environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).exists() else None


def read_file(path: Path | None) -> dict[str, Any]:
    """Arguments for `Settings` from the file; none if there is no file."""
    if path is None:
        return {}
    values: dict[str, Any] = {}
    options: dict[str, dict[str, str]] = {}
    for key, value in _toml(path).items():
        if key in _BY_NAME:
            values[key] = parsed(_BY_NAME[key].kind, value, f"{path}: {key}")
        elif key in OPTION_TABLES:
            options[key] = _options(_table(value, f"{path}: [{key}]"), f"{path}: [{key}]")
        elif key == "routes":
            values["routes"] = _routes(value, f"{path}: [routes]")
        elif key == "lanes":
            values["lane_entries"] = _lanes(value, str(path))
        else:
            known = [*_BY_NAME, *OPTION_TABLES, "routes", "lanes"]
            noun = f"table [{key}]" if isinstance(value, (dict, list)) else f"key {key!r}"
            raise ConfigError(f"{path}: unknown {noun}{hint(key, known)}")
    return {**values, "options": options}


def _toml(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - without a file, a command starts sooner

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        # Its message may quote a line only by position, never by content.
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not valid TOML: it is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _table(value: object, origin: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{origin} must be a table")
    return value


def _options(table: Mapping[str, Any], origin: str) -> dict[str, str]:
    """Flat options as text: `sasl.password = "x"` is a nested table to TOML, not to Kafka."""
    return {name: _option_text(value, f"{origin} {name}") for name, value in _flattened(table)}


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _option_text(value: object, origin: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(f"{origin} must be a string, a number, true or false")


def _routes(value: object, origin: str) -> dict[str, str]:
    table = dict(_flattened(_table(value, origin)))
    for pattern, topic in table.items():
        if not isinstance(topic, str) or not topic:
            raise ConfigError(f"{origin} {pattern} must be a topic, as a string")
    return table


def _lanes(value: object, path: str) -> tuple[LaneEntry, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigError(f"{path}: lanes must be written as [[lanes]], one for each lane")
    entries = tuple(
        _lane(entry, f"{path}: [[lanes]] {entry.get('name', f'number {number}')}")
        for number, entry in enumerate(value, 1)
    )
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path}: two [[lanes]] have the name {name!r}: rename one")
    return entries


def _lane(table: Mapping[str, Any], origin: str) -> LaneEntry:
    if "name" not in table:
        raise ConfigError(f"{origin} has no name")
    known = [*LANE_KEYS, *_PER_LANE]
    for key in table:
        if key not in known:
            raise ConfigError(f"{origin}: unknown key {key!r}{hint(key, known)}")
    overrides = {
        key: parsed(_PER_LANE[key].kind, value, f"{origin}: {key}")
        for key, value in table.items()
        if key in _PER_LANE
    }
    if "routes" in table:
        overrides["routes"] = _routes(table["routes"], f"{origin}: routes")
    options = {
        key: _options(_table(table[key], f"{origin}: {key}"), f"{origin}: {key}")
        for key in LANE_TABLES
        if key in table
    }
    return LaneEntry(
        parsed(Text(), table["name"], f"{origin}: name"),
        _types(table, "aggregate_types", origin),
        _types(table, "event_types", origin),
        overrides,
        options,
    )


def _types(table: Mapping[str, Any], key: str, origin: str) -> tuple[str, ...] | None:
    return parsed(_TEXTS, table[key], f"{origin}: {key}") if key in table else None
