"""Payload: bytes -> what the handler wants: JSON, text, bytes, or an instance of its own type.

A dataclass is filled by its fields' types; what the payload has beyond them is left out, so that a
producer may add fields. pydantic and msgspec read for their own types.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.format.content import carried_by

Decode = Callable[[bytes, str], Any]
"""Payload and content type -> what the handler gets; `InvalidEvent` if they do not fit."""

_TEXTS: Mapping[type, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}


def decoder(wanted: Any) -> Decode:
    """What makes a payload of that type; `ConfigError` if nobody knows how."""
    if wanted is Any or get_origin(wanted) is dict or wanted is dict:
        return decode_by_content
    if wanted is bytes:
        return lambda payload, _content_type: payload
    if wanted is str:
        return lambda payload, _content_type: _text(payload)
    if isinstance(wanted, type):
        if dataclasses.is_dataclass(wanted):
            return partial(_decode_dataclass, wanted)
        if hasattr(wanted, "model_validate_json"):
            return partial(_decode_by, wanted.model_validate_json, wanted.__name__)
        if hasattr(wanted, "__struct_fields__"):
            return partial(_decode_by, _msgspec_decode(wanted), wanted.__name__)
    raise ConfigError(
        f"a payload cannot be read as {wanted!r}: "
        "use a dataclass, a pydantic model, a msgspec Struct, dict, str or bytes"
    )


def decode_by_content(payload: bytes, content_type: str) -> Any:
    """JSON if it says so; else text, or bytes. What says nothing and is JSON is JSON."""
    carried = carried_by(content_type) if content_type else "unknown"
    if carried == "json":
        return _json(payload)
    if carried == "unknown":
        try:
            return _json(payload)
        except InvalidEvent:
            return payload
    return _text(payload) if carried == "text" else payload


def _json(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"the payload is not JSON: {error}") from None


def _text(payload: bytes) -> str:
    try:
        return str(payload, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"the payload is not UTF-8 text: {error.reason}") from None


def _decode_by(read: Callable[[bytes], Any], name: str, payload: bytes, _content_type: str) -> Any:
    try:
        return read(payload)
    except ValueError as error:  # of both pydantic and msgspec
        reason = " ".join(str(error).split())
        raise InvalidEvent(f"the payload does not fit {name}: {reason:.500}") from None


def _msgspec_decode(wanted: type) -> Callable[[bytes], Any]:
    import msgspec  # noqa: PLC0415 - whoever made a Struct has it

    return msgspec.json.Decoder(wanted).decode


# --- dataclasses ---------------------------------------------------------------------------


class _Misfit(Exception):
    """A value is not what its field wants; the message says where."""


def _decode_dataclass(wanted: type, payload: bytes, _content_type: str) -> Any:
    try:
        return _fit(wanted, _json(payload), "")
    except _Misfit as error:
        raise InvalidEvent(f"the payload does not fit {wanted.__name__}: {error}") from None


def _fit(wanted: Any, value: Any, where: str) -> Any:
    origin = get_origin(wanted)
    if origin is Literal or wanted in (None, type(None)):
        return _chosen(get_args(wanted) or (None,), value, where)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(wanted), value, where)
    if origin is not None:
        return _fit_container(origin, get_args(wanted), value, where)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return _fit_fields(wanted, value, where)
    return _fit_scalar(wanted, value, where)


def _fit_fields(wanted: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _Misfit(_says(where, value, "an object"))
    hints = get_type_hints(wanted)
    given = {}
    for field in dataclasses.fields(wanted):
        name = f"{where}.{field.name}" if where else field.name
        if not field.init:
            continue
        if field.name in value:
            given[field.name] = _fit(hints[field.name], value[field.name], name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise _Misfit(f"{name} is missing")
    try:
        return wanted(**given)
    except (TypeError, ValueError) as error:  # its own checks, in __post_init__
        raise _Misfit(str(error)) from None


def _fit_container(origin: Any, inner: tuple[Any, ...], value: Any, where: str) -> Any:
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _Misfit(_says(where, value, "an object"))
        return {key: _fit(inner[1], each, f"{where}.{key}") for key, each in value.items()}
    if not isinstance(value, list):
        raise _Misfit(_says(where, value, "an array"))
    if origin is tuple and inner[-1] is not Ellipsis:
        if len(inner) != len(value):
            raise _Misfit(f"{where or 'it'} has {len(value)} elements, not {len(inner)}")
        pairs = zip(inner, value, strict=True)
        return tuple(_fit(kind, each, f"{where}[{n}]") for n, (kind, each) in enumerate(pairs))
    items = [_fit(inner[0], each, f"{where}[{n}]") for n, each in enumerate(value)]
    return items if origin in (list, Sequence) else origin(items)


def _fit_scalar(wanted: Any, value: Any, where: str) -> Any:
    if wanted is Any:
        return value
    if wanted in _TEXTS:
        return _converted(_TEXTS[wanted], wanted, value, where)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return _converted(wanted, wanted, value, where, of=(str, int))
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and wanted is not bool:
        raise _Misfit(_says(where, value, wanted.__name__))
    if not isinstance(value, wanted):
        raise _Misfit(_says(where, value, wanted.__name__))
    return value


def _converted(
    convert: Callable[[Any], Any],
    wanted: Any,
    value: Any,
    where: str,
    of: tuple[type, ...] = (str,),
) -> Any:
    if wanted is Decimal and isinstance(value, (int, float)) and not isinstance(value, bool):
        return Decimal(str(value))
    try:
        if isinstance(value, of):
            return convert(value)
    except (ValueError, ArithmeticError):
        pass
    raise _Misfit(_says(where, value, f"a {wanted.__name__}"))


def _chosen(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if not any(value == option and type(value) is type(option) for option in options):
        raise _Misfit(_says(where, value, " or ".join(map(repr, options))))
    return value


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    misfits = []
    for kind in kinds:
        try:
            return _fit(kind, value, where)
        except _Misfit as error:
            misfits.append(error)
    raise misfits[0]


def _says(where: str, value: Any, wanted: str) -> str:
    return f"{where or 'it'} is {value!r:.60}, not {wanted}"
