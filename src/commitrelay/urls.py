"""URLs of databases and brokers: told apart by scheme, shown without their passwords."""

from __future__ import annotations

import re

from commitrelay.errors import ConfigError

HIDDEN = "***"

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):")
_URL_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+?(?=[:;,.)'\"]*(?:\s|$))")
_PORT = re.compile(r"(?<![:\[]):\d*$|(?<=\]):\d*$")
_NO_PORT = re.compile(r":(?!\d*(,|$))")
_SECRETS = "password|passwd|passphrase|secret|token|api_?key|key[.]pem|jaas"
_SECRET_NAME = rf"[\w.-]*(?:{_SECRETS})[\w.-]*"
_SECRET_PARAMETER = re.compile(rf"(?i)([?&;#]{_SECRET_NAME}=)[^&;#]*")
_SECRET_PAIR = re.compile(rf"(?i)\b({_SECRET_NAME}\s*=\s*)('[^']*'|\"[^\"]*\"|[^\s,;&]+)")


def scheme_of(url: str) -> str:
    """The lower-case scheme of a URL; `ConfigError` if it has none."""
    match = _SCHEME.match(url)
    if match is None:
        raise ConfigError(f"{redact(url)!r} is not a URL: it does not start with a scheme and ':'")
    return match["scheme"].lower()


def hosts_of(url: str) -> list[str]:
    """The hosts that a URL names, without ports; an empty one for a local socket."""
    rest = url.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    named = [_PORT.sub("", part).strip("[]") for part in authority.split(",")]
    parameters = re.findall(r"[?&]host=([^&#]*)", rest)
    return [host for text in parameters for host in text.split(",")] or named


def redact(url: str) -> str:
    """The URL as it may be shown: passwords in its userinfo and its query are hidden."""
    return _SECRET_PARAMETER.sub(rf"\g<1>{HIDDEN}", _without_password(url))


def scrub(text: str) -> str:
    """Free text, such as a driver's error, with every URL and `password=…` in it redacted."""
    text = _URL_IN_TEXT.sub(lambda match: redact(match[0]), text)
    return _SECRET_PAIR.sub(rf"\g<1>{HIDDEN}", text)


def is_secret(name: str) -> bool:
    """Whether an option of that name holds something that must not be shown."""
    return re.fullmatch(_SECRET_NAME, name, re.IGNORECASE) is not None


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    # People put "/", "?" and "#" unescaped into passwords. Such a URL is wrong, but what is
    # shown of it while saying so must not be the password.
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        end = authority.rindex("@")
    elif "@" in rest.split("?", 1)[0] or _NO_PORT.search(re.sub(r"\[[^]]*\]", "", authority)):
        end = rest.rfind("@") if "@" in rest else len(rest)
    else:
        return url
    user, colon, _password = rest[:end].partition(":")
    return f"{scheme}://{user}:{HIDDEN}{rest[end:]}" if colon else url
