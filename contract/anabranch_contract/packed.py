"""Compression of long texts in Redis.

>>> text = '{"a": 1}' * 10_000
>>> len(pack(text)) < len(text) / 20, unpack(pack(text)) == text
(True, True)
>>> pack("{}"), unpack("{}")
('{}', '{}')
"""

from __future__ import annotations

import base64
import zlib

#: Prefix of a compressed text; no JSON text begins with it.
_MARK = "zlib:"
#: Minimum number of characters of a text to compress, and zlib's compression level (1: fastest).
_LEAST, _LEVEL = 1 << 16, 1


def pack(text: str) -> str:
    """Compress ``text`` if it is long; :func:`unpack` is the inverse."""
    if len(text) < _LEAST:
        return text
    return _MARK + base64.b64encode(zlib.compress(text.encode(), _LEVEL)).decode()


def unpack(kept: str) -> str:
    """Return the original of a text that :func:`pack` has returned.

    Raises:
        ValueError: the packed text is damaged.
    """
    if not kept.startswith(_MARK):
        return kept
    try:
        return zlib.decompress(base64.b64decode(kept[len(_MARK) :], validate=True)).decode()
    except zlib.error as cause:
        raise ValueError(f"a packed text is damaged: {cause}") from cause
