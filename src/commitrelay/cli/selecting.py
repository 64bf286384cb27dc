"""Selecting: which events a command is about, in the same words for all of them."""

from __future__ import annotations

from commitrelay.acts import Selection
from commitrelay.cli.command import Option, Request
from commitrelay.errors import ConfigError
from commitrelay.kinds import Moment, Text
from commitrelay.store import EventFilter

IDS = Option("ID", "Ids of events, as `commitrelay list` shows them.", Text("ID"), arity="*")
TYPE = Option("--type", "Only events of this type.", Text("NAME"), group="Filter")
AGGREGATE = Option(
    "--aggregate",
    "Only events of this aggregate type, or of one aggregate.",
    Text("TYPE[/ID]"),
    group="Filter",
)
LANE = Option("--lane", "Only events of this lane.", Text("NAME"), group="Filter")
ERROR = Option("--error", "Only events whose last error has this text.", Text(), group="Filter")
SINCE = Option(
    "--since", "Only events added since: a time, or 2h for two hours ago.", Moment(), group="Filter"
)
UNTIL = Option("--until", "Only events added before.", Moment(), group="Filter")
ALL = Option("--all", "All of them: no other filter is needed.", group="Filter")


def filter_of(request: Request) -> EventFilter:
    """The filter that the options make; those that a command does not have count as left out."""
    options = request.options
    kind, _, identifier = (options.get("aggregate") or "").partition("/")
    return EventFilter(
        status=options.get("status"),
        aggregate_type=kind or None,
        aggregate_id=identifier or None,
        event_type=options.get("type"),
        lane=options.get("lane"),
        error=options.get("error"),
        since=options.get("since"),
        until=options.get("until"),
    )


def selection_of(request: Request) -> Selection:
    """Ids or filters, not both (but for the lane); and not everything by a slip."""
    ids = request.options["id"] or None
    filters = ("aggregate", "type", "error", "since", "until", "status")
    given = [name for name in filters if request.options.get(name) is not None]
    given += ["all"] if request.options["all"] else []
    if ids is not None and given:
        raise ConfigError(f"give ids or filters, not both: leave --{given[0]} out")
    if ids is None and not given:
        raise ConfigError("which events? give ids, a filter such as --aggregate, or --all")
    return Selection(filter_of(request), ids)
