"""FormatOptions: the options of one format, read by type; what nobody took is an error."""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import ConfigError
from commitrelay.kinds import hint

_BOOLEANS = {"true": True, "false": False}


class FormatOptions:
    def __init__(self, table: str, options: Mapping[str, str]) -> None:
        self._table = table
        self._left = dict(options)
        self._known: list[str] = []

    def text(self, name: str, default: str) -> str:
        self._known.append(name)
        value = self._left.pop(name, default)
        if not value and default:
            raise self.wrong(name, value, "a text that is not empty")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name, str(default).lower())
        if value.lower() not in _BOOLEANS:
            raise self.wrong(name, value, "true or false")
        return _BOOLEANS[value.lower()]

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise self.wrong(name, value, " or ".join(choices))
        return value

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Options that exist elsewhere and have no meaning here, and why."""
        for name, reason in reasons.items():
            if name in self._left:
                raise ConfigError(f"[{self._table}] {name} cannot be set: {reason}")

    def refuse_unknown(self) -> None:
        for name in self._left:
            raise ConfigError(
                f"[{self._table}] has no option {name!r}{hint(name, self._known)}: "
                f"use {', '.join(sorted(self._known))}"
            )

    def wrong(self, name: str, value: str, expected: str) -> ConfigError:
        return ConfigError(f"[{self._table}] {name} = {value!r} is not {expected}")
