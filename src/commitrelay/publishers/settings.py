"""Settings of one adapter: the config file's options under the URL's query, read by type."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from commitrelay.errors import ConfigError

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Settings:
    """Each setting is taken once; what nobody took is a typing error, told by `refuse_unknown`."""

    def __init__(
        self, adapter: str, options: Mapping[str, str], query: str = "", *, role: str = "publisher"
    ) -> None:
        self.owner = f"{adapter} {role}"
        given = dict(parse_qsl(query, keep_blank_values=True))
        self.remaining: dict[str, str] = {**options, **given}
        self._known: list[str] = []

    def text(self, name: str, default: str) -> str:
        self._known.append(name)
        return str(self.remaining.pop(name, default))

    def integer(self, name: str, default: int, *, at_least: int = 1) -> int:
        if name not in self.remaining:
            self._known.append(name)
            return default
        text = self.text(name, "")
        if not text.isascii() or not text.isdigit() or int(text) < at_least:
            raise self._wrong(name, text, f"a whole number, at least {at_least}")
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            raise self._wrong(name, text, "a number of seconds above 0")
        return seconds

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in _BOOLEANS:
            raise self._wrong(name, text, "true or false")
        return _BOOLEANS[text]

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        text = self.text(name, default)
        if text not in choices:
            raise self._wrong(name, text, " or ".join(choices))
        return text

    def refuse_unknown(self) -> None:
        for name in self.remaining:
            raise ConfigError(
                f"the {self.owner} has no setting {name!r}: "
                f"use {', '.join(sorted(self._known)) or 'none'}"
            )

    def _wrong(self, name: str, text: str, expected: str) -> ConfigError:
        return ConfigError(f"{name}={text!r} of the {self.owner} is not {expected}")
