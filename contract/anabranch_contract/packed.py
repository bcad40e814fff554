"""Long texts as they are kept in Redis: compressed, where that is worth it.

>>> text = '{"a": 1}' * 10_000
>>> len(pack(text)) < len(text) / 20, unpack(pack(text)) == text
(True, True)
>>> pack("{}"), unpack("{}")
('{}', '{}')
"""

from __future__ import annotations

import base64
import zlib

#: Prefix of a compressed text; no JSON begins so.
_MARK = "zlib:"
#: Characters from which on a text is compressed, and how hard that tries: 1 is quick.
_LEAST, _LEVEL = 1 << 16, 1


def pack(text: str) -> str:
    """Compress ``text`` if it is long; :func:`unpack` reverses it."""
    if len(text) < _LEAST:
        return text
    return _MARK + base64.b64encode(zlib.compress(text.encode(), _LEVEL)).decode()


def unpack(kept: str) -> str:
    """The text that :func:`pack` packed.

    Raises:
        ValueError: it is damaged.
    """
    if not kept.startswith(_MARK):
        return kept
    try:
        return zlib.decompress(base64.b64decode(kept[len(_MARK) :], validate=True)).decode()
    except zlib.error as cause:
        raise ValueError(f"a packed text is damaged: {cause}") from cause
