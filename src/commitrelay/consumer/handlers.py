"""Handlers: which function handles which type of event, and what payload it wants."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from commitrelay.consumer.payload import Decode, decode_by_content, decoder
from commitrelay.consumer.received import Received
from commitrelay.errors import ConfigError

REST = "*"
Function = Callable[[Any, Received[Any]], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    function: Function
    is_async: bool
    decode: Decode

    @property
    def name(self) -> str:
        return _name(self.function)


class Handlers:
    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}

    def __bool__(self) -> bool:
        return bool(self._by_type)

    @property
    def types(self) -> list[str]:
        return [*self._by_type]

    def add(self, function: Function, types: tuple[str, ...], payload: Any) -> None:
        if not types:
            raise ConfigError("on() names no event type: write on('OrderPaid'), or on('*')")
        wanted = _annotated(function) if payload is None else payload
        handler = Handler(
            function,
            inspect.iscoroutinefunction(_underneath(function)),
            decode_by_content if wanted is None else decoder(wanted),
        )
        for name in types:
            if name in self._by_type:
                raise ConfigError(
                    f"{name!r} has the handler {self._by_type[name].name} already: "
                    "one consumer handles a type once"
                )
            self._by_type[name] = handler

    def find(self, event_type: str) -> Handler | None:
        return self._by_type.get(event_type) or self._by_type.get(REST)


def _underneath(function: Any) -> Any:
    """The function that runs in the end, beneath decorators, partials and objects."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _name(function: Any) -> str:
    return str(getattr(_underneath(function), "__qualname__", function))


def _annotated(function: Function) -> Any:
    """X of the annotation `Received[X]` at the second parameter; None if there is none."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None
    if len(parameters) != 2:
        raise ConfigError(
            f"handler {_name(function)} takes "
            f"{len(parameters)} parameters: it must take two, the connection and the event"
        )
    annotation = parameters[1].annotation
    if isinstance(annotation, str):
        annotation = _resolved(function, annotation)
    if get_origin(annotation) is not Received:
        return None
    return get_args(annotation)[0]


def _resolved(function: Any, annotation: str) -> Any:
    module = getattr(_underneath(function), "__globals__", {})
    stub = SimpleNamespace(__annotations__={"event": annotation})
    try:
        return get_type_hints(stub, globalns=module)["event"]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        if "[" not in annotation:
            return None
        raise ConfigError(
            f"the annotation {annotation} of handler {_name(function)} cannot be found "
            f"({error}): write @consumer.on(…, payload=…) instead"
        ) from None
