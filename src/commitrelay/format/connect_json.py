"""What Kafka Connect's JsonConverter writes, and how Debezium expands JSON text into a struct.

A schema is a dict in the form, and with the order of members, that JsonConverter gives it.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

Schema = dict[str, Any]

STRING: Schema = {"type": "string", "optional": False}
OPTIONAL_STRING: Schema = {"type": "string", "optional": True}
OPTIONAL_BYTES: Schema = {"type": "bytes", "optional": True}
INT64: Schema = {"type": "int64", "optional": False}
JSON_TEXT: Schema = {**OPTIONAL_STRING, "name": "io.debezium.data.Json", "version": 1}
UUID: Schema = {**STRING, "name": "io.debezium.data.Uuid", "version": 1}
TIMESTAMP: Schema = {**STRING, "name": "io.debezium.time.ZonedTimestamp", "version": 1}


def struct(fields: dict[str, Schema], name: str | None, *, optional: bool) -> Schema:
    listed = [{**schema, "field": field} for field, schema in fields.items()]
    named = {} if name is None else {"name": name}
    return {"type": "struct", "fields": listed, "optional": optional, **named}


def written(value: Any, schema: Schema, *, with_schema: bool) -> bytes:
    """The bytes of JsonConverter, with `schemas.enable` or without."""
    text = to_json(value)
    if with_schema:
        known = _KNOWN.get(id(schema)) or to_json(schema)
        text = f'{{"schema":{known},"payload":{text}}}'
    return text.encode()


class NotExpandable(ValueError):
    """Debezium would leave such a text as it is, and so do we; the message says why."""


def expanded(text: str, *, null_as_bytes: bool) -> tuple[Any, Schema]:
    """JSON text as data, and the schema that its values suggest."""
    if not text.startswith(("{", "[")):
        raise NotExpandable("it starts with neither { nor [")
    try:
        node = _parse(text)
        schema = _Guess(null_as_bytes).schema("payload", node)
        if schema is None:
            raise NotExpandable("an empty array has no type")
        value = _fitted(node, schema)
        if "\\u" in text:
            to_json(value).encode()  # half a surrogate pair can be written, but not sent
    except NotExpandable:
        raise
    except (ValueError, RecursionError) as error:
        raise NotExpandable(f"it is not JSON ({error})") from None
    return value, schema


class _Guess:
    """The schema of a JSON value; None for what has none and is left out."""

    def __init__(self, null_as_bytes: bool) -> None:
        self._of_null = OPTIONAL_BYTES if null_as_bytes else None

    def schema(self, name: str | None, node: Any) -> Schema | None:
        if node is None:
            return self._of_null
        if isinstance(node, list):
            items = self._items(name, node)
            return None if items is None else {"type": "array", "items": items, "optional": True}
        if isinstance(node, dict):
            return struct(self._fields(name, node), name, optional=True)
        return {"type": _scalar(node), "optional": True}

    def _fields(self, name: str | None, node: dict[str, Any]) -> dict[str, Schema]:
        prefix = f"{name}." if name else ""
        schemas = {key: self.schema(f"{prefix}{key}", value) for key, value in node.items()}
        return {key: schema for key, schema in schemas.items() if schema is not None}

    def _items(self, name: str | None, array: list[Any]) -> Schema | None:
        if not array:
            return None
        some = [element for element in array if element is not None]
        kinds = {_kind(element) for element in some}
        if len(kinds) > 1:
            raise NotExpandable(f"an array mixes {' and '.join(sorted(kinds))}")
        if kinds == {"object"}:
            fields: dict[str, Schema] = {}
            for element in some:
                for key, schema in self._fields(name, element).items():
                    if fields.get(key, OPTIONAL_BYTES)["type"] == "bytes":
                        fields[key] = schema
            return struct(fields, name, optional=True)
        items = self.schema(None, some[0] if some else None)
        if items is None:
            raise NotExpandable("an array holds nothing that has a type")
        return items


def _kind(node: Any) -> str:
    """What the elements of an array must have in common."""
    if isinstance(node, dict):
        return "object"
    return "array" if isinstance(node, list) else _scalar(node)


def _scalar(node: Any) -> str:
    if isinstance(node, bool):
        return "boolean"
    if isinstance(node, int):
        if -(2**31) <= node < 2**31:
            return "int32"
        if -(2**63) <= node < 2**63:
            return "int64"
        raise NotExpandable(f"the number {str(node)[:20]}… is too large")
    return "double" if isinstance(node, float) else "string"


def _fitted(node: Any, schema: Schema) -> Any:
    """The value in the shape of its schema: what that has no field for goes, and null fills up."""
    if node is None:
        return None
    wanted = schema["type"]
    if wanted == "struct" and isinstance(node, dict):
        return {
            field["field"]: _fitted(node.get(field["field"]), field) for field in schema["fields"]
        }
    if wanted == "array" and isinstance(node, list):
        return [_fitted(element, schema["items"]) for element in node]
    if isinstance(node, (dict, list)) or _scalar(node) != wanted:
        raise NotExpandable(f"one field is of type {wanted} here and {_kind(node)} there")
    return node


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_parse = json.JSONDecoder(parse_constant=_no_constant).decode
to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_KNOWN = {id(each): to_json(each) for each in (STRING, JSON_TEXT, OPTIONAL_STRING, OPTIONAL_BYTES)}
