"""Addresses of servers, as they may be shown."""

from __future__ import annotations

import re

#: A scheme of any length would be looked for anew at every letter of a long text.
_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]{0,30}://)([^\s/@:'\"]*):[^\s/@'\"]+@", re.IGNORECASE)


def masked(text: str) -> str:
    """``text`` with the passwords of the URLs in it replaced by ``***``.

    >>> masked("redis://:secret@127.0.0.1:6379/0 does not answer")
    'redis://:***@127.0.0.1:6379/0 does not answer'
    """
    return _CREDENTIALS.sub(r"\1\2:***@", text)
