"""What a content type says about a payload: JSON, text in UTF-8, or just bytes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

_JSON = re.compile(r"[^/;]+/([^;]*\+)?json\s*(;.*)?", re.IGNORECASE)
_TEXT = re.compile(r"text/[^;]*(;\s*charset\s*=\s*\"?(utf-8|us-ascii)\"?\s*)?", re.IGNORECASE)


@lru_cache(maxsize=1024)
def carried_by(content_type: str) -> Literal["json", "text", "binary"]:
    if _JSON.fullmatch(content_type):
        return "json"
    return "text" if _TEXT.fullmatch(content_type) else "binary"
