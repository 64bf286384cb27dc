"""Which format: a composer by its name, for the broker behind a publish URL."""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import ConfigError
from commitrelay.format import Composer, Plain
from commitrelay.format.binding import binding_of
from commitrelay.format.cloudevents import CloudEvents, StructuredCloudEvents
from commitrelay.format.debezium import Debezium
from commitrelay.route import Route

OPTIONS = {
    "plain": None,
    "cloudevents": "cloudevents",
    "cloudevents-structured": "cloudevents",
    "debezium": "debezium",
}
"""The formats, and the table of the settings file that holds their options."""


def composer(
    name: str, route: Route, *, scheme: str, options: Mapping[str, Mapping[str, str]]
) -> Composer:
    """The composer of that name; `scheme` is the publish URL's, `options` the file's tables."""
    table = OPTIONS[name]
    chosen = {} if table is None else options.get(table, {})
    match name:
        case "cloudevents":
            return CloudEvents(route, binding=binding_of(scheme), options=chosen)
        case "cloudevents-structured":
            return StructuredCloudEvents(route, binding=binding_of(scheme), options=chosen)
        case "debezium":
            if not route.is_default:
                raise ConfigError(
                    "the debezium format routes by itself: put route.topic.replacement = "
                    '"…" into [debezium] instead of topic or [routes]'
                )
            return Debezium(chosen)
    return Plain(route)
