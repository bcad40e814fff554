"""Addresses of servers, as they may be shown."""

from __future__ import annotations

import re

#: What stands between the scheme and the host of a URL. A scheme of any length would be looked for
#: anew at every letter of a long text.
_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]{0,30}://)([^\s/@:'\"]*):[^\s/@'\"]+@", re.IGNORECASE)


def masked(text: str) -> str:
    """``text`` with the passwords of the URLs in it replaced by ``***``.

    >>> masked("Redis at redis://me:secret@host:6379/0 and redis://:x@[::1]/1, http://host/a@b:c")
    'Redis at redis://me:***@host:6379/0 and redis://:***@[::1]/1, http://host/a@b:c'
    """
    return _CREDENTIALS.sub(r"\1\2:***@", text)
