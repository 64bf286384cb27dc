"""What every source is told by its URL: which topics, and in which group."""

from __future__ import annotations

from commitrelay.errors import ConfigError
from commitrelay.publishers.settings import Settings


def topics_of(settings: Settings, name: str = "topic") -> tuple[str, ...]:
    """`?topic=orders,payments`, each once."""
    listed = [each.strip() for each in settings.text(name, "").split(",")]
    topics = tuple(dict.fromkeys(filter(None, listed)))
    if not topics:
        raise ConfigError(f"the {settings.owner} has nothing to read: say ?{name}=NAME")
    return topics


def group_of(settings: Settings) -> str:
    """`?group=NAME`: readers of one group share the messages, each group gets them all."""
    group = settings.text("group", "")
    if not group:
        raise ConfigError(f"the {settings.owner} belongs to no group: say ?group=NAME")
    return group
