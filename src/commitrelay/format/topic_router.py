"""TopicRouter: a regular expression and a replacement as Java writes them, applied to a name.

It renames what the expression matches as a whole, as Kafka Connect's RegexRouter does; what it
does not match keeps its name.
"""

from __future__ import annotations

import re

from commitrelay.errors import ConfigError

_NAMED_GROUP = re.compile(r"\(\?<(?![=!])")
_NAMED_REFERENCE = re.compile(r"\\k<(\w+)>")
_REPLACEMENT = re.compile(
    r"\\(?P<literal>.)|\$\{(?P<name>\w+)\}|\$(?P<number>\d+)|(?P<text>[^\\$]+)"
)

MAX_CACHED_TOPICS = 4096


class TopicRouter:
    __slots__ = ("_known", "_parts", "_pattern")

    def __init__(self, regex: str, replacement: str) -> None:
        try:
            self._pattern = re.compile(
                _NAMED_REFERENCE.sub(r"(?P=\1)", _NAMED_GROUP.sub("(?P<", regex))
            )
        except re.error as error:
            raise ConfigError(
                f"[debezium] route.topic.regex = {regex!r} is no regular expression: {error}"
            ) from None
        self._parts = _parsed(replacement, self._pattern)
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        topic = self._known.get(name)
        if topic is None:
            if len(self._known) >= MAX_CACHED_TOPICS:
                self._known.clear()
            topic = self._known[name] = self._renamed(name)
        return topic

    def _renamed(self, name: str) -> str:
        if not self._pattern.fullmatch(name):
            return name
        return self._pattern.sub(self._filled, name, count=1)

    def _filled(self, match: re.Match[str]) -> str:
        parts = [part if isinstance(part, str) else match[part.group] for part in self._parts]
        return "".join([part or "" for part in parts])


class _Group:
    def __init__(self, group: int | str) -> None:
        self.group = group


def _parsed(replacement: str, pattern: re.Pattern[str]) -> list[str | _Group]:
    parts: list[str | _Group] = []
    end = 0
    for match in _REPLACEMENT.finditer(replacement):
        if match.start() != end:
            break
        end = match.end()
        if match["name"] or match["number"]:
            parts += _reference(match, pattern, replacement)
        else:
            parts.append(match["literal"] or match["text"])
    if end != len(replacement):
        raise _wrong(
            replacement, f"{replacement[end:]!r} refers to no group: write \\$ for a dollar sign"
        )
    return parts


def _reference(match: re.Match[str], pattern: re.Pattern[str], text: str) -> list[str | _Group]:
    if name := match["name"]:
        if name not in pattern.groupindex:
            raise _wrong(text, f"route.topic.regex has no group {name!r}")
        return [_Group(name)]
    digits: str = match["number"]
    # As many digits as make the number of a group; what follows is text.
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= pattern.groups:
            return [_Group(int(digits[:length])), digits[length:]]
    raise _wrong(text, f"route.topic.regex has no group {digits[0]}")


def _wrong(replacement: str, reason: str) -> ConfigError:
    return ConfigError(
        f"[debezium] route.topic.replacement = {replacement!r} cannot be used: {reason}"
    )
